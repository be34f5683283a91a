"""Readers and verifiers while messages are erased: each message is whole or erased, and nothing is called damaged."""

import functools
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hbuf.format.message import Message
from hbuf.format.tags import Tags
from hbuf.ops.create import create
from hbuf.ops.filter import Filter
from hbuf.ops.tail import messages
from hbuf.ops.verify import verify
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.outgoing import Outgoing
from hbuf.store.patching import apply_patches
from hbuf.store.reader import Reader
from hbuf.store.view import View

from .checking import append_to, check_verifies, open_writer, read_all
from .dying import fork, kill_oneself
from .erase_scenarios import SECRETS, erase_in, store_secrets

DEADLINE_SECONDS = 30
MESSAGES = 600


def body_of(seq: int) -> bytes:
    return b"message %d " % seq * 200


@pytest.fixture
def path(ram_path: Path) -> Path:
    """A buffer with the messages of SECRETS, three a segment."""
    create(str(ram_path / "orders"), {"segment_messages": "3"})
    store_secrets(ram_path / "orders", SECRETS)
    return ram_path / "orders"


def all_of(reader: Reader, wanted: Filter | None = None) -> list[Message]:
    found = list(messages(reader, reader.first_seq, reader.end_seq, wanted or Filter()))
    assert reader.damage == {}
    return found


def test_reader_that_was_open_before_finds_the_message_erased(path: Path) -> None:
    with Reader(BufferDirectory(path)) as reader:
        assert not any(message.erased for message in all_of(reader))
        erase_in(path, 2, 6)
        assert [message.seq for message in all_of(reader) if message.erased] == [2, 6]
        assert all_of(reader, Filter(key=SECRETS[1].key)) == []
        assert [message.seq for message in all_of(reader, Filter(key=SECRETS[0].key))] == [1]
        entries = [entry for chunk in reader.chunks(1, 7) for entry in chunk.entries]
        assert [(entry.key_length, entry.tags_length) for entry in entries if entry.flags & 2] == [(0, 0)] * 2


def test_reader_that_has_an_older_tags_file_does_not_find_what_was_erased(path: Path) -> None:
    with Reader(BufferDirectory(path)) as reader:

        def older(tags: Tags) -> set[int]:
            erase_in(path, 2)
            return {2}

        chunks = list(reader.pieces(1, 4, View.chunk, older))
        assert [chunk.is_erased(0) for chunk in chunks] == [True]


def test_reader_waits_while_a_segment_is_being_erased(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader begins when nothing but the gone lines is written."""
    calls = 0
    readers: list[int] = []

    def slowly(directory: BufferDirectory, first: int, patches: list[tuple[int, bytes]]) -> None:
        nonlocal calls
        apply_patches(directory, first, patches)
        calls += 1
        if calls == 1:
            readers.append(start(functools.partial(read_once, path)))
            time.sleep(0.1)  # a reader that does not wait is done by now, and has found damage

    monkeypatch.setattr("hbuf.store.erasing.apply_patches", slowly)
    erase_in(path, 2)
    [reader] = readers
    assert os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1]) == 0
    assert [message.seq for message in read_all(path) if message.erased] == [2]


def read_once(path: Path) -> None:
    with Reader(BufferDirectory(path)) as reader:
        assert [message.seq for message in all_of(reader) if message.erased] == [2]


@pytest.mark.parametrize("call", range(4))
def test_what_a_dead_erase_left_half_done_is_read_as_erased_without_a_writer(path: Path, call: int) -> None:
    child = fork()
    if child == 0:
        _die_in_patches(path, call)
    os.waitpid(child, 0)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    found = read_all(path)
    assert [message.seq for message in found] == [1, 2, 3, 4, 5, 6]
    assert all(message.erased or message.body == SECRETS[message.seq - 1].body for message in found)
    assert not any(message.erased for message in found if message.seq not in (2, 3, 4))
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    append_to(path, b"one more")
    assert [message.seq for message in read_all(path) if message.erased] == [2, 3, 4]
    check_verifies(path, 7)


def _die_in_patches(path: Path, call: int) -> None:
    """Dies in the middle of a write over a segment: the one with number `call`."""
    write_all_at, calls = fsops.write_all_at, -1

    def dying(fd: int, data: bytes, offset: int) -> None:
        nonlocal calls
        if os.readlink(f"/proc/self/fd/{fd}").endswith(f"{1:020d}.http"):
            calls += 1
            if calls == call:
                write_all_at(fd, data[: len(data) // 2], offset)
                kill_oneself()
        write_all_at(fd, data, offset)

    try:
        fsops.write_all_at = dying
        erase_in(path, 2, 3, 4)
    finally:
        os._exit(70)


# Processes


def start(work: Callable[[], None]) -> int:
    child = fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(70)
    return child


Starts = Callable[[Callable[[], None]], int]


@pytest.fixture
def started() -> Iterator[Starts]:
    """Starts processes, all of which must end well."""
    children: list[int] = []

    def start_one(work: Callable[[], None]) -> int:
        children.append(start(work))
        return children[-1]

    yield start_one
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * len(children)


def check_message(message: Message) -> None:
    assert message.erased or message.body == body_of(int(message.body.split()[1]))


def read_until_done(path: Path) -> None:
    """With one reader that stays open, and one that is opened each time."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    with Reader(BufferDirectory(path)) as staying:
        while not (path / "done").exists():
            assert time.monotonic() < deadline
            staying.refresh()
            with Reader(BufferDirectory(path)) as fresh:
                for reader in (staying, fresh):
                    for message in all_of(reader):
                        check_message(message)


def verify_until_done(path: Path) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (path / "done").exists():
        assert time.monotonic() < deadline
        report = verify(str(path), jobs=1)
        assert report.ok, f"{[str(fault) for fault in report.faults]}, {report.not_checked}"


def append_until_done(path: Path) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    seq = MESSAGES
    with open_writer(path) as writer:
        while not (path / "done").exists():
            assert time.monotonic() < deadline
            seq += 1
            writer.append(Outgoing([body_of(seq)]))


def erase_some(path: Path, part: int) -> None:
    chance = random.Random(part)
    numbers = [seq for seq in range(1, MESSAGES + 1) if seq % 2 == part]
    chance.shuffle(numbers)
    while numbers:
        erase_in(path, *sorted(numbers.pop() for _ in range(min(len(numbers), chance.randint(1, 12)))))


def test_erased_while_others_read_verify_append_and_erase_nothing_is_called_damaged(
    ram_path: Path, started: Starts
) -> None:
    path = ram_path / "orders"
    create(str(path), {"segment_messages": "100"})
    append_to(path, *[body_of(seq) for seq in range(1, MESSAGES + 1)])
    for work in (read_until_done, verify_until_done, append_until_done):
        started(functools.partial(work, path))
    try:
        erasers = [start(functools.partial(erase_some, path, part)) for part in (0, 1)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(eraser, 0)[1]) for eraser in erasers]
    finally:
        (path / "done").touch()
    assert codes == [0, 0]
    found = read_all(path)
    assert [message.seq for message in found if message.erased] == list(range(1, MESSAGES + 1))
    for message in found:
        check_message(message)
    assert verify(str(path), jobs=1).ok
