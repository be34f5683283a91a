"""hbuf-pause: nothing in a buffer's directory changes, for as long as a command runs or until it is resumed."""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from hbuf.cli.place import CaCert, Cert, Options, Place, TokenFile, place_of
from hbuf.cli.program import BuffersOrUrls, Timeout, Version, noticer, program, run, seconds
from hbuf.cli.streams import complain
from hbuf.errors import HbufError
from hbuf.ops.pause import Holding, hold_still, let_go_on

NAME = "hbuf-pause"
_COMMAND: list[str] = []


def pause_command(
    buffers: BuffersOrUrls,
    resume_them: Annotated[bool, typer.Option("--resume", help="End the pause, whoever set it.")] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; shown to who has to wait.")] = "",
    timeout: Timeout = "30s",
    cacert: CaCert = None,
    cert: Cert = None,
    token_file: TokenFile = None,
    version: Version = False,
) -> int:
    """Pause buffers while COMMAND runs (BUF... -- COMMAND), or until --resume."""
    wait_seconds = seconds(timeout)
    places = {buffer: place_of(NAME, buffer, Options(cacert, cert, token_file)) for buffer in buffers}
    if resume_them:
        for place in places.values():
            let_go_on(place, timeout_seconds=wait_seconds)
        return 0
    if not _COMMAND:
        for buffer, place in places.items():
            hold = hold_still(place, reason=reason, timeout_seconds=wait_seconds, notice=noticer(f"{NAME}: {buffer}"))
            if hold:
                hold.keep()
        return 0
    return _pause_while(places, reason, wait_seconds)


def _pause_while(places: dict[str, Place], reason: str, wait_seconds: float) -> int:
    holds: list[Holding] = []
    command = shlex.join(_COMMAND)
    released = True
    try:
        for buffer, place in places.items():
            notice = noticer(f"{NAME}: {buffer}")
            hold = hold_still(place, reason=reason, timeout_seconds=wait_seconds, command=command, notice=notice)
            if hold:
                holds.append(hold)
        code = _run_command([fd for hold in holds for fd in hold.fds])
    finally:
        for hold in holds:
            released = _release(hold) and released
    return code if code or released else 75


def _run_command(fds: list[int]) -> int:
    """The command has the pauses' files open too: they hold as long as it lives, even if we are killed."""
    try:
        process = subprocess.Popen(_COMMAND, pass_fds=fds)
    except OSError as error:
        complain(NAME, f"{_COMMAND[0]}: {error.strerror}")
        return 127 if isinstance(error, FileNotFoundError) else 126
    with _signals_left_to(process):
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _signals_left_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """The command decides what comes of a signal. A ^C comes to it by itself.

    No handler raises: in the moment in which the command ends, Python would lose its exit code, and say 0.
    """

    def pass_on(number: int, _: object) -> None:
        if number != signal.SIGINT:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _release(hold: Holding) -> bool:
    try:
        held = hold.release()
    except HbufError as error:
        complain(NAME, error.message)
        return False
    if not held:
        complain(NAME, f"{hold.shown}: was resumed by somebody else while the command ran")
    return held


app = program(NAME, pause_command, "Example: hbuf-pause ./orders -- tar cf orders.tar ./orders")


def main() -> None:
    _COMMAND.clear()
    if "--" in sys.argv:
        at = sys.argv.index("--")
        _COMMAND[:] = sys.argv[at + 1 :]
        if not _COMMAND:
            complain(NAME, "there is no command behind --")
            sys.exit(2)
        del sys.argv[at:]
    run(app, NAME)
