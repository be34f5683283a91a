"""Backups of a buffer in which all happens at once: segments roll, are erased in, compressed and retired."""

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hbuf.format.message import Message
from hbuf.ops.verify import verify

from .checking import append_to, read_all
from .dying import fork
from .erase_scenarios import erase_in
from .real_command import ENVIRONMENT
from .signed_scenarios import KEY
from .trusted_buffer import EVERYTHING, Trust, TrustedBuffer

DEADLINE_SECONDS = 30
BACKUPS = 4
BODY = re.compile(rb"sent (\d+) \.*\Z")
SETTINGS = {"retention_messages": "40"}


def work_until_done(buffer: TrustedBuffer) -> None:
    """Appends, erases, compresses and retires, again and again."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    for n in itertools.count(0, 4):
        if (buffer.where / "done").exists():
            return
        assert time.monotonic() < deadline
        buffer.append(*[body_of(number) for number in range(n, n + 4)])
        last = buffer.read()[-1].seq
        buffer.erase(*sorted({last - 1, last - 7 if last > 30 else last}))
        if n % 3 == 0:
            buffer.compress()
        if n % 5 == 0:
            buffer.retire()
        (buffer.where / "rounds").write_text(str(n))


Start = Callable[[TrustedBuffer], None]


@pytest.fixture
def start() -> Iterator[Start]:
    """Lets a process work on a buffer until the test is over, and must end well."""
    started: list[tuple[TrustedBuffer, int]] = []

    def start_one(buffer: TrustedBuffer) -> None:
        child = fork()
        if child == 0:
            try:
                work_until_done(buffer)
                os._exit(0)
            finally:
                os._exit(70)
        started.append((buffer, child))
        wait_for_rounds(buffer, 40)

    yield start_one
    for buffer, child in started:
        (buffer.where / "done").touch()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def rounds(buffer: TrustedBuffer) -> int:
    text = (buffer.where / "rounds").read_text() if (buffer.where / "rounds").exists() else ""
    return int(text or 0)


def wait_for_rounds(buffer: TrustedBuffer, more: int) -> None:
    """Until the process has done some more."""
    before, deadline = rounds(buffer), time.monotonic() + DEADLINE_SECONDS
    while rounds(buffer) < before + more:
        assert time.monotonic() < deadline, "the process does nothing"
        time.sleep(0.01)


def body_of(number: int) -> bytes:
    return b"sent %d " % number + b"." * (number % 700)


LAST = body_of(1_000_000)


def check_bodies(found: list[Message]) -> None:
    """Each is as it was sent, in order, or erased, or one of those that were there before."""
    numbers = [int(match[1]) for message in found if (match := BODY.match(message.body))]
    assert numbers == sorted(set(numbers))
    for message in found:
        match = BODY.match(message.body)
        if match:
            assert message.body == body_of(int(match[1]))
        else:
            assert message.erased or message.seq <= 7


def test_paused_backup_of_a_buffer_that_has_everything_is_restored_whole(ram_path: Path, start: Start) -> None:
    buffer = TrustedBuffer(ram_path / "live", EVERYTHING, **SETTINGS)
    start(buffer)
    pause = [sys.executable, "-c", "from hbuf.cli.pause import main; main()", str(buffer.path), "--timeout", "30s"]
    for number in range(BACKUPS):
        backup, where = ram_path / f"{number}.tar", ram_path / f"restored {number}"
        tar = ["tar", "cf", str(backup), "-C", str(buffer.where), "orders", "keys"]
        subprocess.run([*pause, "--", *tar], check=True, env=ENVIRONMENT)
        wait_for_rounds(buffer, 12)
        where.mkdir()
        subprocess.run(["tar", "xf", backup, "-C", where], check=True)
        restored = where / "orders"
        report = verify(str(restored), jobs=1, signer=buffer.first_key)
        assert report.ok, f"{[str(fault) for fault in report.faults]}, {report.not_checked}"
        before = read_all(restored, where / "keys/alice.key")
        check_bodies(before)
        assert [message.seq for message in before if not message.erased]
        append_to(restored, LAST, key=where / KEY)
        erase_in(restored, before[-2].seq, key=where / KEY)
        after = read_all(restored, where / "keys/alice.key")
        assert [message.seq for message in after][:-1] == [message.seq for message in before]
        assert verify(str(restored), jobs=1, signer=buffer.first_key).ok


@pytest.mark.parametrize("trust", [Trust(), Trust(encrypted=True)], ids=str)
def test_copy_of_a_live_buffer_verifies_or_names_what_is_missing_and_takes_messages(
    trust: Trust, ram_path: Path, start: Start
) -> None:
    buffer = TrustedBuffer(ram_path / "live", trust, **SETTINGS)
    start(buffer)
    for number in range(3 * BACKUPS):
        copy = ram_path / f"copy {number}" / "orders"
        copy.parent.mkdir()
        subprocess.run(["cp", "-r", buffer.path, copy], stderr=subprocess.DEVNULL)  # files may go meanwhile
        wait_for_rounds(buffer, 4)
        before = read_all(copy, buffer.identity)
        check_bodies(before)
        report = verify(str(copy), jobs=1)
        if report.ok:
            numbers = [message.seq for message in before]
            assert report.messages == len(numbers)
        append_to(copy, LAST)
        after = read_all(copy, buffer.identity)
        check_bodies(after)
        assert after[-1].body == LAST
        assert {message.seq for message in before} <= {message.seq for message in after}
        assert not report.ok or verify(str(copy), jobs=1).ok
