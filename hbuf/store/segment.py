"""Reading one segment's files: its bytes in windows, its index, and the entries that a scan finds without one.

An index is never believed without a look: entries must join, and the record at an entry must say the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hbuf.errors import Damaged
from hbuf.format import index
from hbuf.format.scan import Record, Unreadable, can_follow, entry_of, parse_record, record_starts, scan
from hbuf.format.times import parse_time

WINDOW_BYTES = 4 * 1024 * 1024


class Index(NamedTuple):
    """An index file that hangs together: its header, and the entries below its durable length."""

    header: index.Header
    entries: bytes

    @property
    def listed(self) -> int:
        return len(self.entries) // index.ENTRY_BYTES

    def entry(self, i: int) -> index.Entry:
        return index.Entry._make(index.ENTRY.unpack_from(self.entries, i * index.ENTRY_BYTES))


class Damage(NamedTuple):
    """Bytes of a segment that are no record: where, and why."""

    at: int
    end: int
    reason: str


class Window(NamedTuple):
    """Whole records, and the bytes that they lie in; or a place where there are none."""

    base: int  # of `data` in the segment
    data: bytes
    records: list[Record]
    damage: Damage | None


def read_index_header(path: Path) -> index.Header | None:
    """None for an index that is missing, short, or of another kind."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return index.parse_header(os.pread(fd, index.HEADER_BYTES, 0))
    except Damaged:
        return None
    finally:
        os.close(fd)


def read_index(path: Path, first: int) -> Index | None:
    """None for an index that is missing or wrong in a way that shows without reading the segment."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        header = index.parse_header(data)
    except Damaged:
        return None
    if header.first != first:
        return None
    size = index.ENTRY_BYTES
    # Entries behind the durable length belong to a batch that is being written, or was not finished.
    low, high = 0, (len(data) - index.HEADER_BYTES) // size
    while low < high:
        middle = (low + high) // 2
        entry = index.Entry._make(index.ENTRY.unpack_from(data, index.HEADER_BYTES + middle * size))
        if entry.end <= header.durable_length:
            low = middle + 1
        else:
            high = middle
    found = Index(header, data[index.HEADER_BYTES : index.HEADER_BYTES + low * size])
    if low and found.entry(low - 1).end != header.durable_length:
        return None
    return found


def pread_all(fd: int, length: int, offset: int) -> bytes:
    """`length` bytes at `offset`, or fewer where the file ends."""
    data = os.pread(fd, length, offset)
    if len(data) == length:
        return data
    parts = [data]
    got = len(data)
    while data and got < length:
        data = os.pread(fd, length - got, offset + got)
        parts.append(data)
        got += len(data)
    return b"".join(parts)


def windows(fd: int, start: int, end: int, after: int) -> Iterator[Window]:
    """Every record from `start` to `end` of a segment, in windows; past damage it goes on with the next record.

    `after` is the number that the first record follows: no number is believed that could not be there.
    """
    at = start
    data = b""
    base = start
    size = WINDOW_BYTES
    while at < end:
        base, data = at, pread_all(fd, min(size, end - at), at)
        if not data:
            yield Window(at, b"", [], Damage(at, end, "the file ends here"))
            return
        found = scan(data)
        if found.records:
            after = max([after, *(record.seq for record in found.records[-2:])])
            yield Window(base, data, found.records, None)
            at = base + found.end
            size = WINDOW_BYTES
        unreadable = found.unreadable
        if unreadable is None or found.records:
            continue
        if unreadable.needed and base + len(data) < end:
            size = max(size * 2, unreadable.needed)
            continue
        following = _find_behind(fd, at + 1, end, after)
        yield Window(base, b"", [], Damage(at, following, unreadable.reason))
        at = following
        size = WINDOW_BYTES


def _find_behind(fd: int, start: int, end: int, after: int) -> int:
    """Where the next record begins behind damage that ends no earlier than `start`, or `end`."""
    at = start
    while at < end:
        data = pread_all(fd, min(WINDOW_BYTES, end - at), at)
        for candidate in record_starts(data):
            record = parse_record(data, candidate)
            if isinstance(record, Unreadable) and record.needed:
                whole = pread_all(fd, min(record.needed, end - at - candidate), at + candidate)
                record = parse_record(whole, 0)
            if isinstance(record, Record) and can_follow(record, after, at + candidate - start):
                return at + candidate
        if at + len(data) >= end or not data:
            return end
        # The next start may lie across the edge of this window.
        at += max(1, len(data) - 256)
    return end


class EntryBuilder:
    """Index entries of records as they come, from scans. Knows where the last numbered record ended."""

    def __init__(self, end: int = 0) -> None:
        self.end = end
        self._time = b""
        self._time_us = 0

    def entries_of(self, window: Window) -> list[index.Entry]:
        entries = []
        for record in window.records:
            if record.seq:
                if record.time != self._time:
                    self._time, self._time_us = record.time, parse_time(record.time.decode())
                gap = window.base + record.start != self.end
                entries.append(entry_of(window.data, record, window.base, self._time_us, gap=gap))
                self.end = window.base + record.end
        return entries


def record_at(fd: int, entry: index.Entry, seq: int) -> Record | None:
    """The record that an entry points to, where it is there and says the same; positions count from its start."""
    data = pread_all(fd, entry.end - entry.offset, entry.offset)
    record = parse_record(data, 0)
    if isinstance(record, Unreadable) or not says_the_same(record, entry, seq):
        return None
    return record


def says_the_same(record: Record, entry: index.Entry, seq: int) -> bool:
    return (
        record.seq == seq
        and record.end - record.start == entry.end - entry.offset
        and int(record.id[:8], 16) == entry.id_start
    )
