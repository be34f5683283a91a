"""Requests of several senders that are written together, and what becomes of each. Nothing is written here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hbuf.store.outgoing import Appended, Outgoing, numbers_of
from hbuf.store.room import has_room
from hbuf.store.tail import Tail

_MOST_BYTES = 256 * 1024**2  # in one write; a single request may have more


@dataclass(slots=True)
class Run:
    """They are settled together: also a duplicate of one of them counts as stored only when that is stored."""

    parts: list[Outgoing] = field(default_factory=list)  # what is new of each request that has something new
    numbers: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # producers' last, with those of the parts
    count: int = 0  # messages in the parts
    size: int = 0  # bytes that they take at most
    done: dict[int, Appended] = field(default_factory=dict)  # by the place of the request
    _places: list[tuple[int, Sequence[int]]] = field(default_factory=list)  # of each part: request, and where in it

    def has_room(self, tail: Tail, size: int) -> bool:
        """Whether `size` bytes more fit into the segment and into one write."""
        fits = has_room(tail, size, ahead_count=self.count, ahead_bytes=self.size)
        return fits and self.size + size <= _MOST_BYTES

    def take(self, request: int, fresh: Outgoing, places: Sequence[int], done: Appended, next_seq: int) -> None:
        """Adds a request, of which the messages at `places` are new. `next_seq` is the number of the run's first."""
        self.done[request] = done
        if places:
            if fresh.producers is not None:
                self.numbers.update(numbers_of(fresh, next_seq + self.count))
            self.parts.append(fresh)
            self._places.append((request, places))
            self.count += len(places)

    def settle(self, first: int, ids: Sequence[bytes], time_us: int) -> None:
        """The parts are stored, as messages `first`, `first + 1`, …"""
        at = 0
        for request, places in self._places:
            done = self.done[request]
            if len(places) == len(done.seqs):
                end = at + len(places)
                done.seqs = list(range(first + at, first + end))
                done.ids = list(ids[at:end])
                done.times_us = [time_us] * len(places)
                at = end
                continue
            for place in places:
                done.seqs[place], done.ids[place], done.times_us[place] = first + at, ids[at], time_us
                at += 1
