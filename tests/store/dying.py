"""Children that kill themselves at a chosen call of `fsops`. A fork is enough, and far faster than a new Python.

SIGKILL leaves everything that was written in the kernel's cache: what a killed process leaves behind is what it did.
"""

from __future__ import annotations

import inspect
import os
import signal
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from hbuf.store import fsops

from .checking import Answers, Stored

Moment = Literal["before", "in the middle of", "after"]
Work = Callable[[Path, Answers], None]

# These change nothing themselves: what they call is wrapped.
_NOT_CALLS = {"replace_durably", "create_durably", "os_errors", "translated"}


def changing_calls() -> dict[str, Callable[..., Any]]:
    """Every function of fsops that changes files, by name: one that is added there is found here."""
    found = inspect.getmembers(fsops, inspect.isfunction)
    return {name: call for name, call in found if call.__module__ == fsops.__name__ and name not in _NOT_CALLS}


class Outcome(NamedTuple):
    answers: Answers
    died: bool  # at the chosen call; otherwise it did all of its work


def work_until(work: Work, where: Path, point: int, moment: Moment) -> Outcome:
    """Does `work` in a child that dies at its call number `point` (from 0 on) of fsops."""
    read_end, write_end = os.pipe()
    child = fork()
    if child == 0:
        _be_the_child(work, where, point, moment, write_end)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        told = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), f"the child failed: {status}"
    return Outcome(_parse(told), died=status != 0)


def fork() -> int:
    with warnings.catch_warnings():
        # A thread that another test left behind is no concern of a child that only works on files.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def kill_oneself() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


class _Pipe(Answers):
    """Answers that are told to the parent at once: what was told before a SIGKILL stays told."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def note_stored(self, stored: Iterable[Stored]) -> None:
        lines = [f"stored {seq} {record_id} {body.hex()}\n" for seq, record_id, body in stored]
        os.write(self._fd, "".join(lines).encode())

    def note_done(self, step: str) -> None:
        os.write(self._fd, f"done {step}\n".encode())


def _parse(told: bytes) -> Answers:
    answers = Answers()
    for line in told.decode().splitlines():
        kind, *words = line.split(" ")
        if kind == "done":
            answers.note_done(words[0])
        else:
            answers.note_stored([Stored(int(words[0]), words[1], bytes.fromhex(words[2]))])
    return answers


def _be_the_child(work: Work, where: Path, point: int, moment: Moment, pipe: int) -> NoReturn:
    """Never returns into the test: it dies, or exits at once."""
    try:
        arm(point, moment)
        work(where, _Pipe(pipe))
        os._exit(0)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(70)


def arm(point: int, moment: Moment) -> None:
    """Replaces the calls of this process for good: call number `point` is its last."""
    count = -1

    def dying(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            if moment == "in the middle of" and name != "write_all_at":
                return call(*arguments, **named)
            count += 1
            here = count == point
            if here and moment == "before":
                kill_oneself()
            if here and moment == "in the middle of":
                fd, data, offset = arguments
                call(fd, data[: len(data) // 2], offset)
                kill_oneself()
            result = call(*arguments, **named)
            if here:
                kill_oneself()
            return result

        return called

    for name, call in changing_calls().items():
        setattr(fsops, name, dying(name, call))
