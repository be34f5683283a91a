"""What of a segment is whole, verified and complete, from its opening or from its last listed record on.

A writer recovers by it, and a reader shows by it what no index lists. It changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hbuf.format import index
from hbuf.format.check import ChainState, check_records, unit_place
from hbuf.format.entries import EntryBuilder
from hbuf.format.scan import Record
from hbuf.format.times import encode_time
from hbuf.store.index_file import IndexFile
from hbuf.store.segment import record_at, windows
from hbuf.store.segment_file import SegmentFile
from hbuf.store.tail import Opening


@dataclass(slots=True)
class Found:
    """What a scan from some place of the segment on has shown to be whole, verified and complete."""

    end: int
    state: ChainState
    last_time_us: int
    entries: list[bytes] = field(default_factory=list)
    record_behind: bool = False  # a well-formed record lies behind the damage that ended the scan

    def accept(self, entries: bytes, state: ChainState, end: int, time_us: int) -> None:
        self.entries.append(entries)
        self.state = state
        self.end = end
        self.last_time_us = max(self.last_time_us, time_us)


def is_of(header: index.Header, opening: Opening) -> bool:
    """Whether an index is that of the segment which begins with `opening`."""
    return header.first == opening.first and header.put_id.hex().encode() == opening.put_id


def found_by_index(segment: SegmentFile, listed: IndexFile, opening: Opening, length: int) -> Found | None:
    """What the index lists, if it belongs to this segment and its last entry is really there: no scan is needed."""
    durable = listed.header.durable_length
    if not is_of(listed.header, opening) or durable > length or listed.has_holes():
        return None
    last = listed.last
    if last is None:
        return found_by_put(opening) if durable == opening.length else None
    seq = opening.first + listed.count - 1
    record = record_at(segment, last, seq)
    place = unit_place(record.own) if record else None
    if record is None or (place and place[0] < place[1]):
        return None
    return Found(durable, state_behind(opening, record), last.time_us)


def state_behind(opening: Opening, record: Record) -> ChainState:
    """How the chain stands behind a record of the segment that begins with `opening`."""
    return ChainState(
        record.id,
        record.seq + 1,
        record.time,
        uuid=opening.settings.uuid,
        keys=opening.keys,
        signed_seq=record.seq,
        erasable=opening.settings.erasable,
    )


def found_by_put(opening: Opening) -> Found:
    time = encode_time(opening.last_time_us).encode()
    state = ChainState(
        opening.last_id,
        opening.first,
        time,
        uuid=opening.settings.uuid,
        keys=opening.keys,
        signed_seq=opening.first - 1,
        erasable=opening.settings.erasable,
    )
    return Found(opening.length, state, opening.last_time_us)


def scan_whole(segment: SegmentFile, opening: Opening, length: int) -> Found:
    """All that is whole, verified and complete from the opening on, as if there were no index."""
    found = found_by_put(opening)
    scan_on(segment, found, opening, length)
    return found


def scan_on(segment: SegmentFile, found: Found, opening: Opening, length: int) -> None:
    """Moves `found` on over all that is whole, verified and complete."""
    builder = EntryBuilder(found.end)
    state = replace(found.state)
    pending: list[bytes] = []  # entries of records that are not settled yet: of a unit, or of a batch that is signed
    rest = windows(segment, found.end, length, found.state.next_seq - 1)
    for window in rest:
        if window.damage:
            found.record_behind = window.damage.end < length
            return
        # A whole window at once; one that has a fault or does not end where a chain may, record by record.
        ahead = replace(state)
        together = not check_records(opening.hasher, window.data, window.records, ahead, window.base)
        steps = [window.records] if together and ahead.settled else [[record] for record in window.records]
        for i, records in enumerate(steps):
            if check_records(opening.hasher, window.data, records, state, window.base):
                found.record_behind = i + 1 < len(steps) or any(later.records for later in rest)
                return
            pending.append(builder.encode_entries(records, window.base))
            if state.settled:
                found.accept(b"".join(pending), replace(state), window.base + records[-1].end, builder.time_us)
                pending.clear()
