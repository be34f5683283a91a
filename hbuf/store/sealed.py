"""The little that has to be known of old segments before they go: their opening, their last message, their times.

Found through the index where that is right, so that nothing grows with the buffer; else by reading the segment.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from hbuf.format import index
from hbuf.format.deletes import Retirement, parse_delete
from hbuf.format.scan import Record
from hbuf.format.times import parse_time
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import IndexFile, opened_index, pread_all
from hbuf.store.segment import record_at, windows
from hbuf.store.tail import Opening, read_opening


class Last(NamedTuple):
    """The last message of a segment that can be read."""

    id: bytes
    time_us: int


@contextlib.contextmanager
def opened(directory: BufferDirectory, first: int) -> Iterator[int]:
    fd = os.open(directory.segment(first), os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def opening_of(directory: BufferDirectory, first: int) -> Opening:
    with opened(directory, first) as fd:
        return read_opening(fd, directory.segment_shown(first))


def puts_of(directory: BufferDirectory, first: int) -> bytes:
    """The full PUTs that a segment begins with, as they are stored."""
    with opened(directory, first) as fd:
        return pread_all(fd, read_opening(fd, directory.segment_shown(first)).length, 0)


def last_of(directory: BufferDirectory, first: int) -> Last | None:
    with opened(directory, first) as fd, _right_index(directory, first, fd) as listed:
        record = _last_record(fd, first, listed) if listed else max(_numbered(fd, first), key=_number, default=None)
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
    with opened(directory, first) as fd, _right_index(directory, first, fd) as listed:
        if listed is not None:
            yield _ListedTimes(listed)
        else:
            yield [parse_time(record.time.decode()) for record in _numbered(fd, first)]


def count_messages(directory: BufferDirectory, first: int) -> int:
    """How many messages a segment has, without the records that say what was erased or retired."""
    with opened(directory, first) as fd, _right_index(directory, first, fd) as listed:
        if listed is not None:
            return index.delete_flags(listed.entries()).count(0)
        return sum(record.method != b"DELETE" for record in _numbered(fd, first))


def newest_retirement(directory: BufferDirectory, firsts: Sequence[int]) -> Retirement | None:
    """The last one in the log: it covers all that were before it."""
    for first in reversed(firsts):
        with opened(directory, first) as fd, _right_index(directory, first, fd) as listed:
            if listed is not None:
                deletes = _deletes_backwards(fd, first, listed)
            else:
                deletes = reversed([record for record in _numbered(fd, first) if record.method == b"DELETE"])
            for record in deletes:
                what = parse_delete(record.own)
                if isinstance(what, Retirement):
                    return what
    return None


def _deletes_backwards(fd: int, first: int, listed: IndexFile) -> Iterator[Record]:
    flags = index.delete_flags(listed.entries())
    at = flags.rfind(1)
    while at >= 0:
        record = record_at(fd, listed.entry(at), first + at)
        if record is not None and record.method == b"DELETE":
            yield record
        at = flags.rfind(1, 0, at)


@contextlib.contextmanager
def _right_index(directory: BufferDirectory, first: int, fd: int) -> Iterator[IndexFile | None]:
    """The index, where it lists a message, reaches to the end of the segment, and its last entry is right."""
    with opened_index(directory.index(first), first) as listed:
        if listed is not None and listed.count and listed.header.durable_length == os.fstat(fd).st_size:
            yield listed if not listed.has_holes() and _last_record(fd, first, listed) else None
        else:
            yield None


def _last_record(fd: int, first: int, listed: IndexFile) -> Record | None:
    return record_at(fd, listed.entry(listed.count - 1), first + listed.count - 1)


def _numbered(fd: int, first: int) -> Iterator[Record]:
    for window in windows(fd, 0, os.fstat(fd).st_size, first - 1):
        yield from (record for record in window.records if record.seq >= first)


def _number(record: Record) -> int:
    return record.seq
