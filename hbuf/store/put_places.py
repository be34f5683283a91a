"""What an encrypted message needs of its segment to be opened: the PUTs in it, and the record before."""

from __future__ import annotations

from typing import Protocol

from hbuf.format.grammar import MAX_SECTION_BYTES
from hbuf.format.scan import Record, parse_record
from hbuf.store import fsops
from hbuf.store.segment import windows
from hbuf.store.segment_file import SegmentFile
from hbuf.store.tail import Opening, read_opening


class Segments(Protocol):
    """The segments of one buffer, wherever they are."""

    @property
    def shown(self) -> str: ...

    def segment(self, first: int) -> SegmentFile: ...

    def segment_shown(self, first: int) -> str: ...

    def before(self, first: int, seq: int) -> tuple[int, int]: ...


def opening_of(segments: Segments, first: int) -> Opening:
    """What the PUTs at the head of a segment say."""
    with fsops.os_errors(segments.shown):
        return read_opening(segments.segment(first), segments.segment_shown(first))


def put_at(segments: Segments, first: int, at: int) -> Record | None:
    """The PUT at byte `at` of a segment, where there is one."""
    with fsops.os_errors(segments.shown):
        record = parse_record(segments.segment(first).pread(MAX_SECTION_BYTES + 2, at), 0)
    return record if isinstance(record, Record) and record.method == b"PUT" else None


def all_puts(segments: Segments, first: int) -> list[Record]:
    """All PUTs of a segment, found by reading all of it."""
    with fsops.os_errors(segments.shown):
        segment = segments.segment(first)
        every = windows(segment, 0, segment.length, first - 1)
        return [record for window in every for record in window.records if record.method == b"PUT"]


def id_before(segments: Segments, first: int, seq: int) -> bytes:
    """The id of the record before message `seq`: no more is read than lies between."""
    prev = b""
    with fsops.os_errors(segments.shown):
        segment, (start, end) = segments.segment(first), segments.before(first, seq)
        for window in windows(segment, start, end, seq - 2 if start else first - 1):
            for record in window.records:
                if record.seq == seq:
                    return prev
                prev = record.id
    return prev
