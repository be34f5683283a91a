"""Reading one segment's bytes: records in windows, past damage too.

An index is never believed without a look: the record at an entry must say the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hbuf.format import index
from hbuf.format.scan import Record, Unreadable, can_follow, parse_record, record_starts, scan
from hbuf.store.segment_file import SegmentFile

WINDOW_BYTES = 1024 * 1024


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


def windows(segment: SegmentFile, start: int, end: int, after: int) -> Iterator[Window]:
    """Every record from `start` to `end` of a segment, in windows; past damage it goes on with the next record.

    `after` is the number that the first record follows: no number is believed that could not be there.
    """
    at = start
    data = b""
    base = start
    size = WINDOW_BYTES
    while at < end:
        wanted = min(size, end - at)
        base, data = at, segment.pread(wanted, at)
        hole = segment.hole(at + len(data)) if len(data) < wanted else None
        if not data and hole is None:
            yield Window(at, b"", [], Damage(at, end, "the file ends here"))
            return
        found = scan(data)
        if found.records:
            after = max([after, *(record.seq for record in found.records[-2:])])
            yield Window(base, data, found.records, None)
            at = base + found.end
            size = WINDOW_BYTES
            continue
        unreadable = found.unreadable or Unreadable(0, "nothing can be read", 1)
        if unreadable.needed and len(data) == wanted < end - at:
            size = max(size * 2, unreadable.needed)
            continue
        reason = hole.reason if hole is not None and unreadable.needed else unreadable.reason
        following = _find_behind(segment, at + 1, end, after)
        yield Window(base, b"", [], Damage(at, following, reason))
        at = following
        size = WINDOW_BYTES


def _find_behind(segment: SegmentFile, start: int, end: int, after: int) -> int:
    """Where the next record begins behind damage that ends no earlier than `start`, or `end`."""
    at = start
    while at < end:
        wanted = min(WINDOW_BYTES, end - at)
        data = segment.pread(wanted, at)
        for candidate in record_starts(data):
            record = parse_record(data, candidate)
            if isinstance(record, Unreadable) and record.needed:
                whole = segment.pread(min(record.needed, end - at - candidate), at + candidate)
                record = parse_record(whole, 0)
            if isinstance(record, Record) and can_follow(record, after, at + candidate - start):
                return at + candidate
        if len(data) < wanted:
            hole = segment.hole(at + len(data))
            if hole is None:
                return end
            at = hole.end
            continue
        if at + len(data) >= end:
            return end
        # The next start may lie across the edge of this window.
        at += max(1, len(data) - 256)
    return end


def record_at(segment: SegmentFile, entry: index.Entry, seq: int) -> Record | None:
    """The record that an entry points to, where it is there and says the same; positions count from its start."""
    data = segment.pread(entry.end - entry.offset, entry.offset)
    record = parse_record(data, 0)
    if isinstance(record, Unreadable) or not says_the_same(record, entry, seq):
        return None
    return record if int(record.id[:8], 16) == entry.id_start else None


def says_the_same(record: Record, entry: index.Entry, seq: int) -> bool:
    return record.seq == seq and record.end - record.start == entry.end - entry.offset
