"""Appending: one batch is one write and one sync under the lock, and is listed only when it is on disk.

A writer takes the lock for one batch, looks whether the tail is where it left it, reads on if not, appends,
syncs, lists, releases. So a shell and a daemon can write to one directory at the same time.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from hbuf.errors import ClockJumped, Closed, Damaged, HbufError, PreconditionFailed, StorageFailed
from hbuf.format.record import Batch
from hbuf.format.settings import Settings, encode_settings
from hbuf.store import fsops
from hbuf.store.clock import Clock, SystemClock, draw_salts
from hbuf.store.commit import create_segment, cut_back, sync_and_list, write_records
from hbuf.store.directory import BufferDirectory
from hbuf.store.encoding import Encoder
from hbuf.store.gate import Gate
from hbuf.store.ledger import Ledger
from hbuf.store.markers import write_marker
from hbuf.store.outgoing import Appended, Numbers, Outgoing, fresh_places, joined
from hbuf.store.recover import Stranded, open_tail
from hbuf.store.rolled import RolledSegments
from hbuf.store.room import has_room, how_many_fit, is_of_age, sizes_of
from hbuf.store.run import Run
from hbuf.store.segment_file import PlainSegment
from hbuf.store.settings_file import put_settings_right
from hbuf.store.signed_writing import Signing
from hbuf.store.signing import RecoveryKey, Signer
from hbuf.store.tail import Tail, is_where_it_was, read_opening

_DAY_US = 86_400_000_000


class Writer:
    """Not for two threads at once."""

    def __init__(
        self,
        directory: BufferDirectory,
        *,
        sync: bool = True,
        timeout_seconds: float = 0,
        wait_paused: bool = True,
        clock: Clock | None = None,
        salts: Callable[[int], bytes] = draw_salts,
        notice: Callable[[str], None] = lambda line: None,
        clock_limit_us: int = _DAY_US,
        signer: Signer | None = None,
        recovery: RecoveryKey | None = None,
    ) -> None:
        """`recovery` starts a new line of keys, with `signer`, at the next `roll`."""
        directory.require()
        self.directory = directory
        self.timeout_seconds = timeout_seconds
        self._wait_paused = wait_paused
        self._sync = sync
        self._clock = clock or SystemClock()
        self._notice = notice
        self._clock_limit_us = clock_limit_us
        self._clock_start = (self._clock.now_us(), self._clock.steady_us())
        self._gate = Gate(directory, notice)
        self._tail: Tail | None = None
        self._signing = Signing(directory, signer, recovery)
        self._encoder = Encoder(directory, self._signing, salts)
        self._ledger = Ledger(directory)
        self._rolled = RolledSegments(directory, self._gate, self._ledger)
        self._failed: HbufError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._forget_tail()
        self._gate.close()

    @contextlib.contextmanager
    def locked(self) -> Iterator[Tail]:
        """Holds the lock, with the tail as it is now. Waits while the buffer is locked or paused."""
        if self._failed:
            raise self._failed
        try:
            self._gate.enter(self.timeout_seconds, wait_paused=self._wait_paused)
            try:
                tail = self._current_tail()
                if self.directory.erasing.exists():
                    self._finish_erasing()
                yield tail
            finally:
                self._gate.leave()
        except OSError as error:
            self._forget_tail()
            failure = fsops.translated(error, self.directory.shown)
            if self._failed is not None:
                failure.stored = None  # what was written could not be taken back
            if isinstance(failure, StorageFailed) and self._failed is None:
                # What the cache holds is no longer known to be on disk: whoever goes on must open again.
                self._failed = failure
            raise failure from error

    def append(self, outgoing: Outgoing) -> Appended:
        """Stores the messages, in order: on disk when it returns. What it raises tells how many were stored first."""
        done = Appended()
        while (settled := len(done.seqs)) < len(outgoing.bodies):
            try:
                done.extend(self.append_some(outgoing.part(settled)))
            except HbufError as error:
                error.stored = None if error.stored is None else settled
                raise
        return done

    def append_some(self, outgoing: Outgoing) -> Appended:
        """Stores the messages up to the end of the segment, at least one, with one write and one sync.

        The result tells how many are settled, from the first on. When it raises none is. A unit is never split.
        """
        done = Appended.of(len(outgoing.bodies))
        try:
            with self.locked() as tail:
                places = fresh_places(outgoing, self._known_numbers(outgoing, tail), done)
                fresh = outgoing if len(places) == len(outgoing.bodies) else outgoing.only(places)
                if places:
                    self._require_last(outgoing, tail)
                    sizes = self._sizes(fresh, tail)
                    end = self._make_room(sizes, unit=outgoing.unit)
                    self._append_part(fresh.part(0, end), places[:end], done)
                    if end < len(places):
                        done.forget_from(places[end])
                self._ledger.save_sometimes()
        finally:
            self.seal_rolled()
        return done

    def append_together(self, requests: Sequence[Outgoing]) -> list[Appended | HbufError]:
        """Stores what several senders ask for, in order, with one write, one sync and one signature a segment.

        Each request is stored whole, or has its own error. None is longer than one unit or one message. Whoever calls
        it calls `seal_rolled` when the senders have been told.
        """
        results: dict[int, Appended | HbufError] = {}
        try:
            with self.locked():
                start = 0
                while start < len(requests):
                    start = self._append_run(requests, start, results)
                self._ledger.save_sometimes()
        except HbufError as error:
            for place in range(len(requests)):
                results.setdefault(place, error)
        return [results[place] for place in range(len(requests))]

    def append_deletes(self, own_lines: Sequence[bytes]) -> None:
        """Stores records that say what was erased or retired: on disk when it returns. For who holds the lock."""
        left = own_lines
        while left:
            tail = self._the_tail()
            lines_bytes = self._encoder.lines_bytes(tail.opening, tail.next_seq + len(left))
            end = self._make_room([lines_bytes + len(lines) for lines in left], unit=False)
            tail = self._the_tail()
            time_us = self._next_time(tail)
            self._store(tail, self._encoder.deletes(tail, left[:end], time_us), time_us)
            sync_and_list(tail)
            left = left[end:]

    def roll(self, change: Callable[[Settings], Settings] = lambda settings: settings) -> None:
        """Opens a new segment, with changed settings or the same. One without messages gets another PUT instead."""
        with self.locked() as tail:
            old = tail.opening.settings
            new = change(old)
            if new != old or tail.count or self._signing.starts_line(tail.opening):
                self._open_segment(new)
            if new != old:
                fsops.replace_durably(self.directory.settings, encode_settings(new))
        self.seal_rolled()

    # The tail

    def _finish_erasing(self) -> None:
        """Finishes an erase that was interrupted. A full disk is no reason to append nothing, nor to retire nothing."""
        from hbuf.store.erasing import finish_erasing

        try:
            finish_erasing(self.directory, self._notice)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._notice("an erase was interrupted, and cannot be finished yet: the disk is full")

    def _current_tail(self) -> Tail:
        if self._tail is not None and is_where_it_was(self._tail, self.directory):
            return self._tail
        self._forget_tail()
        firsts = self.directory.segment_firsts()
        if not firsts:
            self.directory.require()
        found = open_tail(self.directory, firsts[-1], self._notice, self._signing.admit)
        if isinstance(found, Stranded):
            self._signing.take_key(found.opening)
            found = self._open_behind(found)
        try:
            self._check_tail(found, firsts)
        except BaseException:
            found.close()
            raise
        self._tail = found
        if len(firsts) > 1 and not self.directory.tags(firsts[-2]).exists():
            self._rolled.add(firsts[-2])
        return found

    def _check_tail(self, tail: Tail, firsts: list[int]) -> None:
        """Nothing is appended to what is not signed as it must be, nor where the settings are not clear."""
        self._signing.check_end(tail)
        put_settings_right(self.directory, tail.opening, firsts)

    def _forget_tail(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _the_tail(self) -> Tail:
        if self._tail is None:
            raise StorageFailed(f"{self.directory.shown}: is not open")
        return self._tail

    # Appending

    def _sizes(self, outgoing: Outgoing, tail: Tail) -> list[int]:
        """The bytes that each message takes at most. Raises TooLarge where a limit is passed."""
        last_seq = tail.next_seq + len(outgoing.bodies)
        around = self._encoder.lines_bytes(tail.opening, last_seq)
        return sizes_of(outgoing, tail.opening.settings, around, self._encoder.data_key_bytes(tail.opening, last_seq))

    def _make_room(self, sizes: list[int], *, unit: bool) -> int:
        """Rolls if it is time to. Returns how many of the messages fit into the segment."""
        tail = self._the_tail()
        if tail.count and self._is_full(tail, sum(sizes) if unit else sizes[0]):
            self._open_segment(tail.opening.settings)
            tail = self._the_tail()
        return len(sizes) if unit else how_many_fit(tail, sizes)

    def _is_full(self, tail: Tail, following_bytes: int) -> bool:
        return not has_room(tail, following_bytes) or is_of_age(tail, self._clock.now_us())

    def _known_numbers(self, outgoing: Outgoing, tail: Tail) -> Numbers:
        return self._ledger.last_numbers(tail) if outgoing.producers is not None else {}

    def _require_last(self, outgoing: Outgoing, tail: Tail, *, others_first: bool = False) -> None:
        """Refuses what was to be stored only if nobody else came first."""
        last = tail.prev if tail.count else tail.opening.prev
        if outgoing.after is not None and (others_first or outgoing.after != last):
            raise PreconditionFailed(f"{self.directory.shown}: the last message is not {outgoing.after.decode()}")

    def _append_run(self, requests: Sequence[Outgoing], start: int, results: dict[int, Appended | HbufError]) -> int:
        """Stores requests from `start` on, as many as fit into the segment. Returns which is the next."""
        run = Run()
        end = start
        for request in requests[start:]:
            try:
                tail = self._the_tail()
                done = Appended.of(len(request.bodies))
                places = fresh_places(request, self._known_numbers(request, tail), done, run.numbers)
                fresh = request if len(places) == len(request.bodies) else request.only(places)
                if places:
                    self._require_last(request, tail, others_first=bool(run.count))
                    size = sum(self._sizes(fresh, tail))
                    if not run.count:
                        self._make_room([size], unit=True)
                    elif not run.has_room(tail, size):
                        break
                    run.size += size
                run.take(end, fresh, places, done, self._the_tail().next_seq)
            except HbufError as error:
                results[end] = error
            end += 1
        if run.count:
            self._store_run(run)
        results.update(run.done)
        return end

    def _store_run(self, run: Run) -> None:
        tail = self._the_tail()
        time_us, first = self._next_time(tail), tail.next_seq
        batch = self._encoder.messages(tail, joined(run.parts), time_us)
        self._store(tail, batch, time_us)
        run.settle(first, batch.ids, time_us)
        self._ledger.note(run.parts, first, tail.prev)

    def _append_part(self, part: Outgoing, places: Sequence[int], done: Appended) -> None:
        tail = self._the_tail()
        time_us = self._next_time(tail)
        count = len(part.bodies)
        batch = self._encoder.messages(tail, part.columns(), time_us)
        first = tail.next_seq
        self._store(tail, batch, time_us)
        if len(done.ids) == count:
            done.seqs, done.ids, done.times_us = list(range(first, first + count)), batch.ids, [time_us] * count
        else:
            for place, seq, record_id in zip(places, range(first, first + count), batch.ids, strict=True):
                done.seqs[place], done.ids[place], done.times_us[place] = seq, record_id, time_us
        self._ledger.note([part], first, tail.prev)

    def _store(self, tail: Tail, batch: Batch, time_us: int) -> None:
        self._commit(tail, batch.data, batch.entries)
        tail.prev = batch.ids[-1]
        tail.next_seq += len(batch.ids)
        tail.last_time_us = time_us

    def _next_time(self, tail: Tail) -> int:
        """Now, but never earlier than the record before, nor later than a steady clock allows."""
        now = self._clock.now_us()
        wall, steady = self._clock_start
        ahead = (now - wall) - (self._clock.steady_us() - steady)
        if ahead > self._clock_limit_us:
            raise ClockJumped(
                f"{self.directory.shown}: the clock jumped ahead by {ahead // 1_000_000} seconds",
                hint="set the clock right; if it is right now, start again",
            )
        return max(now, tail.last_time_us)

    def _commit(self, tail: Tail, data: bytes, entries: bytes) -> None:
        """One write and one sync; on any failure the segment ends where it did before."""
        before = tail.length
        try:
            write_records(tail, data, entries)
            if self._sync:
                sync_and_list(tail)
        except BaseException:
            self._undo(tail, tail.durable if self._sync else before)
            raise

    def _undo(self, tail: Tail, length: int) -> None:
        """Takes back a batch that failed. If even that fails nobody may append: the buffer is closed."""
        try:
            cut_back(tail, length)
        except OSError as second:
            with contextlib.suppress(OSError):
                why = f"an append failed and could not be undone: {second.strerror}"
                os.close(write_marker(self.directory.closed, why, self._clock.now_us()))
            self._failed = Closed(f"{self.directory.shown}: an append failed and could not be undone; it is closed")
        self._forget_tail()

    # Segments

    def _open_segment(self, settings: Settings) -> None:
        """Seals the newest segment and opens the next; or, where it has no message yet, adds a PUT to it."""
        tail = self._the_tail()
        sync_and_list(tail)
        fsops.sync_data(tail.index_fd)
        time_us = self._next_time(tail)
        rotate = tail.count > 0
        put, put_id = self._encoder.put(tail.opening, settings, tail.prev, tail.next_seq, time_us, rotate=rotate)
        if tail.count == 0:
            self._commit(tail, put, b"")
            sync_and_list(tail)
            tail.opening = read_opening(PlainSegment(tail.segment_fd), self.directory.segment(tail.first).name)
            self._signing.take_key(tail.opening)
            tail.prev, tail.last_time_us = put_id, time_us
            return
        first, sealed = tail.next_seq, tail.first
        create_segment(self.directory, first, put, put_id)
        self._forget_tail()
        self._tail = self._open_created(first)
        self._rolled.add(sealed)

    def _open_behind(self, stranded: Stranded) -> Tail:
        time_us = max(self._clock.now_us(), stranded.last_time_us)
        settings, first = stranded.opening.settings, stranded.next_seq
        put, put_id = self._encoder.put(stranded.opening, settings, stranded.prev, first, time_us, rotate=True)
        create_segment(self.directory, first, put, put_id)
        return self._open_created(first)

    def _open_created(self, first: int) -> Tail:
        found = open_tail(self.directory, first, self._notice, self._signing.admit)
        if isinstance(found, Stranded):
            raise Damaged(f"{self.directory.segment(first).name}: changed while it was made")
        self._signing.take_key(found.opening)
        return found

    @property
    def has_rolled(self) -> bool:
        """Whether there is something for `seal_rolled` to do."""
        return bool(self._rolled)

    def seal_rolled(self) -> None:
        """Makes tags files of segments that were rolled, outside the lock. A help to readers, not a need.

        Where the settings say so they are compressed after that.
        """
        compress = self._tail is not None and self._tail.opening.settings.compress
        self._rolled.seal(compress=compress)
