"""Offsets of a stream, planned without Spark: who is where, who joins, and what is gone."""

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import hbuf
from hbuf.errors import HbufError, UsageError
from hbuf.ops.compress import compress
from hbuf.ops.retire import retire
from hbuf.spark.stream import Part, StreamReader, shared_fairly
from hbuf.store.directory import BufferDirectory
from hbuf.store.lock import Lock

from .reading import options_of

ALL = ReadAllAvailable()
Offsets = dict[str, int]


class Streaming:
    """What Spark does with a stream reader, step by step."""

    def __init__(self, *paths: Path, **options: str) -> None:
        self.reader = StreamReader(["buffer", "seq", "body"], options_of(*paths, **options))
        self.at: Offsets = {}

    def start(self) -> Offsets:
        self.at = self.reader.initialOffset()
        assert self.reader.initialOffset() == self.at
        return self.at

    def batch(self, most: int | None = None) -> list[tuple[str, int]]:
        """The rows of the next micro-batch."""
        end = self.reader.latestOffset(self.at, ALL if most is None else ReadMaxRows(most))
        rows = self.rows(self.at, end)
        self.at = end
        return rows

    def rows(self, start: Offsets, end: Offsets) -> list[tuple[str, int]]:
        worker = cloudpickle.loads(cloudpickle.dumps(self.reader))  # type: ignore[no-untyped-call]
        found = []
        for part in self.reader.partitions(start, end):
            assert isinstance(part, Part)
            for batch in worker.read(cloudpickle.loads(cloudpickle.dumps(part))):  # type: ignore[no-untyped-call]
                found += [(row["buffer"], row["seq"]) for row in batch.to_pylist()]
        return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make(tmp_path / "orders", 10)
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def make(path: Path, count: int, **settings: str) -> None:
    with hbuf.create(path, segment_messages="4", **settings) as buffer:
        buffer.append_many([b"%d" % n for n in range(count)])


def append(path: Path, count: int) -> None:
    with hbuf.open(path) as buffer:
        buffer.append_many([b"more"] * count)


def numbers(buffer: str, start: int, end: int) -> list[tuple[str, int]]:
    return [(buffer, seq) for seq in range(start, end)]


def test_from_the_first_message_and_on(root: Path) -> None:
    stream = Streaming(root)
    assert stream.start() == {"default/orders": 1}
    assert stream.batch() == numbers("orders", 1, 11)
    assert stream.at == {"default/orders": 11}
    assert stream.batch() == []
    append(root / "orders", 5)
    assert stream.batch() == numbers("orders", 11, 16)
    stream.reader.stop()


def test_where_a_stream_starts_is_decided_once(root: Path) -> None:
    stream = Streaming(root, from_="end")
    assert stream.start() == {"default/orders": 11}
    append(root / "orders", 5)
    assert stream.reader.initialOffset() == {"default/orders": 11}
    assert stream.batch() == numbers("orders", 11, 16)
    for place, first in (("-3", 13), ("7", 7), ("last", 15), ("first", 1)):
        other = Streaming(root, from_=place)
        assert other.start() == {"default/orders": first}
        other.reader.stop()
    stream.reader.stop()


def test_a_buffer_that_comes_later_joins_with_its_first_message(root: Path) -> None:
    stream = Streaming(root, from_="end")
    stream.start()
    make(root / "bills", 6)
    append(root / "orders", 1)
    assert stream.batch() == [*numbers("bills", 1, 7), ("orders", 11)]
    assert stream.at == {"default/orders": 12, "default/bills": 7}
    stream.reader.stop()


def test_an_empty_buffer_is_in_the_offsets_from_the_start(root: Path) -> None:
    make(root / "empty", 0)
    stream = Streaming(root)
    assert stream.start() == {"default/empty": 1, "default/orders": 1}
    assert stream.batch(3) == numbers("orders", 1, 4)
    append(root / "empty", 2)
    assert stream.batch() == [*numbers("empty", 1, 3), *numbers("orders", 4, 11)]
    stream.reader.stop()


