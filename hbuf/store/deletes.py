"""The DELETE records of a log that say what was erased, found through the indexes: there are few of them."""

from __future__ import annotations

from collections.abc import Iterator

from hbuf.format import index
from hbuf.format.deletes import Erasure, parse_delete
from hbuf.format.scan import Record
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import opened_index
from hbuf.store.segment import record_at, windows
from hbuf.store.segment_file import SegmentFile, opened_segment


def erasures(directory: BufferDirectory, after: int = 0) -> dict[int, Erasure]:
    """By number, what DELETEs behind message `after` say was erased. For who holds the lock, shared or alone."""
    firsts = directory.segment_firsts()
    found: dict[int, Erasure] = {}
    for i, first in enumerate(firsts):
        if i + 1 == len(firsts) or firsts[i + 1] > after:
            for what in _erasures_in(directory, first):
                found[what.seq] = what
    return found


def _erasures_in(directory: BufferDirectory, first: int) -> Iterator[Erasure]:
    with opened_segment(directory, first) as segment:
        records = _listed_deletes(directory, first, segment)
        if records is None:
            every = windows(segment, 0, segment.length, first - 1)
            records = [record for window in every for record in window.records if record.method == b"DELETE"]
    found = (parse_delete(record.own) for record in records)
    return (what for what in found if isinstance(what, Erasure))


def _listed_deletes(directory: BufferDirectory, first: int, segment: SegmentFile) -> list[Record] | None:
    """None where the index is missing or wrong."""
    with opened_index(directory.index(first), first) as listed:
        if listed is None:
            return None
        entries = listed.entries()
    found: list[Record] = []
    for i in _delete_places(entries):
        record = record_at(segment, index.parse_entry(entries, i), first + i)
        if record is None or record.method != b"DELETE":
            return None
        found.append(record)
    return found


def _delete_places(entries: bytearray) -> Iterator[int]:
    flags = index.delete_flags(entries)
    at = flags.find(1)
    while at >= 0:
        yield at
        at = flags.find(1, at + 1)
