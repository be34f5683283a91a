"""One segment as a reader sees it: the entries of what may be shown, and chunks of its records.

It does not decide what may be shown: the reader does.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hbuf.format import index
from hbuf.format.scan import Record, Unreadable, parse_record
from hbuf.format.times import parse_time
from hbuf.store.index_file import IndexFile
from hbuf.store.segment import record_at, says_the_same
from hbuf.store.segment_file import OpenSegment

CHUNK_BYTES = 1024 * 1024


class Chunk(NamedTuple):
    """Records back to back, with the index entries that tell them apart."""

    first: int  # number of the first record, where there are no gaps between
    base: int
    data: bytes
    entries: list[index.Entry]
    suspect: bool = False  # a record does not look like one: each is parsed before it is shown
    holes: Sequence[tuple[int, int]] = ()  # from where to where nothing could be read: `data` has zeros there

    def seqs(self) -> range:
        return range(self.first, self.first + len(self.entries))

    def parse(self, i: int) -> Record | None:
        """Record `i`, or None where its bytes are damaged."""
        entry = self.entries[i]
        if self.is_lost(i):
            return None
        record = parse_record(self.data, entry.offset - self.base)
        if isinstance(record, Unreadable) or not says_the_same(record, entry, self.first + i):
            return None
        return record

    def is_lost(self, i: int) -> bool:
        """Whether some of record `i` could not be read at all."""
        entry = self.entries[i]
        return any(start < entry.end and entry.offset < end for start, end in self.holes)

    def looks_whole(self) -> bool:
        """Whether a record begins where each must, and the first and the last are ones. A look, not a proof."""
        if self.holes or self.parse(0) is None or self.parse(len(self.entries) - 1) is None:
            return False
        starts, before, data = (b"\r\nPOST /b/", b"\r\nDELETE /b/"), self.base + 2, self.data
        return all(data.startswith(starts, entry[1] - before) for entry in self.entries[1:])

    def is_delete(self, i: int) -> bool:
        """No message: it says what was erased or retired."""
        return self.data.startswith(b"DELETE ", self.entries[i].offset - self.base)

    def has_messages_only(self) -> bool:
        return b"DELETE /b/" not in self.data

    def may_have_erased(self) -> bool:
        """False where certainly none of its messages is erased."""
        return b"\r\nx-hbuf-gone: " in self.data

    def is_erased(self, i: int) -> bool:
        record = self.parse(i)
        return record is not None and record.salted == b"gone"

    def body(self, i: int) -> bytes:
        """The body of message `i`, by the index alone."""
        entry = self.entries[i]
        start = entry.offset - self.base + entry.section_length
        return self.data[start : start + entry.body_length]

    def has_fields(self, i: int) -> bool:
        """Whether something stands between the head of record `i` and its trailer."""
        entry = self.entries[i]
        return not self.data.startswith(
            (b"x-hbuf-salt: ", b"x-hbuf-id: "), entry.offset - self.base + entry.head_length
        )

    def holding(self, needle: bytes) -> Iterator[int]:
        """The records that have `needle` in their bytes, wherever."""
        at = self.data.find(needle)
        while at >= 0:
            i = bisect.bisect_right(self.entries, self.base + at, key=lambda entry: entry.offset) - 1
            end = self.entries[i].end - self.base
            if at < end:
                yield i
                at = self.data.find(needle, end)
            else:  # in a PUT between two records
                at = self.data.find(needle, at + 1)


class View:
    """One segment, open, with entries for what may be shown of it."""

    def __init__(self, first: int, segment: OpenSegment) -> None:
        self.first = first
        self.segment = segment
        self.start = 0  # where the first message begins
        self.put_id = b""
        self.shown = 0  # how far entries reach, in bytes
        self.entries = bytearray()
        self.numbers: list[int] | None = None  # of each entry, where they are not first, first + 1, …
        self.scanned = False
        self.erase_counter = 0  # as of the entries

    @property
    def count(self) -> int:
        return len(self.entries) // index.ENTRY_BYTES

    @property
    def end_seq(self) -> int:
        """One more than the last number."""
        if self.numbers is not None:
            return self.numbers[-1] + 1 if self.numbers else self.first
        return self.first + self.count

    def entry(self, i: int) -> index.Entry:
        return index.parse_entry(self.entries, i)

    def place_of(self, seq: int) -> int:
        """Which entry is that of `seq`, or of the next number that is there."""
        if self.numbers is not None:
            return bisect.bisect_left(self.numbers, seq)
        return min(max(seq - self.first, 0), self.count)

    def number(self, i: int) -> int:
        return self.numbers[i] if self.numbers is not None else self.first + i

    def number_at(self, offset: int) -> int:
        """The number that a record at `offset` would have; where it would be the last, that of the one before."""
        following = bisect.bisect_left(range(self.count), offset, key=lambda i: self.entry(i).offset)
        behind = self.number(following - 1) + 1 if following else self.first
        return max(min(behind, self.end_seq - 1), self.first)

    def forget(self) -> None:
        self.shown = 0
        self.entries.clear()
        self.numbers = None
        self.scanned = False

    def take(self, known: IndexFile) -> bool:
        """Adds the entries that the index has beyond those known. False where it is not the index of this segment."""
        if known.header.put_id.hex().encode() != self.put_id:
            return False
        if known.header.erase_counter != self.erase_counter:
            self.forget()
            self.erase_counter = known.header.erase_counter
        last = known.last
        if last is None and known.header.durable_length > self.start:
            return False
        if last is None:
            self.shown = max(self.shown, known.header.durable_length)  # a further PUT may be on its way
            return True
        # Where the last record is not as it says, either it is wrong, or the record is damaged and all entries join.
        is_there = record_at(self.segment, last, self.first + known.count - 1) is not None
        if not is_there and not index.joins(index.parse_entries(known.entries()), self.start):
            return False
        if known.header.durable_length > self.shown:
            more = known.entries(self.count)
            if self.entries:
                self.entries += more
            else:
                self.entries = more
            self.shown = known.header.durable_length
        return True

    def chunk(self, at: int, last: int) -> Chunk | None:
        """About a megabyte of records from entry `at` on; None where the index turns out to be wrong."""
        base = self.entry(at).offset
        high = bisect.bisect_left(range(at + 1, last), base + CHUNK_BYTES, key=lambda i: self.entry(i).offset)
        end = at + 1 + high
        end = self.end_of_run(at, end)
        size = index.ENTRY_BYTES
        entries = index.parse_entries(memoryview(self.entries)[at * size : end * size])
        if not index.joins(entries, self.end_before(at)):
            return None
        stretch = self.read(base, entries[-1].end)
        if stretch is None:
            return None
        data, holes = stretch
        chunk = Chunk(self.number(at), base, data, entries, holes=holes)
        return chunk._replace(suspect=not chunk.looks_whole())

    def end_of_run(self, at: int, end: int) -> int:
        """Up to where, at most `end`, the numbers from entry `at` on have no gap."""
        if self.numbers is None:
            return end
        run = self.numbers[at] - at
        return next((i for i in range(at, end) if self.numbers[i] != run + i), end)

    def end_before(self, at: int) -> int:
        """Where the record before entry `at` ends."""
        return self.entry(at - 1).end if at else self.start

    def read(self, start: int, end: int) -> tuple[bytes, list[tuple[int, int]]] | None:
        """The segment's bytes from `start` to `end`, zeros where they cannot be had, and from where to where that is.

        None where the segment is shorter.
        """
        length = end - start
        data = self.segment.pread(length, start)
        holes: list[tuple[int, int]] = []
        while len(data) < length:
            at = start + len(data)
            hole = self.segment.hole(at)
            if hole is None:
                return None
            holes.append((at, hole.end))
            data = (data + bytes(hole.end - at))[:length]
            data += self.segment.pread(length - len(data), start + len(data))
        return data, holes

    def reopen(self, segment: OpenSegment) -> None:
        self.segment.close()
        self.segment = segment

    def close(self) -> None:
        self.segment.close()


def search_time(view: View, time_us: int) -> int:
    """The first entry that is not earlier, by the index."""
    return bisect.bisect_left(range(view.count), time_us, key=lambda i: view.entry(i).time_us)


def is_boundary(view: View, at: int, time_us: int) -> bool:
    """Whether the records, not the index, say that `at` is the first that is not earlier. Times never go back."""
    if view.scanned:
        return True
    for i, is_earlier in ((at - 1, True), (at, False)):
        if 0 <= i < view.count:
            record = record_at(view.segment, view.entry(i), view.number(i))
            if record is None or (parse_time(record.time.decode()) < time_us) != is_earlier:
                return False
    return True
