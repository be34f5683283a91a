"""Reading a buffer without its lock: only what an index lists, so nobody sees what a power cut could take back.

Where an index is missing or wrong the segment is scanned instead. Damage is stepped over and named in `damage`;
a reader changes nothing.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from hbuf.errors import HbufError, Locked, NotFound
from hbuf.format import index
from hbuf.format.check import ChainState, check_records
from hbuf.format.entries import EntryBuilder
from hbuf.format.places import Place
from hbuf.format.scan import Record, Unreadable, parse_record
from hbuf.format.tags import Tags, parse_tags_file
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import IndexFile, opened_index, pread_all
from hbuf.store.lock import Lock
from hbuf.store.segment import record_at, says_the_same, windows
from hbuf.store.tail import read_opening

CHUNK_BYTES = 1024 * 1024


class Chunk(NamedTuple):
    """Records back to back, with the index entries that tell them apart."""

    first: int  # number of the first record, where there are no gaps between
    base: int
    data: bytes
    entries: list[index.Entry]

    def seqs(self) -> range:
        return range(self.first, self.first + len(self.entries))

    def parse(self, i: int) -> Record | None:
        """Record `i`, or None where its bytes are damaged."""
        entry = self.entries[i]
        record = parse_record(self.data, entry.offset - self.base)
        if isinstance(record, Unreadable) or not says_the_same(record, entry, self.first + i):
            return None
        return record

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
            yield i
            at = self.data.find(needle, self.entries[i].end - self.base)


class _View:
    """One segment, open, with entries for what may be shown of it."""

    def __init__(self, first: int, fd: int) -> None:
        self.first = first
        self.fd = fd
        self.start = 0  # where the first message begins
        self.shown = 0  # how far entries reach, in bytes
        self.entries = bytearray()
        self.numbers: list[int] | None = None  # of each entry, where they are not first, first + 1, …
        self.scanned = False

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

    def take(self, known: IndexFile) -> bool:
        """Adds the entries that the index has beyond those known. False where the last does not lead to its record."""
        last = known.last
        if last is not None and record_at(self.fd, last, self.first + known.count - 1) is None:
            return False
        if known.header.durable_length > self.shown:
            self.entries += known.entries(self.count)
            self.shown = known.header.durable_length
        return True

    def close(self) -> None:
        os.close(self.fd)


class Reader:
    """Not for two threads at once. `refresh` looks again at what there is."""

    def __init__(self, directory: BufferDirectory) -> None:
        directory.require()
        self.directory = directory
        self.damage: dict[tuple[int, int], str] = {}  # (segment, byte): what is wrong there
        self._views: dict[int, _View] = {}
        self._lock = Lock(directory)
        self._firsts: list[int] = []
        self.refresh()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for view in self._views.values():
            view.close()
        self._views.clear()
        self._lock.close()

    def refresh(self) -> None:
        """Lists the segments anew, and looks at the newest for new records."""
        with fsops.os_errors(self.directory.shown):
            before = self._firsts[-1] if self._firsts else None
            self._firsts = self.directory.segment_firsts()
            if not self._firsts:
                self.directory.require()
            newest = self._firsts[-1]
            if before is not None and before != newest and before in self._views:
                self._load(before)  # it was the newest: it may have got more before it was sealed
            self._load(newest)

    @property
    def first_seq(self) -> int:
        return self._firsts[0]

    @property
    def end_seq(self) -> int:
        """One more than the last number that can be read."""
        return self._view(self._firsts[-1]).end_seq

    def segment_of(self, seq: int) -> int:
        """The first number of the segment that holds `seq`."""
        return self._firsts[max(bisect.bisect_right(self._firsts, seq) - 1, 0)]

    def resolve(self, place: Place) -> int:
        """The number that a place means now. It may lie outside of what there is."""
        if place.kind == "first":
            return self.first_seq
        if place.kind == "last":
            return max(self.end_seq - 1, self.first_seq)
        if place.kind == "end":
            return self.end_seq
        if place.kind == "number":
            return place.number
        if place.kind == "back":
            return max(self.end_seq - place.number, self.first_seq)
        if place.kind == "time":
            return self.first_at(place.time_us)
        raise NotFound(f"{self.directory.shown}: there is no consumer '{place.name}'")

    def first_at(self, time_us: int) -> int:
        """The first number whose time is not earlier."""
        with fsops.os_errors(self.directory.shown):
            for first in reversed(self._firsts):
                view = self._view(first)
                if view.count == 0 or (view.entry(0).time_us >= time_us and first != self._firsts[0]):
                    continue
                at = bisect.bisect_left(range(view.count), time_us, key=lambda i: view.entry(i).time_us)
                return view.number(at) if at < view.count else view.end_seq
            return self.first_seq

    def time_of(self, seq: int) -> int | None:
        """The time of message `seq`, in microseconds."""
        for chunk in self.chunks(seq, seq + 1):
            return chunk.entries[0].time_us
        return None

    def note_damage(self, chunk: Chunk, i: int) -> None:
        """Record `i` of a chunk cannot be read."""
        seq = chunk.first + i
        self.damage[self.segment_of(seq), chunk.entries[i].offset] = f"message {seq} is damaged"

    def chunks(self, start: int, end: int, wanted: Callable[[Tags], set[int]] | None = None) -> Iterator[Chunk]:
        """Records `start` up to but not `end`, in order, in chunks of about a megabyte.

        `wanted` may look into a sealed segment's tags file and say which numbers matter: chunks without any are
        passed over.
        """
        with fsops.os_errors(self.directory.shown):
            for i, first in enumerate(self._firsts):
                following = self._firsts[i + 1] if i + 1 < len(self._firsts) else None
                if first >= end or (following is not None and following <= start):
                    continue
                numbers = self._wanted_numbers(first, wanted) if wanted and following is not None else None
                yield from self._segment_chunks(first, start, end, numbers)

    def _segment_chunks(self, first: int, start: int, end: int, wanted: list[int] | None) -> Iterator[Chunk]:
        view = self._view(first)
        at = view.place_of(start)
        last = view.place_of(end)
        while at < last:
            if wanted is not None:
                following = bisect.bisect_left(wanted, view.number(at))
                if following == len(wanted):
                    return
                at = max(at, view.place_of(wanted[following]))
                if at >= last:
                    return
            chunk = self._chunk(view, at, last)
            if chunk is None:
                seq = view.number(at)
                self._scan(view)
                at, last = view.place_of(seq), view.place_of(end)
                continue
            yield chunk
            at += len(chunk.entries)

    def _chunk(self, view: _View, at: int, last: int) -> Chunk | None:
        """About a megabyte of records from entry `at` on; None where the index turns out to be wrong."""
        base = view.entry(at).offset
        high = bisect.bisect_left(range(at + 1, last), base + CHUNK_BYTES, key=lambda i: view.entry(i).offset)
        end = at + 1 + high
        if view.numbers is not None:
            run = view.numbers[at]
            end = next((i for i in range(at, end) if view.numbers[i] != run + i - at), end)
        size = index.ENTRY_BYTES
        entries = index.parse_entries(memoryview(view.entries)[at * size : end * size])
        if not index.joins(entries, base):
            return None
        length = entries[-1].end - base
        data = pread_all(view.fd, length, base)
        chunk = Chunk(view.number(at), base, data, entries)
        if view.scanned:
            return chunk
        if len(data) < length or chunk.parse(0) is None or chunk.parse(len(entries) - 1) is None:
            return None
        return chunk

    def _wanted_numbers(self, first: int, wanted: Callable[[Tags], set[int]]) -> list[int] | None:
        """What the tags file of a sealed segment says, or None where it cannot be used."""
        try:
            tags = parse_tags_file(self.directory.tags(first).read_bytes())
        except (OSError, HbufError):
            return None
        view = self._view(first)
        if tags.first != first or tags.records != view.count:
            return None
        return sorted(wanted(tags))

    # Segments

    def _view(self, first: int) -> _View:
        view = self._views.get(first)
        return view if view is not None else self._load(first)

    def _load(self, first: int) -> _View:
        view = self._views.get(first)
        newest = first == self._firsts[-1]
        if view is None:
            path = self.directory.segment(first)
            view = _View(first, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            try:
                view.start = read_opening(view.fd, path.name).length
            except HbufError:
                self.damage[first, 0] = "the record that opens the segment is damaged"
            self._views[first] = view
        if view.scanned:
            self._scan(view)
            return view
        with opened_index(self.directory.index(first), first) as known:
            length = os.fstat(view.fd).st_size
            right = known is not None and known.header.durable_length <= length and view.take(known)
        if not right:
            self._scan(view)
        elif length > view.shown:
            self._show_more(view, wait=not newest)
        return view

    def _show_more(self, view: _View, *, wait: bool) -> None:
        """Records behind the durable length: an index that is behind, or a writer that does not sync.

        Under the shared lock nobody is writing them; synced, no power cut can take them back.
        """
        with self._shared_lock() as alone:
            if not alone and not wait:
                return
            with opened_index(self.directory.index(view.first), view.first) as known:
                if known is not None and not view.take(known):
                    return
            length = os.fstat(view.fd).st_size
            if length <= view.shown:
                return
            with contextlib.suppress(OSError):  # a read-only file system has nothing that is not on disk
                os.fdatasync(view.fd)
            self._add_verified(view, length)

    def _add_verified(self, view: _View, length: int) -> None:
        """Entries for whole, verified, complete records behind what is shown."""
        opening = read_opening(view.fd, self.directory.segment(view.first).name)
        state = ChainState(opening.last_id, opening.first)
        if view.count:
            record = record_at(view.fd, view.entry(view.count - 1), view.number(view.count - 1))
            if record is None:
                return
            state = ChainState(record.id, record.seq + 1, record.time)
        builder = EntryBuilder(view.shown or opening.length)
        pending = bytearray()
        for window in windows(view.fd, max(view.shown, opening.length), length, state.next_seq - 1):
            for record in window.records:
                if check_records(opening.hasher, window.data, [record], state, window.base):
                    return
                pending += builder.encode_entries([record], window.base)
                if not state.unit_size:
                    view.entries += pending
                    pending.clear()
                    view.shown = window.base + record.end
            if window.damage:
                return

    def _scan(self, view: _View) -> None:
        """Entries from the records themselves, stepping over damage. For the newest segment under the shared lock."""
        newest = view.first == self._firsts[-1]
        with self._shared_lock(wait=newest):
            length = os.fstat(view.fd).st_size
            builder = EntryBuilder(view.start)
            view.entries.clear()
            view.numbers = []
            for window in windows(view.fd, view.start, length, view.first - 1):
                if window.damage and not (newest and window.damage.end == length):
                    self.damage[view.first, window.damage.at] = window.damage.reason
                for record in window.records:
                    if record.seq and not (view.numbers and record.seq <= view.numbers[-1]):
                        view.numbers.append(record.seq)
                        view.entries += builder.encode_entries([record], window.base)
            view.shown = length
            view.scanned = True

    @contextlib.contextmanager
    def _shared_lock(self, *, wait: bool = False) -> Iterator[bool]:
        """The shared lock, where it can be had at once (or, with `wait`, before long). Yields whether it is held."""
        held = False
        with contextlib.suppress(OSError, Locked):
            self._lock.acquire(shared=True, deadline=time.monotonic() + 10 if wait else None)
            held = True
        try:
            yield held
        finally:
            if held:
                self._lock.release()
