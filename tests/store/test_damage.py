"""Damage to what is on disk for good: it is named, nothing is cut, and what lies behind it stays readable."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hbuf.errors import Damaged
from hbuf.ops.create import create
from hbuf.ops.report import Report
from hbuf.ops.set import set_settings
from hbuf.ops.tail import messages
from hbuf.ops.verify import verify
from hbuf.store.directory import BufferDirectory
from hbuf.store.reader import Reader

from .checking import FURTHER, Stored, append_to, check_verifies, read_all, stored_of

BODIES = [b"body %d" % n for n in range(6)]
# Messages 1 and 2 are in a sealed segment, 3 to 6 in the newest.
SEALED, NEWEST = 1, 3


class Whole:
    """A whole buffer of two segments, and where its records lie."""

    def __init__(self, path: Path) -> None:
        self.path = path
        create(str(path), {"segment_messages": "2", "hash": "sha256"})
        self.stored = append_to(path, *BODIES[:2])
        set_settings(str(path), {"segment_messages": "none"}, timeout_seconds=20)
        self.stored += append_to(path, *BODIES[2:])
        check_verifies(path, len(BODIES))

    def segment(self, first: int) -> Path:
        return self.path / "segments" / f"{first:020d}.http"

    def record(self, seq: int) -> tuple[Path, int, int]:
        """The segment, start and end of message `seq`."""
        segment = self.segment(SEALED if seq < NEWEST else NEWEST)
        data = segment.read_bytes()
        body = BODIES[seq - 1]
        return segment, data.rindex(b"POST ", 0, data.index(body)), data.index(body) + len(body) + 2

    def others(self, *damaged: int) -> list[Stored]:
        return [stored for stored in self.stored if stored.seq not in damaged]

    def verify(self) -> Report:
        return verify(str(self.path), jobs=1)


@pytest.fixture
def whole(ram_path: Path) -> Whole:
    return Whole(ram_path / "orders")


def change(file: Path, at: int, to: Callable[[int], int] = lambda byte: byte ^ 1) -> None:
    data = bytearray(file.read_bytes())
    data[at] = to(data[at]) % 256
    file.write_bytes(data)


# Where in a record one bit is flipped: behind this text, by so many bytes.
PARTS = {
    "request line": (rb"POST /b/", 0),
    "method": (rb"PO", 0),
    "number": (rb"x-hbuf-seq: ", 0),
    "time": (rb"x-hbuf-time: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.", 3),
    "length": (rb"content-length: ", 0),
    "name in the head": (rb"\r\nx-hbuf-ti", 0),
    "salt": (rb"x-hbuf-salt: ", 20),
    "id": (rb"x-hbuf-id: ", 20),
    "start of the id": (rb"x-hbuf-id: ", 1),
    "empty line": (rb"x-hbuf-id: [0-9a-f]{64}\r\n", 0),
    "body": (rb"\r\n\r\n", 2),
    "line behind the body": (rb"\r\n\r\nbody \d", 1),
}


@pytest.mark.parametrize("seq", range(1, 7))
@pytest.mark.parametrize("part", PARTS)
def test_one_flipped_bit_is_named_and_costs_no_other_message(whole: Whole, part: str, seq: int) -> None:
    segment, start, end = whole.record(seq)
    before, behind = PARTS[part]
    found = re.search(before, segment.read_bytes()[start:end])
    assert found
    change(segment, start + found.end() + behind)
    _check_damage(whole, segment, start, seq)


@pytest.mark.parametrize("seq", range(1, 7))
def test_message_overwritten_with_zeros_is_named_and_costs_no_other(whole: Whole, seq: int) -> None:
    segment, start, end = whole.record(seq)
    data = segment.read_bytes()
    segment.write_bytes(data[:start] + bytes(end - start) + data[end:])
    _check_damage(whole, segment, start, seq)


def test_damage_across_two_messages_costs_only_these(whole: Whole) -> None:
    segment, _, end = whole.record(4)
    data = segment.read_bytes()
    segment.write_bytes(data[: end - 20] + b"#" * 60 + data[end + 40 :])
    _check_damage(whole, segment, whole.record(3)[2], 4, 5)


@pytest.mark.parametrize("seq", [3, 4, 5])
def test_damage_with_records_behind_it_is_not_cut_when_the_index_is_missing(whole: Whole, seq: int) -> None:
    segment, start, _ = whole.record(seq)
    change(segment, start + 1)
    segment.with_suffix(".idx").unlink()
    _check_damage(whole, segment, start, seq)


def _check_damage(whole: Whole, segment: Path, start: int, *damaged: int) -> None:
    """The damage is named where it is; all others are there, before and after a further message; nothing is cut."""
    _check_named(whole, segment, start)
    others = whole.others(*damaged)
    assert _undamaged(whole, *damaged) == others
    content = segment.read_bytes()
    [further] = append_to(whole.path, FURTHER)
    assert further.seq > len(BODIES)
    assert segment.read_bytes().startswith(content), "something was cut or changed"
    assert _undamaged(whole, *damaged) == [*others, further]
    _check_named(whole, segment, start)
    last = append_to(whole.path, b"and another")
    assert stored_of(read_all(whole.path))[-1:] == last


def _undamaged(whole: Whole, *damaged: int) -> list[Stored]:
    """What a reader shows, without what it may still show of damaged messages."""
    found = stored_of(read_all(whole.path))
    numbers = [stored.seq for stored in found]
    assert numbers == sorted(set(numbers)), "a number is shown twice"
    bodies = [BODIES[seq - 1] for seq in damaged]
    return [stored for stored in found if stored.seq not in damaged and stored.body not in bodies]


def _check_named(whole: Whole, segment: Path, start: int) -> None:
    report = whole.verify()
    assert not report.ok
    assert any(fault.file == segment.name and fault.at == start for fault in report.faults), report.faults


def test_appending_goes_on_in_a_new_segment_behind_a_damaged_end(whole: Whole) -> None:
    segment, start, _ = whole.record(6)
    change(segment, start)
    content = segment.read_bytes()
    assert append_to(whole.path, FURTHER)[0].seq == 7
    assert segment.read_bytes() == content
    assert whole.segment(7).exists()


def test_every_changed_byte_of_segments_and_settings_is_noticed(ram_path: Path) -> None:
    path = ram_path / "orders"
    create(str(path), {"segment_messages": "2", "hash": "sha256"})
    append_to(path, b"one", b"two", b"three")
    check_verifies(path, 3)
    files = [*sorted(path.glob("segments/*.http")), path / "buffer.json"]
    assert len(files) == 3
    for file in files:
        data = bytearray(file.read_bytes())
        for at in range(len(data)):
            data[at] = (data[at] + 1) % 256
            file.write_bytes(data)
            assert not verify(str(path), jobs=1).ok, f"{file.name}: byte {at}"
            data[at] = (data[at] - 1) % 256
        file.write_bytes(data)
    check_verifies(path, 3)


def test_every_file_that_is_cut_short_is_noticed(ram_path: Path) -> None:
    path = ram_path / "orders"
    create(str(path), {"segment_messages": "2", "hash": "sha256"})
    append_to(path, b"one", b"two", b"three")
    files = [file for file in path.rglob("*.*") if file.is_file()]
    assert {file.suffix for file in files} == {".http", ".idx", ".tags", ".json"}
    for file in files:
        data = file.read_bytes()
        # Without its last byte, a newline, buffer.json says the same.
        for length in {0, 1, *range(7, len(data) - 1, 31), len(data) - 2}:
            file.write_bytes(data[:length])
            assert not verify(str(path), jobs=1).ok, f"{file.name} cut to {length} bytes"
        file.write_bytes(data)
    check_verifies(path, 3)


def test_lost_segment_is_noticed(whole: Whole) -> None:
    whole.segment(SEALED).unlink()
    assert not whole.verify().ok
    assert stored_of(read_all(whole.path)) == whole.stored[2:]


def test_damaged_settings_file_is_named_and_not_obeyed(whole: Whole) -> None:
    settings = whole.path / "buffer.json"
    content = settings.read_bytes()
    settings.write_bytes(content.replace(b'"segment_bytes": 6', b'"segment_bytes": 7'))
    assert settings.read_bytes() != content
    [fault] = whole.verify().faults
    assert (fault.kind, fault.file) == ("settings", "buffer.json")
    with pytest.raises(Damaged, match=r"buffer\.json"):
        append_to(whole.path, FURTHER)
    assert stored_of(read_all(whole.path)) == whole.stored
    settings.unlink()
    append_to(whole.path, FURTHER)
    assert settings.read_bytes() == content
    check_verifies(whole.path, 7)


def test_damaged_opening_of_the_newest_segment_is_named_and_messages_stay_readable(whole: Whole) -> None:
    change(whole.segment(NEWEST), 3)
    _check_named(whole, whole.segment(NEWEST), 0)
    assert stored_of(read_all(whole.path)) == whole.stored
    before = whole.segment(NEWEST).read_bytes()
    with pytest.raises(Damaged):
        append_to(whole.path, FURTHER)
    assert whole.segment(NEWEST).read_bytes() == before


def test_damaged_opening_of_a_sealed_segment_costs_nothing(whole: Whole) -> None:
    change(whole.segment(SEALED), 3)
    _check_damage(whole, whole.segment(SEALED), 0)


def test_reader_says_which_message_is_damaged(whole: Whole) -> None:
    segment, start, _ = whole.record(4)
    change(segment, start)
    with Reader(BufferDirectory(whole.path)) as reader:
        found = list(messages(reader, 1, reader.end_seq))
        assert list(reader.damage) == [(NEWEST, start)]
    assert stored_of(found) == whole.others(4)
