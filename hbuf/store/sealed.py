"""The little that has to be known of old segments before they go: their opening, their last message, their times.

Found through the index where that is right, so that nothing grows with the buffer; else by reading the segment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from hbuf.format import index
from hbuf.format.deletes import Retirement, parse_delete
from hbuf.format.scan import Record
from hbuf.format.times import parse_time
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import IndexFile, opened_index
from hbuf.store.segment import record_at, windows
from hbuf.store.segment_file import SegmentFile, opened_segment
from hbuf.store.tail import Opening, read_opening


class Last(NamedTuple):
    """The last message of a segment that can be read."""

    id: bytes
    time_us: int


def opening_of(directory: BufferDirectory, first: int) -> Opening:
    with opened_segment(directory, first) as segment:
        return read_opening(segment, directory.segment_shown(first))


def puts_of(directory: BufferDirectory, first: int) -> bytes:
    """The full PUTs that a segment begins with, as they are stored."""
    with opened_segment(directory, first) as segment:
        return segment.pread(read_opening(segment, directory.segment_shown(first)).length, 0)


def last_of(directory: BufferDirectory, first: int) -> Last | None:
    with opened_segment(directory, first) as segment, _right_index(directory, first, segment) as listed:
        record = (
            _last_record(segment, first, listed)
            if listed
            else max(_numbered(segment, first), key=_number, default=None)
        )
        return Last(record.id, parse_time(record.time.decode())) if record else None


class _ListedTimes(Sequence[int]):
    """Times by the index, read one by one."""

    def __init__(self, listed: IndexFile) -> None:
        self._listed = listed

    def __len__(self) -> int:
        return self._listed.count

    @overload
    def __getitem__(self, i: int) -> int: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[int]: ...
    def __getitem__(self, i: int | slice) -> int | Sequence[int]:
        if isinstance(i, slice):
            return [self[each] for each in range(*i.indices(len(self)))]
        return self._listed.entry(i if i >= 0 else i + len(self)).time_us


@contextlib.contextmanager
def times_of(directory: BufferDirectory, first: int) -> Iterator[Sequence[int]]:
    """The times of all messages of a segment, in microseconds."""
    with opened_segment(directory, first) as segment, _right_index(directory, first, segment) as listed:
        if listed is not None:
            yield _ListedTimes(listed)
        else:
            yield [parse_time(record.time.decode()) for record in _numbered(segment, first)]


def count_messages(directory: BufferDirectory, first: int) -> int:
    """How many messages a segment has, without the records that say what was erased or retired."""
    with opened_segment(directory, first) as segment, _right_index(directory, first, segment) as listed:
        if listed is not None:
            return index.delete_flags(listed.entries()).count(0)
        return sum(record.method != b"DELETE" for record in _numbered(segment, first))


def newest_retirement(directory: BufferDirectory, firsts: Sequence[int]) -> Retirement | None:
    """The last one in the log: it covers all that were before it."""
    for first in reversed(firsts):
        with opened_segment(directory, first) as segment, _right_index(directory, first, segment) as listed:
            if listed is not None:
                deletes = _deletes_backwards(segment, first, listed)
            else:
                deletes = reversed([record for record in _numbered(segment, first) if record.method == b"DELETE"])
            for record in deletes:
                what = parse_delete(record.own)
                if isinstance(what, Retirement):
                    return what
    return None


def _deletes_backwards(segment: SegmentFile, first: int, listed: IndexFile) -> Iterator[Record]:
    flags = index.delete_flags(listed.entries())
    at = flags.rfind(1)
    while at >= 0:
        record = record_at(segment, listed.entry(at), first + at)
        if record is not None and record.method == b"DELETE":
            yield record
        at = flags.rfind(1, 0, at)


@contextlib.contextmanager
def _right_index(directory: BufferDirectory, first: int, segment: SegmentFile) -> Iterator[IndexFile | None]:
    """The index, where it lists a message, reaches to the end of the segment, and its last entry is right."""
    with opened_index(directory.index(first), first) as listed:
        if listed is not None and listed.count and listed.header.durable_length == segment.length:
            yield listed if not listed.has_holes() and _last_record(segment, first, listed) else None
        else:
            yield None


def _last_record(segment: SegmentFile, first: int, listed: IndexFile) -> Record | None:
    return record_at(segment, listed.entry(listed.count - 1), first + listed.count - 1)


def _numbered(segment: SegmentFile, first: int) -> Iterator[Record]:
    for window in windows(segment, 0, segment.length, first - 1):
        yield from (record for record in window.records if record.seq >= first)


def _number(record: Record) -> int:
    return record.seq
