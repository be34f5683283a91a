"""Reading a buffer without its lock: only what an index lists, so nobody sees what a power cut could take back.

Where an index is missing or wrong the segment is scanned instead. Damage is stepped over and named in `damage`;
a reader changes nothing.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator, Sized
from typing import Protocol, Self, TypeVar

from hbuf.errors import Damaged, HbufError, Locked, NotFound
from hbuf.format import index
from hbuf.format.entries import EntryBuilder
from hbuf.format.places import Place
from hbuf.format.tags import Tags, Terms, parse_tags_file
from hbuf.format.times import LAST_TIME_US, parse_time
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import opened_index, read_index_header
from hbuf.store.listed import ListedSegments
from hbuf.store.lock import Lock
from hbuf.store.segment import record_at, windows
from hbuf.store.segment_file import SegmentFile, open_segment
from hbuf.store.tail import read_opening
from hbuf.store.view import Chunk, View, is_boundary, search_time
from hbuf.store.whole import Found, found_by_put, scan_on, scan_whole, state_behind

_WAIT_SECONDS = 10
# Wanted messages are read together where no more than so many others lie between two of them.
_NEAR_APART = 64
_NEAR_MANY = 10_000


class Piece(Protocol):
    """Records back to back, in whatever form they are wanted."""

    @property
    def entries(self) -> Sized: ...


_Piece = TypeVar("_Piece", bound=Piece)
Cut = Callable[[View, int, int], _Piece | None]  # from which entry to which at most; None where the index is wrong


class Reader(ListedSegments):
    """Not for two threads at once. `refresh` looks again at what there is."""

    def __init__(self, directory: BufferDirectory) -> None:
        super().__init__(directory)
        self.damage: dict[tuple[int, int], str] = {}  # (segment, byte): what is wrong there
        self.damaged_seqs: dict[tuple[int, int], int] = {}  # the number of what is damaged, where that is known
        self._lock = Lock(directory)
        self.refresh()

    def __enter__(self) -> Self:
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
            self._firsts = self._listed()
            self._let_go()
            newest = self._firsts[-1]
            if before is not None and before != newest and before in self._views:
                self._load(before)  # it was the newest: it may have got more before it was sealed
            self._again_if_retired(lambda: self._load(self._firsts[-1]))

    @property
    def shown(self) -> str:
        return self.directory.shown

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def tenant(self) -> str:
        return self.directory.tenant

    @property
    def first_seq(self) -> int:
        return self._firsts[0]

    @property
    def end_seq(self) -> int:
        """One more than the last number that can be read."""
        return self.view(self._firsts[-1]).end_seq

    def segment_starts(self) -> list[int]:
        """The first numbers of the segments, as they were listed."""
        return list(self._firsts)

    def segment_of(self, seq: int) -> int:
        """The first number of the segment that holds `seq`."""
        return self._firsts[max(bisect.bisect_right(self._firsts, seq) - 1, 0)]

    def resolve(self, place: Place) -> int:
        """The number that a place means now. It may lie outside of what there is."""
        if place.kind == "first":
            return self.first_seq
        if place.kind == "last":
            return self.back(1, self.end_seq)
        if place.kind == "end":
            return self.end_seq
        if place.kind == "number":
            return place.number
        if place.kind == "back":
            return self.back(place.number, self.end_seq)
        if place.kind == "time":
            return self.first_at(place.time_us)
        raise NotFound(f"{self.directory.shown}: there is no consumer '{place.name}'")

    def back(self, count: int, end: int) -> int:
        """The number from which on there are `count` messages before `end`, or the first one that is there.

        What says that others were erased or retired is no message.
        """
        with fsops.os_errors(self.directory.shown):
            return self._again_if_retired(lambda: self._back(count, end))

    def _back(self, count: int, end: int) -> int:
        for first in reversed(self._firsts):
            view = self.view(first)
            place = view.place_of(end)
            deletes = index.delete_flags(view.entries[: place * index.ENTRY_BYTES])
            if deletes.count(0) < count:
                count -= deletes.count(0)
                continue
            at = place - count
            while (missing := count - deletes.count(0, at)) > 0:
                at -= missing
            return view.number(at) if at < view.count else min(end, view.end_seq)
        return self.first_seq

    def first_at(self, time_us: int) -> int:
        """The first number whose time is not earlier."""
        with fsops.os_errors(self.directory.shown):
            return self._again_if_retired(lambda: self._first_at(time_us))

    def _first_at(self, time_us: int) -> int:
        following = bisect.bisect_left(self._firsts, time_us, key=self._first_time)
        if following == 0:
            return self.first_seq
        view = self.view(self._firsts[following - 1])
        at = search_time(view, time_us)
        if not is_boundary(view, at, time_us):
            self._scan(view)
            at = search_time(view, time_us)
        return view.number(at) if at < view.count else view.end_seq

    def _first_time(self, first: int) -> int:
        """The time of a segment's first message, from the record itself where it can be read."""
        view = self.view(first)
        if not view.count:
            return LAST_TIME_US
        entry = view.entry(0)
        record = record_at(view.segment, entry, view.number(0))
        return entry.time_us if record is None else parse_time(record.time.decode())

    def time_of(self, seq: int) -> int | None:
        """The time of message `seq`, in microseconds."""
        for chunk in self.chunks(seq, seq + 1):
            return chunk.entries[0].time_us
        return None

    def note_damage(self, chunk: Chunk, i: int) -> None:
        """Record `i` of a chunk cannot be read."""
        seq = chunk.first + i
        at = self.segment_of(seq), chunk.entries[i].offset
        self.damage[at] = f"message {seq} is damaged"
        self.damaged_seqs[at] = seq

    def damage_lines(self) -> list[str]:
        """Where the buffer is damaged, as people are told."""
        shown = self.directory.segment_shown
        return [f"{shown(first)}: byte {at}: {reason}" for (first, at), reason in sorted(self.damage.items())]

    def chunks(self, start: int, end: int, terms: Terms | None = None) -> Iterator[Chunk]:
        """Records `start` up to but not `end`, in order, in chunks of about a megabyte.

        Chunks that have certainly no message with `terms` are passed over. What was retired is passed over too,
        and noted in `retired_seq`.
        """
        return self.pieces(start, end, View.chunk, terms.find if terms is not None else None)

    def pieces(
        self, start: int, end: int, cut: Cut[_Piece], wanted: Callable[[Tags], set[int]] | None = None
    ) -> Iterator[_Piece | Chunk]:
        """The same in pieces of the caller's own form; as chunks where messages are being erased.

        `wanted` may look into a sealed segment's tags file and say which numbers matter.
        """
        with fsops.os_errors(self.directory.shown):
            firsts = self._firsts
            self._note_retired(start, min(end, firsts[0]) - 1)
            for i, first in enumerate(firsts):
                following = firsts[i + 1] if i + 1 < len(firsts) else None
                if first >= end or (following is not None and following <= start):
                    continue
                if self._is_retired(first):
                    self._note_retired(start, min(end, following or end) - 1)
                    continue
                numbers = self._wanted_numbers(first, wanted) if wanted and following is not None else None
                yield from self._segment_pieces(first, start, end, cut, numbers)

    def _is_retired(self, first: int) -> bool:
        """Whether a segment that was listed went before it could be opened."""
        try:
            self.view(first)
        except FileNotFoundError:
            self._pass_over_retired()
            if first in self._firsts:
                raise
            return True
        return False

    def _segment_pieces(
        self, first: int, start: int, end: int, cut: Cut[_Piece], wanted: list[int] | None
    ) -> Iterator[_Piece | Chunk]:
        view = self.view(first)
        at = view.place_of(start)
        last = view.place_of(end)
        while at < last:
            stop = last
            if wanted is not None:
                near = _near(wanted, view.number(at))
                at = max(at, view.place_of(near.start))
                stop = min(last, view.place_of(near.stop))
                if at >= last or not near:
                    return
            seq = view.number(at)
            piece: _Piece | Chunk | None = cut(view, at, stop)
            if not self._is_steady(view):
                piece = self._chunk_between_erases(view, seq, end)
                if piece is None and not self.directory.has_segment(first):
                    # Erased from and then retired: the file that is open here may be half erased, for good.
                    self._note_retired(seq, min(end, view.end_seq) - 1)
                    return
                at, last = view.place_of(seq), view.place_of(end)
            if piece is None:
                self._scan(view)
                at, last = view.place_of(seq), view.place_of(end)
                continue
            if isinstance(piece, Chunk):
                self._note_holes(piece)
            yield piece
            at += len(piece.entries)

    def _note_holes(self, chunk: Chunk) -> None:
        for i in range(len(chunk.entries)) if chunk.holes else ():
            if chunk.is_lost(i):
                self.note_damage(chunk, i)

    def _wanted_numbers(self, first: int, wanted: Callable[[Tags], set[int]]) -> list[int] | None:
        """What the tags file of a sealed segment says, or None where it cannot be used."""
        try:
            tags = parse_tags_file(self.directory.tags(first).read_bytes())
        except (OSError, HbufError):
            return None
        view = self.view(first)
        if tags.first != first or tags.records != view.count:
            return None
        return sorted(wanted(tags))

    def _is_steady(self, view: View) -> bool:
        """Whether nothing of the segment was erased since its entries were read, nor is being erased now."""
        if not self._has_its_file(view):
            return False
        if view.scanned:
            return not self.directory.erasing.exists()
        header = read_index_header(self.directory.index(view.first))
        if header is None:
            return self.directory.has_segment(view.first)
        return header.erase_counter == view.erase_counter and header.erase_counter % 2 == 0

    def _has_its_file(self, view: View) -> bool:
        """False where a compressed segment was replaced by another file: erasing does that."""
        try:
            there = os.stat(self.directory.segment_file(view.first))
        except FileNotFoundError:
            return True  # retired: what is open can be read to its end
        return os.path.samestat(there, os.fstat(view.segment.fd))

    def _chunk_between_erases(self, view: View, seq: int, end: int) -> Chunk | None:
        """A chunk read while nobody writes. What an erase left half done that died counts as erased."""
        from hbuf.store.half_erased import taken_for_erased

        lock = Lock(self.directory)
        try:
            with contextlib.suppress(FileNotFoundError):  # a copy without its lock: whoever writes makes it first
                lock.acquire(shared=True, deadline=time.monotonic() + _WAIT_SECONDS)
            if not self.directory.has_segment(view.first):
                return None
            if not view.scanned:
                self._load(view.first)
            elif not self._has_its_file(view):
                view.reopen(open_segment(self.directory, view.first))
                self._scan(view)
            at, last = view.place_of(seq), view.place_of(end)
            chunk = view.chunk(at, last) if at < last else None
            return taken_for_erased(self.directory, chunk) if chunk else None
        finally:
            lock.close()

    # Segments

    def segment(self, first: int) -> SegmentFile:
        """A segment's bytes."""
        return self.view(first).segment

    def segment_shown(self, first: int) -> str:
        return self.directory.segment_shown(first)

    def before(self, first: int, seq: int) -> tuple[int, int]:
        """From where to where the records of a segment lie of which the last is the one before message `seq`."""
        view = self.view(first)
        place = view.place_of(seq)
        return view.entry(place - 1).offset if place else 0, view.entry(place).offset

    def view(self, first: int) -> View:
        """A segment, open, with what may be shown of it."""
        view = self._views.get(first)
        return view if view is not None else self._load(first)

    def _load(self, first: int) -> View:
        view = self._views.get(first)
        newest = first == self._firsts[-1]
        if view is None:
            view = View(first, open_segment(self.directory, first))
            self._views[first] = view
        if not view.count:
            self._read_opening(view)  # before its first message a segment may get another PUT
        if view.scanned:
            view.forget()  # there may be an index by now
        with opened_index(self.directory.index(first), first) as known:
            moved = known is not None and known.header.erase_counter != view.erase_counter
            if moved or not self._has_its_file(view):
                view.reopen(open_segment(self.directory, first))  # a compressed one was replaced by another file
            length = view.segment.length
            right = known is not None and known.header.durable_length <= length and view.take(known)
        if not right:
            self._scan(view)
        elif length > view.shown:
            self._show_more(view, wait=not newest)
        return view

    def _read_opening(self, view: View) -> None:
        try:
            opening = read_opening(view.segment, self.directory.segment_shown(view.first))
        except Damaged:
            self.damage[view.first, 0] = "the record that opens the segment is damaged"
        else:
            view.start, view.put_id = opening.length, opening.put_id

    def _show_more(self, view: View, *, wait: bool) -> None:
        """Records behind the durable length: an index that is behind, or a writer that does not sync.

        Under the shared lock nobody is writing them; synced, no power cut can take them back.
        """
        with self._shared_lock() as alone:
            if not alone and not wait:
                return
            with opened_index(self.directory.index(view.first), view.first) as known:
                if known is not None and not view.take(known):
                    return
            length = view.segment.length
            if length <= view.shown:
                return
            if _is_on_disk(view.segment.fd):
                self._add_verified(view, length)

    def _add_verified(self, view: View, length: int) -> None:
        """Entries for whole, verified, complete records behind what is shown."""
        opening = read_opening(view.segment, self.directory.segment_shown(view.first))
        found = found_by_put(opening)
        if view.count:
            last = view.entry(view.count - 1)
            record = record_at(view.segment, last, view.number(view.count - 1))
            if record is None:
                return
            found = Found(last.end, state_behind(opening, record), last.time_us)
        scan_on(view.segment, found, opening, length)
        view.entries += b"".join(found.entries)
        view.shown = found.end

    def _scan(self, view: View) -> None:
        """Entries from the records themselves, stepping over damage.

        Of the newest segment, under the shared lock, only what verifies: the rest may be an append that was cut short.
        """
        newest = view.first == self._firsts[-1]
        with self._shared_lock(wait=newest) as alone:
            if newest and not alone:
                raise Locked(f"{self.directory.shown}: is being written, and there is no index to read by")
            length = view.segment.length
            view.entries.clear()
            view.numbers = []
            view.shown = length
            view.scanned = True
            start = view.start
            if newest and start and _is_on_disk(view.segment.fd):
                found = scan_whole(
                    view.segment, read_opening(view.segment, self.directory.segment_shown(view.first)), length
                )
                view.entries += b"".join(found.entries)
                view.numbers += range(view.first, found.state.next_seq)
                if not found.record_behind:
                    return
                start = found.end
            self._scan_unverified(view, start, length, skip=start if newest else -1)

    def _scan_unverified(self, view: View, start: int, length: int, skip: int) -> None:
        """Entries of all well-formed records from `start` on, but for the one at `skip`, which does not verify."""
        numbers = view.numbers if view.numbers is not None else []
        builder = EntryBuilder(start)
        for window in windows(view.segment, start, length, numbers[-1] if numbers else view.first - 1):
            if window.damage:
                self.damage[view.first, window.damage.at] = window.damage.reason
            for record in window.records:
                if window.base + record.start == skip:
                    self.damage[view.first, skip] = f"message {record.seq} is damaged"
                elif record.seq and not (numbers and record.seq <= numbers[-1]):
                    numbers.append(record.seq)
                    view.entries += builder.encode_entries([record], window.base)

    @contextlib.contextmanager
    def _shared_lock(self, *, wait: bool = False) -> Iterator[bool]:
        """The shared lock, where it can be had at once (or, with `wait`, before long). Yields whether nobody writes."""
        alone = True
        try:
            self._lock.acquire(shared=True, deadline=time.monotonic() + _WAIT_SECONDS if wait else None)
        except Locked:
            alone = False
        except FileNotFoundError:
            pass  # a copy without its lock: whoever writes makes it first
        try:
            yield alone
        finally:
            if alone:
                self._lock.release()


def _near(wanted: list[int], seq: int) -> range:
    """From the first wanted number that is not before `seq` to the last that is worth reading with it. May be empty."""
    following = last = bisect.bisect_left(wanted, seq)
    if following == len(wanted):
        return range(0)
    most = min(len(wanted), following + _NEAR_MANY) - 1
    while last < most and wanted[last + 1] - wanted[last] <= _NEAR_APART:
        last += 1
    return range(wanted[following], wanted[last] + 1)


def _is_on_disk(fd: int) -> bool:
    """Syncs a segment before more of it is shown than its index lists."""
    try:
        os.fdatasync(fd)
    except OSError as error:
        return error.errno in (errno.EROFS, errno.EINVAL)  # nothing is written there
    return True
