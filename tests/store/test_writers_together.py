"""Several writers and readers of one buffer, as processes: no gaps, each message once, nothing that vanishes."""

import functools
import itertools
import os
import random
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from hbuf.errors import Locked
from hbuf.ops.create import create
from hbuf.ops.set import set_settings
from hbuf.ops.tail import messages
from hbuf.ops.verify import verify
from hbuf.store.directory import BufferDirectory
from hbuf.store.reader import Reader
from hbuf.store.writer import Writer

from .checking import Answers, Stored, append, append_to, check_survived, open_writer, read_all, stored_of
from .dying import fork, work_until
from .real_command import APPEND, ENVIRONMENT

WRITERS = 4
EACH = 60
ALL = WRITERS * EACH
DEADLINE_SECONDS = 30

Tell = Callable[[list[Stored]], None]


class Child:
    """A process that does `work` and tells what it stored or saw, in the file `told`."""

    def __init__(self, work: Callable[[Tell], None], told: Path) -> None:
        self._told = told
        told.touch()
        self._gone = False
        self.pid = fork()
        if self.pid == 0:
            self._work(work)

    def _work(self, work: Callable[[Tell], None]) -> NoReturn:
        try:
            work(self._tell)
            os._exit(0)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(70)

    def _tell(self, seen: list[Stored]) -> None:
        with self._told.open("a") as file:
            file.writelines(f"{seq} {record_id} {body.hex()}\n" for seq, record_id, body in seen)

    def join(self) -> list[Stored]:
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._gone = True
        assert status == 0, f"a process failed: {status}"
        lines = [line.split() for line in self._told.read_text().splitlines()]
        return [Stored(int(seq), record_id, bytes.fromhex(body)) for seq, record_id, body in lines]

    def kill(self) -> None:
        if not self._gone:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._gone = True


Start = Callable[[Callable[[Tell], None]], Child]


@pytest.fixture
def start(ram_path: Path) -> Iterator[Start]:
    """Starts children, of which none is left behind."""
    children: list[Child] = []

    def start_one(work: Callable[[Tell], None]) -> Child:
        children.append(Child(work, ram_path / f"told by child {len(children)}"))
        return children[-1]

    yield start_one
    for child in children:
        child.kill()


def write(path: Path, writer_number: int, tell: Tell) -> None:
    """Appends batches of one to four messages."""
    chance = random.Random(writer_number)
    with open_writer(path) as writer:
        done = 0
        while done < EACH:
            size = min(chance.randint(1, 4), EACH - done)
            bodies = [b"writer %d message %d" % (writer_number, done + i) for i in range(size)]
            tell(append(writer, bodies, unit=chance.random() < 0.3))
            done += size


def follow(path: Path, tell: Tell) -> None:
    """Reads on with one reader until all is there."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    at = 1
    with Reader(BufferDirectory(path)) as reader:
        while at <= ALL:
            assert time.monotonic() < deadline, f"only {at - 1} messages came"
            reader.refresh()
            tell(stored_of(messages(reader, at, reader.end_seq)))
            at = reader.end_seq


def read_again_and_again(path: Path, tell: Tell) -> None:
    """Opens the buffer anew each time, and finds what it found before and perhaps more."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    before: list[Stored] = []
    while len(before) < ALL:
        assert time.monotonic() < deadline, f"only {len(before)} messages came"
        now = stored_of(read_all(path))
        assert now[: len(before)] == before, "something that was shown is gone or has changed"
        tell(now[len(before) :])
        before = now


def verify_again_and_again(path: Path, tell: Tell) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    last = 0
    while last < ALL:
        assert time.monotonic() < deadline, f"only {last} messages came"
        report = verify(str(path), jobs=1)
        assert report.ok, f"{[str(fault) for fault in report.faults]}, {report.not_checked}"
        assert report.last_seq >= last
        last = report.last_seq


def test_messages_of_many_writers_are_each_there_once_in_order_and_readers_see_no_gap(
    ram_path: Path, start: Start
) -> None:
    path = ram_path / "orders"
    create(str(path), {"segment_messages": "13", "segment_bytes": "8KiB"})
    writers = [start(functools.partial(write, path, n)) for n in range(WRITERS)]
    readers = [start(functools.partial(read, path)) for read in (follow, read_again_and_again, verify_again_and_again)]
    stored = [child.join() for child in writers]
    seen = [child.join() for child in readers]
    everything = stored_of(read_all(path))
    assert [each.seq for each in everything] == list(range(1, ALL + 1))
    assert sorted(itertools.chain(*stored)) == everything
    for told in stored:
        assert told == sorted(told), "a writer's order was not kept"
        assert len(told) == EACH
    assert seen == [everything, everything, []]
    assert len(list(path.glob("segments/*.http"))) > 10
    check_survived(path, everything)