def test_available_now_ends_where_it_was_when_it_started(root: Path) -> None:
    stream = Streaming(root, maxRowsPerTrigger="4")
    stream.start()
    stream.reader.prepareForTriggerAvailableNow()
    seen = []
    for _ in range(5):
        seen += stream.batch(4)
        append(root / "orders", 3)
        if not (root / "bills").exists():
            make(root / "bills", 3)  # it comes too late
    assert seen == numbers("orders", 1, 11)
    assert stream.at == {"default/orders": 11}
    stream.reader.stop()
    later = Streaming(root)
    later.at = stream.at
    later.reader.prepareForTriggerAvailableNow()
    assert later.batch() == [*numbers("bills", 1, 4), *numbers("orders", 11, 26)]
    later.reader.stop()


def test_the_limit_is_that_of_the_option(root: Path) -> None:
    assert StreamReader(["seq"], options_of(root)).getDefaultReadLimit() == ALL
    assert StreamReader(["seq"], options_of(root, maxRowsPerTrigger="7")).getDefaultReadLimit() == ReadMaxRows(7)


def test_a_stream_has_no_end(root: Path) -> None:
    with pytest.raises(UsageError, match="a stream has no end"):
        StreamReader(["seq"], options_of(root, to="5"))


def test_two_buffers_of_one_name_are_refused(root: Path) -> None:
    (root / "other").mkdir()
    make(root / "other" / "orders", 1)
    with pytest.raises(UsageError, match=r"hbuf: .* and .* are both called default/orders") as raised:
        Streaming(root / "orders", root / "other" / "orders").start()
    assert "read each in a stream of its own" in str(raised.value)


def test_the_same_buffer_by_two_links_is_one(root: Path) -> None:
    (root / "topic").mkdir()
    for name in ("a", "b"):
        (root / "topic" / name).symlink_to(root / "orders")
    stream = Streaming(root / "topic")
    assert stream.start() == {"default/orders": 1}
    assert len(stream.batch()) == 10
    stream.reader.stop()


def test_a_stream_over_segments_goes_on_in_those_that_come_later(root: Path) -> None:
    stream = Streaming(root / "orders/segments/*.http")
    stream.start()
    assert len(stream.batch()) == 10
    append(root / "orders", 20)
    assert stream.batch() == numbers("orders", 11, 31)
    assert compress(str(root / "orders"), timeout_seconds=20)
    append(root / "orders", 20)
    assert stream.batch() == numbers("orders", 31, 51)
    stream.reader.stop()


def test_compressed_and_erased_between_planning_and_reading(root: Path) -> None:
    stream = Streaming(root)
    stream.start()
    end = stream.reader.latestOffset(stream.at, ALL)
    parts = stream.reader.partitions(stream.at, end)
    assert compress(str(root / "orders"), timeout_seconds=20)
    hbuf.open(root / "orders").erase([3, 9], reason="test")
    rows = [row for part in parts for batch in stream.reader.read(part) for row in batch.to_pylist()]
    assert [row["seq"] for row in rows] == list(range(1, 11))
    assert [row["seq"] for row in rows if row["body"] is None] == [3, 9]
    stream.at = end
    assert stream.batch() == []  # what says that they were erased is no message
    append(root / "orders", 1)
    assert stream.batch() == [("orders", 13)]
    stream.reader.stop()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_retention_that_passed_the_start(tmp_path: Path, fails: str) -> None:
    make(tmp_path / "orders", 6, retention_messages="5")
    stream = Streaming(tmp_path, failOnDataLoss=fails)
    stream.start()
    assert stream.batch(2) == numbers("orders", 1, 3)
    append(tmp_path / "orders", 14)
    retire(str(tmp_path / "orders"), timeout_seconds=20)
    kept = BufferDirectory(tmp_path / "orders").segment_firsts()[0]
    assert kept > 3
    if fails == "true":
        with pytest.raises(HbufError, match=rf"hbuf: default/orders: messages 3 to {kept - 1} were retired") as raised:
            stream.batch()
        assert "failOnDataLoss=false goes on with what there is" in str(raised.value)
    else:
        assert stream.batch() == numbers("orders", kept, 21)
    stream.reader.stop()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_buffer_that_was_removed(root: Path, fails: str) -> None:
    make(root / "bills", 3)
    stream = Streaming(root, failOnDataLoss=fails)
    stream.start()
    assert len(stream.batch()) == 13
    shutil.rmtree(root / "bills")
    append(root / "orders", 2)
    if fails == "true":
        with pytest.raises(HbufError, match="hbuf: default/bills: is not there any more; its next message was 4"):
            stream.batch()
    else:
        assert stream.batch(1) == numbers("orders", 11, 12)
        assert stream.batch() == numbers("orders", 12, 13)
        assert stream.at == {"default/orders": 13, "default/bills": 4}
    stream.reader.stop()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_buffer_that_was_replaced_by_a_shorter_one(root: Path, fails: str) -> None:
    stream = Streaming(root, failOnDataLoss=fails)
    stream.start()
    assert len(stream.batch()) == 10
    shutil.rmtree(root / "orders")
    make(root / "orders", 3)
    if fails == "true":
        with pytest.raises(HbufError, match="hbuf: default/orders: ends before message 11, which was to be read next"):
            stream.batch()
    else:
        assert stream.batch() == []
        append(root / "orders", 2)
        assert stream.batch() == numbers("orders", 4, 6)
    stream.reader.stop()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_planned_batch_that_is_read_again_after_the_buffer_was_cut_back(root: Path, fails: str) -> None:
    shutil.copytree(root / "orders", root / "backup")
    append(root / "orders", 5)
    shutil.rmtree(root / "orders")
    (root / "backup").rename(root / "orders")
    stream = Streaming(root, failOnDataLoss=fails)
    if fails == "true":
        with pytest.raises(HbufError, match="hbuf: default/orders: messages 11 to 15 are not there any more"):
            stream.rows({"default/orders": 8}, {"default/orders": 16})
    else:
        assert stream.rows({"default/orders": 8}, {"default/orders": 16}) == numbers("orders", 8, 11)
    stream.reader.stop()


