"""What an encrypted message needs of its segment to be opened: the PUTs in it, and the record before."""

from __future__ import annotations

from hbuf.format.grammar import MAX_SECTION_BYTES
from hbuf.format.scan import Record, parse_record
from hbuf.store import fsops
from hbuf.store.reader import Reader
from hbuf.store.segment import windows
from hbuf.store.tail import Opening, read_opening


def opening_of(reader: Reader, first: int) -> Opening:
    """What the PUTs at the head of a segment say."""
    with fsops.os_errors(reader.directory.shown):
        return read_opening(reader.view(first).segment, reader.directory.segment_shown(first))


def put_at(reader: Reader, first: int, at: int) -> Record | None:
    """The PUT at byte `at` of a segment, where there is one."""
    with fsops.os_errors(reader.directory.shown):
        record = parse_record(reader.view(first).segment.pread(MAX_SECTION_BYTES + 2, at), 0)
    return record if isinstance(record, Record) and record.method == b"PUT" else None


def all_puts(reader: Reader, first: int) -> list[Record]:
    """All PUTs of a segment, found by reading all of it."""
    with fsops.os_errors(reader.directory.shown):
        segment = reader.view(first).segment
        every = windows(segment, 0, segment.length, first - 1)
        return [record for window in every for record in window.records if record.method == b"PUT"]


def id_before(reader: Reader, first: int, seq: int) -> bytes:
    """The id of the record before message `seq`, by what is listed: only what lies between is read."""
    view = reader.view(first)
    place = view.place_of(seq)
    start, prev = view.entry(place - 1).offset if place else 0, b""
    with fsops.os_errors(reader.directory.shown):
        for window in windows(view.segment, start, view.entry(place).offset, seq - 2):
            prev = window.records[-1].id if window.records else prev
    return prev
