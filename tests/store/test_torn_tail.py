"""What an append that was cut off leaves behind the durable length is set aside, byte for byte, and never believed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hbuf.ops.create import create
from hbuf.store.directory import BufferDirectory
from hbuf.store.writer import Writer

from .checking import Stored, append, append_to, check_survived, open_writer, read_all
from .scenarios import buffer_in, index_file, segment_file

LISTED = [b"listed %d" % n for n in range(3)]
TAIL = [b"one of the last two", b"the last, which is longer " + b"." * 120]
SECTOR_BYTES = 512


class Torn:
    """A buffer with three messages that are listed, and two behind them that no index knows of any more."""

    def __init__(self, where: Path, *, unit: bool = False) -> None:
        self.where = where
        self.path = buffer_in(where)
        create(str(self.path))
        self.listed = append_to(self.path, *LISTED)
        self.index = index_file(where).read_bytes()
        self.durable = segment_file(where).stat().st_size
        with open_writer(self.path) as writer:
            self.tail = append(writer, TAIL, unit=unit)
        self.segment = segment_file(where).read_bytes()
        self.ends = [self.segment.index(body) + len(body) + 2 for body in TAIL]
        assert self.ends[-1] == len(self.segment)

    def make(self, name: str, segment: bytes, *, index: bool = True) -> Path:
        """A copy with these bytes in its segment, and the index as it was before the last two (or none)."""
        where = self.where / name
        shutil.copytree(self.path, buffer_in(where))
        segment_file(where).write_bytes(segment)
        index_file(where).write_bytes(self.index)
        if not index:
            index_file(where).unlink()
        return where

    def check(self, where: Path, whole: list[Stored], set_aside: bytes) -> None:
        """Exactly the listed ones and `whole` survive; `set_aside` is in quarantine/."""
        check_survived(buffer_in(where), [*self.listed, *whole])
        quarantine = buffer_in(where) / "quarantine"
        kept = [file.read_bytes() for file in quarantine.iterdir()] if quarantine.exists() else []
        assert kept == ([set_aside] if set_aside else [])


@pytest.fixture
def torn(ram_path: Path) -> Torn:
    return Torn(ram_path)


@pytest.mark.parametrize("index", [True, False], ids=["index behind", "index missing"])
def test_tail_cut_at_every_byte_of_the_last_two_records_is_set_aside(torn: Torn, index: bool) -> None:
    for cut in range(torn.durable, len(torn.segment) + 1):
        where = torn.make("cut", torn.segment[:cut], index=index)
        whole = [stored for stored, end in zip(torn.tail, torn.ends, strict=True) if end <= cut]
        end = max([torn.durable, *(end for end in torn.ends if end <= cut)])
        torn.check(where, whole, torn.segment[end:cut])
        shutil.rmtree(where)


def _zeros(torn: Torn) -> bytes:
    return bytes(SECTOR_BYTES)


def _garbage(torn: Torn) -> bytes:
    return bytes((n * 167 + 13) % 256 for n in range(1000))


def _garbage_that_looks_like_records(torn: Torn) -> bytes:
    return b"POST /b/orders HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: 6\r\n" * 20


def _half_of_an_older_record(torn: Torn) -> bytes:
    record = torn.segment[torn.durable : torn.ends[0]]
    return record[: len(record) // 2]


def _other_half_of_an_older_record(torn: Torn) -> bytes:
    record = torn.segment[torn.durable : torn.ends[0]]
    return record[len(record) // 2 :]


def _a_whole_older_record(torn: Torn) -> bytes:
    return torn.segment[torn.durable : torn.ends[0]]


LEFTOVERS = [
    _zeros,
    _garbage,
    _garbage_that_looks_like_records,
    _half_of_an_older_record,
    _other_half_of_an_older_record,
]


@pytest.mark.parametrize("index", [True, False], ids=["index behind", "index missing"])
@pytest.mark.parametrize("leftover", LEFTOVERS, ids=lambda leftover: leftover.__name__.strip("_"))
def test_bytes_behind_the_last_record_are_set_aside(torn: Torn, leftover: Callable[[Torn], bytes], index: bool) -> None:
    left = leftover(torn)
    torn.check(torn.make("all", torn.segment + left, index=index), torn.tail, left)
    one = torn.segment[: torn.ends[0]]
    torn.check(torn.make("one", one + left, index=index), torn.tail[:1], left)


def test_whole_older_record_behind_the_last_is_set_aside(torn: Torn) -> None:
    left = _a_whole_older_record(torn)
    torn.check(torn.make("all", torn.segment + left), torn.tail, left)


def test_sector_of_zeros_before_the_end_sets_aside_all_that_follows(torn: Torn) -> None:
    start = torn.ends[0] - SECTOR_BYTES // 2
    holed = torn.segment[:start] + bytes(SECTOR_BYTES) + torn.segment[start + SECTOR_BYTES :]
    torn.check(torn.make("holed", holed[: len(torn.segment)]), [], holed[torn.durable : len(torn.segment)])


@pytest.mark.parametrize("index", [True, False], ids=["index behind", "index missing"])
def test_record_that_is_whole_but_for_its_bodys_bytes_is_set_aside(torn: Torn, index: bool) -> None:
    """A page of a body that is not on disk reads as zeros: the record is framed well, and its id does not match."""
    body = TAIL[-1]
    zeroed = torn.segment[: -len(body) - 2] + bytes(len(body)) + torn.segment[-2:]
    torn.check(torn.make("zeroed", zeroed, index=index), torn.tail[:1], zeroed[torn.ends[0] :])


def test_what_is_set_aside_twice_at_one_place_is_kept_twice(torn: Torn) -> None:
    where = torn.make("twice", torn.segment[: torn.durable] + b"first")
    with open_writer(buffer_in(where)) as writer, writer.locked():
        pass
    with segment_file(where).open("ab") as file:
        file.write(b"second")
    with open_writer(buffer_in(where)) as writer, writer.locked():
        pass
    assert sorted(file.read_bytes() for file in (buffer_in(where) / "quarantine").iterdir()) == [b"first", b"second"]
    check_survived(buffer_in(where), torn.listed)


@pytest.mark.parametrize("index", [True, False], ids=["index behind", "index missing"])
def test_incomplete_unit_is_set_aside_whole(ram_path: Path, index: bool) -> None:
    torn = Torn(ram_path, unit=True)
    for cut in range(torn.durable, len(torn.segment), 7):
        where = torn.make("cut", torn.segment[:cut], index=index)
        torn.check(where, [], torn.segment[torn.durable : cut])
        shutil.rmtree(where)
    cut = torn.ends[0]  # just behind the first record of the unit, which is whole by itself
    torn.check(torn.make("first", torn.segment[:cut], index=index), [], torn.segment[torn.durable : cut])
    torn.check(torn.make("whole", torn.segment, index=index), torn.tail, b"")


def test_reader_shows_no_part_of_an_incomplete_unit(ram_path: Path) -> None:
    torn = Torn(ram_path, unit=True)
    where = torn.make("cut", torn.segment[: torn.ends[0]])
    assert [message.body for message in read_all(buffer_in(where))] == LISTED


def test_opening_says_what_it_set_aside(torn: Torn) -> None:
    where = torn.make("noted", torn.segment + b"left over")
    said: list[str] = []
    with Writer(BufferDirectory(buffer_in(where)), notice=said.append) as writer, writer.locked():
        pass
    assert len(said) == 1
    assert "9 bytes" in said[0]
    assert "quarantine/" in said[0]