def test_a_planned_batch_is_read_again_the_same(root: Path) -> None:
    first = Streaming(root)
    first.start()
    end = first.reader.latestOffset(first.at, ReadMaxRows(6))
    append(root / "orders", 5)
    again = Streaming(root)
    assert again.rows(first.at, end) == first.rows(first.at, end) == numbers("orders", 1, 7)
    first.reader.stop()
    again.reader.stop()


def test_a_buffer_that_is_being_written_gives_what_was_seen_before(root: Path) -> None:
    stream = Streaming(root)
    stream.start()
    lock = Lock(BufferDirectory(root / "orders"))
    lock.acquire()
    try:
        assert len(stream.batch()) == 10
    finally:
        lock.close()
    stream.reader.stop()


def test_those_who_have_less_leave_the_rest_of_their_share() -> None:
    starts = {"a": 1, "b": 1, "c": 1}
    assert shared_fairly(starts, {"a": 3, "b": 101, "c": 101}, 30) == {"a": 3, "b": 15, "c": 15}
    assert shared_fairly(starts, {"a": 1, "b": 1, "c": 101}, 30) == {"a": 1, "b": 1, "c": 31}
    assert shared_fairly(starts, {"a": 2, "b": 2, "c": 2}, 30) == {"a": 2, "b": 2, "c": 2}
    assert shared_fairly({}, {}, 30) == {}


def test_everybodys_turn_comes_also_where_there_are_fewer_rows_than_buffers() -> None:
    """The first has a new message each time; it must not be the only one that is read."""
    at, ends = {"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 3, "c": 3}
    for _ in range(12):
        at = shared_fairly(at, ends, 1)
        ends["a"] += 1
    assert at["b"] == 3
    assert at["c"] == 3


@given(st.dictionaries(st.text(max_size=3), st.tuples(st.integers(1, 50), st.integers(0, 50))), st.integers(1, 200))
def test_shares(buffers: dict[str, tuple[int, int]], most: int) -> None:
    starts = {name: start for name, (start, _) in buffers.items()}
    ends = {name: start + count for name, (start, count) in buffers.items()}
    chosen = shared_fairly(starts, ends, most)
    assert chosen.keys() == ends.keys()
    got = {name: chosen[name] - starts[name] for name in chosen}
    assert all(0 <= got[name] <= ends[name] - starts[name] for name in got)
    assert sum(got.values()) == min(most, sum(count for _, count in buffers.values()))
    short = [got[name] for name in got if chosen[name] < ends[name]]
    assert not short or max(got.values()) - min(short) <= 1  # who could not have all has no less than others


def test_a_buffer_that_was_cut_back_takes_no_share() -> None:
    assert shared_fairly({"a": 10, "b": 1}, {"a": 4, "b": 100}, 20) == {"a": 4, "b": 21}
