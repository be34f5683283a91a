"""Indexes, tags files and the producers file are never evidence: wrong or missing, they cost no message."""

import shutil
from pathlib import Path

import pytest

import hbuf
from hbuf.cli.tail import app as tail
from hbuf.format.places import Place
from hbuf.ops.create import create
from hbuf.ops.reindex import reindex
from hbuf.ops.verify import verify
from hbuf.store.directory import BufferDirectory
from hbuf.store.reader import Reader

from .checking import FURTHER, Stored, append_to, check_survived, check_verifies, open_writer, read_all, stored_of

# Messages 1 to 3 are in a sealed segment, 4 to 6 in the newest.
COUNT = 6
SEALED, NEWEST = 1, 4


class Indexed:
    """A buffer of two segments whose messages have keys, tags and producers."""

    def __init__(self, path: Path, capture: pytest.CaptureFixture[bytes]) -> None:
        self.path = path
        self.capture = capture
        hbuf.create(path, segment_messages="3")
        drafts = [
            hbuf.draft(b"body %d" % n, key=f"key-{n % 2}", tags=[f"tag-{n % 3}"], producer="sensor", producer_seq=n)
            for n in range(1, COUNT + 1)
        ]
        with hbuf.open(path) as buffer:
            self.stored = [Stored(r.seq, r.id, d.body) for d in drafts for r in buffer.append_many([d])]
        reindex(str(path), timeout_seconds=20)  # makes the producers file
        check_verifies(path, COUNT)

    def index(self, first: int) -> Path:
        return self.path / "segments" / f"{first:020d}.idx"

    def copy(self, name: str) -> Path:
        return Path(shutil.copytree(self.path, self.path.with_name(name)))

    def check_readers(self, path: Path) -> None:
        """Every way of reading shows what there is."""
        assert stored_of(read_all(path)) == self.stored
        self.capture.readouterr()
        tail(["-o", "first", str(path)], prog_name="hbuf-tail", standalone_mode=False)
        assert self.capture.readouterr().out == b"".join(stored.body + b"\n" for stored in self.stored)
        assert [message.seq for message in hbuf.open(path).read(key="key-1")] == [1, 3, 5]
        assert [message.seq for message in hbuf.open(path).read(tag="tag-0")] == [3, 6]
        for seq in (1, 3, 4, 6):
            assert [message.seq for message in hbuf.open(path).read(str(seq), count=1)] == [seq]