def test_two_writers_that_take_turns_follow_each_other_over_segments(ram_path: Path) -> None:
    path = ram_path / "orders"
    create(str(path), {"segment_messages": "3"})
    stored: list[Stored] = []
    with open_writer(path) as one, open_writer(path) as other:
        for n in range(20):
            stored += append(one if n % 2 else other, [b"%d.%d" % (n, i) for i in range(n % 5 + 1)])
    check_survived(path, stored)


def test_writer_notices_settings_that_another_changed(ram_path: Path) -> None:
    path = ram_path / "orders"
    create(str(path))
    with open_writer(path) as writer:
        with writer.locked():
            pass
        set_settings(str(path), {"segment_messages": "1"}, timeout_seconds=20)
        stored = append(writer, [b"one", b"two"])
        assert len(list(path.glob("segments/*.http"))) == 2
        set_settings(str(path), {"segment_messages": "none"}, timeout_seconds=20)
        stored += append(writer, [b"three", b"four"])
        assert len(list(path.glob("segments/*.http"))) == 3
    check_survived(path, stored)


@pytest.mark.parametrize("point", [0, 1, 2, 3])
def test_writer_goes_on_behind_another_that_died_in_an_append(ram_path: Path, point: int) -> None:
    """The writer has the buffer's end in mind, from before the other one moved it."""
    path = ram_path / "orders"
    create(str(path), {"segment_messages": "3"})

    def append_and_die(where: Path, answers: Answers) -> None:
        for body in (b"of the other", b"not finished"):
            answers.note_stored(append_to(where, body))

    with open_writer(path) as writer:
        stored = append(writer, [b"before"])
        outcome = work_until(append_and_die, path, point, "in the middle of")
        assert outcome.died
        stored += [*outcome.answers.stored, *append(writer, [b"behind"])]
    check_survived(path, stored, [b"of the other", b"not finished"])


@pytest.fixture
def holder(ram_path: Path, start: Start) -> Child:
    """A process that holds the lock of the buffer `orders`, and lives."""
    create(str(ram_path / "orders"))
    has_it = ram_path / "has it"

    def hold(tell: Tell) -> None:
        with open_writer(ram_path / "orders") as writer, writer.locked():
            has_it.touch()
            signal.pause()

    child = start(hold)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not has_it.exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return child


def test_lock_whose_holder_lives_holds_until_the_timeout(holder: Child, ram_path: Path) -> None:
    path = ram_path / "orders"
    for timeout_seconds in (0, 0.05):
        with Writer(BufferDirectory(path), timeout_seconds=timeout_seconds) as writer:
            with pytest.raises(Locked) as locked:
                append(writer, [b"refused"])
            assert locked.value.exit_code == 75
    ran = subprocess.run(
        [*APPEND, str(path), "--timeout", "10ms"],
        input=b"refused\n",
        capture_output=True,
        env=ENVIRONMENT,
    )
    assert ran.returncode == 75
    assert b"locked" in ran.stderr
    assert read_all(path) == []
    assert verify(str(path), jobs=1).ok


def test_lock_whose_holder_was_killed_does_not_hold(holder: Child, ram_path: Path) -> None:
    path = ram_path / "orders"
    with Writer(BufferDirectory(path), timeout_seconds=0) as writer, pytest.raises(Locked):
        append(writer, [b"refused"])
    holder.kill()
    with Writer(BufferDirectory(path), timeout_seconds=0) as writer:
        stored = append(writer, [b"taken"])
    check_survived(path, stored)


def test_writer_that_waits_gets_the_lock_when_its_holder_is_killed(holder: Child, ram_path: Path, start: Start) -> None:
    path = ram_path / "orders"
    waiting = start(lambda tell: tell(append_to(path, b"waited for")))
    holder.kill()
    stored = waiting.join()
    assert [each.body for each in stored] == [b"waited for"]
    check_survived(path, stored)
