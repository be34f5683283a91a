"""The messages of one segment by number, as who erases needs them: read, checked against the chain, or half erased.

Found through the index where that is right, and by a scan where it is not. It changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from hbuf.errors import Damaged
from hbuf.format import index
from hbuf.format.chain import commitment, record_id
from hbuf.format.entries import EntryBuilder
from hbuf.format.erasing import Layout, find_layout
from hbuf.format.grammar import MAX_SECTION_BYTES
from hbuf.format.scan import Record, Unreadable, parse_record, record_starts
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import opened_index
from hbuf.store.segment import WINDOW_BYTES, says_the_same, windows
from hbuf.store.segment_file import open_segment
from hbuf.store.tail import read_opening
from hbuf.store.whole import is_of


class Located(NamedTuple):
    """A record, the bytes that it lies in, and where these begin in the segment."""

    offset: int
    data: bytes
    record: Record


class SegmentMessages:
    """Not for two threads at once. Close it."""

    def __init__(self, directory: BufferDirectory, first: int) -> None:
        self.first = first
        self._where = directory.segment_shown(first)
        self._segment = open_segment(directory, first)
        try:
            self._opening = read_opening(self._segment, self._where)
            self._entries = bytearray()
            self._listed_end = first  # one more than the last number of the index
            self._numbers: dict[int, int] | None = None  # places in `_entries`, where a scan found them
            with opened_index(directory.index(first), first) as listed:
                if listed and is_of(listed.header, self._opening):
                    self._entries = listed.entries()
                    self._listed_end = first + listed.count
                else:
                    self._scan()
        except BaseException:
            self._segment.close()
            raise

    def __enter__(self) -> SegmentMessages:
        return self

    def __exit__(self, *_: object) -> None:
        self._segment.close()

    def find(self, seq: int) -> Located | None:
        """Record `seq`, or None where it is not there or cannot be read."""
        found = self._find(seq)
        if found is None and self._numbers is None:
            self._scan()
            found = self._find(seq)
        return found

    def lists(self, seq: int) -> bool:
        """Whether there should be a record of this number."""
        return self._entry(seq) is not None or seq < self._listed_end

    def commitment_of(self, located: Located) -> bytes:
        data, record = located.data, located.record
        body = memoryview(data)[record.section_end : record.body_end]
        return commitment(self._opening.hasher, record.salt, data[record.head_end : record.fields_end], body)

    def refuse_damaged(self, located: Located, commit: bytes) -> None:
        """Raises Damaged where a message of this commitment is not what the chain says."""
        record = located.record
        head = located.data[: record.head_end]
        if record_id(self._opening.hasher, self._id_before(located), commit, head) != record.id:
            raise Damaged(f"{self._where}: byte {located.offset}: message {record.seq} is damaged")

    def find_half_erased(self, seq: int, wanted_id: bytes) -> tuple[int, Layout] | None:
        """Where message `seq` of this id begins, and where its parts lie, in whatever state an erase left it."""
        entry = self._entry(seq)
        offset = entry.offset if entry else None
        layout = self._layout(offset, seq, wanted_id) if offset is not None else None
        if layout is None:
            offset = self._search(seq, wanted_id)
            layout = self._layout(offset, seq, wanted_id) if offset is not None else None
        return (offset, layout) if offset is not None and layout is not None else None

    def read(self, offset: int, length: int) -> Located | None:
        """The record that has these bytes, or None where they are none: an erase may have been cut short there."""
        data = self._segment.pread(length, offset)
        record = parse_record(data, 0)
        return None if isinstance(record, Unreadable) else Located(offset, data, record)

    def _entry(self, seq: int) -> index.Entry | None:
        place = seq - self.first if self._numbers is None else self._numbers.get(seq, -1)
        if not 0 <= place < len(self._entries) // index.ENTRY_BYTES:
            return None
        return index.parse_entry(self._entries, place)

    def _find(self, seq: int) -> Located | None:
        entry = self._entry(seq)
        if entry is None:
            return None
        found = self.read(entry.offset, entry.end - entry.offset)
        return found if found and says_the_same(found.record, entry, seq) else None

    def _scan(self) -> None:
        """Entries from the records themselves."""
        builder = EntryBuilder(self._opening.length)
        entries, numbers = bytearray(), []
        for window in windows(self._segment, self._opening.length, self._segment.length, self.first - 1):
            numbers += [record.seq for record in window.records if record.seq]
            entries += builder.encode_entries(window.records, window.base)
        self._entries = entries
        self._numbers = {seq: place for place, seq in reversed(list(enumerate(numbers)))}

    def _id_before(self, located: Located) -> bytes:
        """The id of the record that lies just before: of a message, or of a PUT between two."""
        before = self._entry(located.record.seq - 1)
        start = before.offset if before and before.offset < located.offset else self._opening.length
        prev = self._opening.last_id
        for window in windows(self._segment, start, located.offset, located.record.seq - 2):
            if window.damage:
                raise Damaged(f"{self._where}: byte {window.damage.at}: {window.damage.reason}")
            prev = window.records[-1].id
        return prev

    def _layout(self, offset: int, seq: int, wanted_id: bytes) -> Layout | None:
        section = self._segment.pread(MAX_SECTION_BYTES, offset)
        layout = find_layout(section, 0, seq, wanted_id)
        if layout is None or self._segment.pread(2, offset + layout.end - 2) != b"\r\n":
            return None
        return layout

    def _search(self, seq: int, wanted_id: bytes) -> int | None:
        """Where the record begins, without an index. Nobody could know its id before it was there: the first is it."""
        line = b"\r\nx-hbuf-id: %b\r\n" % wanted_id
        at, length = 0, self._segment.length
        while at < length:
            found = self._segment.pread(WINDOW_BYTES + len(line), at).find(line)
            if found >= 0:
                start = max(0, at + found - MAX_SECTION_BYTES)
                before = self._segment.pread(at + found - start, start)
                number = b"\r\nx-hbuf-seq: %d\r\n" % seq
                starts = [each for each in record_starts(before) if number in before[each : each + 512]]
                return start + starts[-1] if starts else None
            at += WINDOW_BYTES
        return None