@pytest.fixture
def indexed(ram_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Indexed:
    return Indexed(ram_path / "orders", capfdbinary)


@pytest.mark.parametrize("first", [SEALED, NEWEST], ids=["sealed", "newest"])
def test_any_changed_time_leads_to_the_right_message(indexed: Indexed, first: int) -> None:
    """Times are searched in the index; what it says is looked up in the records."""
    times = {message.seq: message.time_us for message in read_all(indexed.path)}
    assert len(set(times.values())) == COUNT
    data = bytearray(indexed.index(first).read_bytes())
    for entry in range(3):
        for at in range(64 + 32 * entry, 64 + 32 * entry + 8):
            data[at] ^= 128
            indexed.index(first).write_bytes(data)
            data[at] ^= 128
            for seq, time_us in times.items():
                with Reader(BufferDirectory(indexed.path)) as reader:
                    assert reader.resolve(Place("time", time_us=time_us)) == seq, f"byte {at}"


@pytest.mark.parametrize(("suffix", "first"), [(".idx", SEALED), (".idx", NEWEST), (".tags", SEALED)])
def test_any_changed_byte_leaves_readers_right(indexed: Indexed, suffix: str, first: int) -> None:
    file = indexed.index(first).with_suffix(suffix)
    data = bytearray(file.read_bytes())
    wrong = []
    for at in range(len(data)):
        data[at] ^= 1 << at % 8
        file.write_bytes(data)
        try:
            indexed.check_readers(indexed.path)
        except AssertionError as error:
            wrong.append(f"byte {at}: {error}")
        data[at] ^= 1 << at % 8
    file.write_bytes(data)
    indexed.check_readers(indexed.path)
    assert not wrong, f"{len(wrong)} changes made readers wrong: {wrong[0]}"


@pytest.mark.parametrize(("suffix", "first"), [(".idx", SEALED), (".idx", NEWEST), (".tags", SEALED)])
def test_reindexing_puts_any_changed_byte_right(indexed: Indexed, suffix: str, first: int) -> None:
    file = indexed.index(first).with_suffix(suffix)
    data = bytearray(file.read_bytes())
    for at in range(0, len(data), 5):
        data[at] ^= 1
        file.write_bytes(data)
        path = indexed.copy("changed")
        reindex(str(path), timeout_seconds=20)
        indexed.check_readers(path)
        check_verifies(path, COUNT)
        shutil.rmtree(path)
        data[at] ^= 1


@pytest.mark.parametrize("first", [SEALED, NEWEST], ids=["sealed", "newest"])
def test_changed_entry_is_named_and_appending_goes_on(indexed: Indexed, first: int) -> None:
    file = indexed.index(first)
    data = bytearray(file.read_bytes())
    for at in range(64, len(data)):
        data[at] ^= 1
        file.write_bytes(data)
        report = verify(str(indexed.path), jobs=1)
        assert [fault.kind for fault in report.faults] == ["index"], f"byte {at}"
        path = indexed.copy("changed")
        check_survived(path, indexed.stored, may_fail=True)
        reindex(str(path), timeout_seconds=20)
        check_verifies(path, COUNT + 1)
        shutil.rmtree(path)
        data[at] ^= 1


@pytest.mark.parametrize("length", [0, 10, 63, 64, 65, 96, 127, 159])
@pytest.mark.parametrize("first", [SEALED, NEWEST], ids=["sealed", "newest"])
def test_index_that_is_too_short_costs_nothing(indexed: Indexed, first: int, length: int) -> None:
    indexed.index(first).write_bytes(indexed.index(first).read_bytes()[:length])
    assert not verify(str(indexed.path), jobs=1).ok
    indexed.check_readers(indexed.path)
    check_survived(indexed.path, indexed.stored, may_fail=True)
    reindex(str(indexed.path), timeout_seconds=20)
    check_verifies(indexed.path, COUNT + 1)


@pytest.mark.parametrize("first", [SEALED, NEWEST], ids=["sealed", "newest"])
def test_missing_index_costs_nothing(indexed: Indexed, first: int) -> None:
    indexed.index(first).unlink()
    indexed.check_readers(indexed.path)
    check_survived(indexed.path, indexed.stored)
    reindex(str(indexed.path), timeout_seconds=20)
    assert indexed.index(first).exists()
    check_verifies(indexed.path, COUNT + 1)


def test_missing_indexes_tags_and_producers_cost_nothing(indexed: Indexed) -> None:
    for file in indexed.path.rglob("*"):
        if file.suffix in (".idx", ".tags") or file.name == "producers":
            file.unlink()
    indexed.check_readers(indexed.path)
    check_survived(indexed.path, indexed.stored)
    reindex(str(indexed.path), timeout_seconds=20)
    check_verifies(indexed.path, COUNT + 1)


@pytest.mark.parametrize("listed", [0, 1, 2])
@pytest.mark.parametrize("first", [SEALED, NEWEST], ids=["sealed", "newest"])
def test_index_that_is_behind_costs_nothing(ram_path: Path, first: int, listed: int) -> None:
    """As a power cut leaves it: the index of an earlier time, the segment of now."""
    path = ram_path / "behind"
    create(str(path))
    index = path / "segments" / f"{first:020d}.idx"
    stored: list[Stored] = []
    earlier = b""
    for seq in range(1, COUNT + 1):
        if seq == NEWEST:
            with open_writer(path) as writer:
                writer.roll()
        if seq == first + listed:
            earlier = index.read_bytes()
        stored += append_to(path, b"body %d" % seq)
    assert index.read_bytes() != earlier
    index.write_bytes(earlier)
    check_survived(path, stored)


def test_index_that_is_ahead_of_the_newest_segment_is_named_and_no_number_is_given_twice(indexed: Indexed) -> None:
    """Acknowledged messages were lost from the end of the segment. Only the index can tell."""
    segment = indexed.index(NEWEST).with_suffix(".http")
    data = segment.read_bytes()
    segment.write_bytes(data[: data.rindex(b"POST ")])
    assert not verify(str(indexed.path), jobs=1).ok
    assert stored_of(read_all(indexed.path)) == indexed.stored[:-1]
    [further] = append_to(indexed.path, FURTHER)
    assert further.seq == COUNT + 1
    assert not verify(str(indexed.path), jobs=1).ok
    assert stored_of(read_all(indexed.path)) == [*indexed.stored[:-1], further]


def test_index_that_was_ahead_is_kept_when_it_is_made_anew(indexed: Indexed) -> None:
    segment = indexed.index(NEWEST).with_suffix(".http")
    data = segment.read_bytes()
    segment.write_bytes(data[: data.rindex(b"POST ")])
    ahead = indexed.index(NEWEST).read_bytes()
    reindex(str(indexed.path), timeout_seconds=20)
    assert ahead in [file.read_bytes() for file in (indexed.path / "quarantine").iterdir()]
    check_survived(indexed.path, indexed.stored[:-1], may_fail=True)


def test_index_of_another_segment_is_not_believed(indexed: Indexed) -> None:
    shutil.copy(indexed.index(SEALED), indexed.index(NEWEST))
    assert not verify(str(indexed.path), jobs=1).ok
    indexed.check_readers(indexed.path)
    check_survived(indexed.path, indexed.stored)


def test_any_changed_byte_of_the_producers_file_lets_no_duplicate_in_and_keeps_no_message_out(indexed: Indexed) -> None:
    file = indexed.path / "producers"
    data = bytearray(file.read_bytes())
    for at in range(len(data)):
        data[at] ^= 1
        file.write_bytes(data)
        path = indexed.copy("changed")
        with hbuf.open(path) as buffer:
            again = buffer.append(b"again", producer="sensor", producer_seq=COUNT)
            assert (again.duplicate, again.seq) == (True, COUNT), f"byte {at}"
            fresh = buffer.append(b"fresh", producer="sensor", producer_seq=COUNT + 1)
            assert (fresh.duplicate, fresh.seq) == (False, COUNT + 1), f"byte {at}"
        check_verifies(path, COUNT + 1)
        shutil.rmtree(path)
        data[at] ^= 1


def test_segment_of_which_no_number_is_left_is_not_written_over(ram_path: Path) -> None:
    """Its index knows of more, and cannot say of how much."""
    path = ram_path / "orders"
    create(str(path))
    append_to(path, b"the only one")
    segment, index_file = next(path.glob("segments/*.http")), next(path.glob("segments/*.idx"))
    content = segment.read_bytes()
    segment.write_bytes(content[: content.index(b"POST ") + 10])
    index_file.write_bytes(index_file.read_bytes()[:64])
    left = segment.read_bytes()
    [further] = append_to(path, b"further")
    assert further.seq == 2
    assert segment.read_bytes() == left
    assert [stored.body for stored in stored_of(read_all(path))] == [b"further"]
