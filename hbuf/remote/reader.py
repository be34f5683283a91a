"""Reading over HTTPS, as store.reader reads a directory. A server is believed no more than an index is.

Records come as they are stored. What does not parse, has a number that was not asked for, or is not in order, is
damage, whoever damaged it.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from typing import Self

from hbuf.errors import NotFound, Unavailable
from hbuf.format import index
from hbuf.format.entries import EntryBuilder
from hbuf.format.names import parse_segment_file
from hbuf.format.places import FIRST, Place, encode_place
from hbuf.format.scan import Record
from hbuf.format.tags import Terms
from hbuf.remote.buffer import RemoteBuffer
from hbuf.remote.connection import Answer
from hbuf.remote.segment import RemoteSegments
from hbuf.store.segment import windows
from hbuf.store.segment_file import Hole, SegmentFile
from hbuf.store.view import Chunk

_MOST_MESSAGES = 100_000
_WAIT_SECONDS = 30
_READ_SECONDS = 75.0
_TYPE = {"accept": "application/http"}


class RemoteReader:
    """Not for two threads at once. `refresh` looks again at what there is."""

    def __init__(self, buffer: RemoteBuffer) -> None:
        self.shown = buffer.shown
        self.name = buffer.name
        self.retired_seq = 0
        self.first_seq = 1
        self.end_seq = 1  # one more than the last number that can be read
        self._connection = buffer.connect()
        self._segments = RemoteSegments(self._connection)
        self._tenant: str | None = buffer.location.tenant
        self._damage: dict[tuple[int, int, str], None] = {}
        self._ahead: tuple[int, Terms | None, Answer] | None = None  # an answer that came by waiting for it
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._segments.close()
        self._connection.close()

    @property
    def tenant(self) -> str:
        if self._tenant is None:
            self._tenant = str(self._connection.get("/status").json().get("tenant"))
        return self._tenant

    def refresh(self) -> None:
        self._ask({"from": encode_place(FIRST), "max": "0"})

    def resolve(self, place: Place) -> int:
        """The number that a place means now. It may lie outside of what there is."""
        if place.kind == "number":
            return place.number
        if place.kind == "consumer":
            raise NotFound(f"{self.shown}: there is no consumer '{place.name}'")
        return self._number(self._ask({"from": encode_place(place), "max": "0"}), "x-hbuf-from")

    def back(self, count: int, end: int) -> int:
        """The number from which on there are `count` messages before `end`, or the first one that is there."""
        known = self.end_seq
        if count and end == known:
            found = self.resolve(Place("back", count))
            if self.end_seq == known:
                return found
            self.end_seq = known
        at = end
        while count and at > self.first_seq:
            start = max(at - count, self.first_seq)
            records = (not chunk.is_delete(i) for chunk in self.chunks(start, at) for i in range(len(chunk.entries)))
            count, at = count - sum(records), start
        return at

    def first_at(self, time_us: int) -> int:
        """The first number whose time is not earlier."""
        return self.resolve(Place("time", time_us=time_us))

    def chunks(self, start: int, end: int, terms: Terms | None = None) -> Iterator[Chunk]:
        """Records `start` up to but not `end`, in order. With `terms` only messages that have them, at the most."""
        at = start
        while at < end:
            answer = self._page(at, end, terms)
            following = self._number(answer, "x-hbuf-next")
            if following <= at:
                raise Unavailable(f"{self.shown}: the server does not go on behind message {at}")
            self._note(answer, at, end)
            yield from self._chunks_of(answer.body, at, min(end, following))
            at = following

    def wait(self, end: int, seconds: float | None, terms: Terms | None) -> int:
        """Returns when there are messages from `end` on, or the time is up: one more than the last number.

        From here on what breaks is tried again until it works.
        """
        self._connection.for_ever = True
        seconds = _WAIT_SECONDS if seconds is None else min(seconds, _WAIT_SECONDS)
        query = self._query(end, terms) | {"wait": f"{seconds:.3f}".rstrip("0").rstrip(".")}
        answer = self._ask(query, read_seconds=seconds + 15)
        self._ahead = (end, terms, answer) if self.end_seq > end else None
        return self.end_seq

    def note_damage(self, chunk: Chunk, i: int) -> None:
        """Record `i` of a chunk cannot be read."""
        self._damage[0, chunk.first + i, f"message {chunk.first + i} is damaged"] = None

    def damage_lines(self) -> list[str]:
        return [f"{self.shown}: {reason}" for _, _, reason in sorted(self._damage)]

    # What decrypting needs

    def segment_of(self, seq: int) -> int:
        """The first number of the segment that holds `seq`."""
        firsts = self._segments.firsts()
        if seq >= firsts[-1]:  # there may be newer ones, or more of the newest
            self._segments.refresh()
            firsts = self._segments.firsts()
        return firsts[max(bisect.bisect_right(firsts, seq) - 1, 0)]

    def segment(self, first: int) -> SegmentFile:
        return self._segments.segment(first)

    def segment_shown(self, first: int) -> str:
        return f"{self.shown}: {self._segments.file(first)}"

    def before(self, first: int, seq: int) -> tuple[int, int]:
        """All of the segment: message `seq` ends the search."""
        return 0, self._segments.segment(first).length

    # Asking

    def _page(self, at: int, end: int, terms: Terms | None) -> Answer:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[:2] == (at, terms):
            return ahead[2]
        return self._connection.get(query=self._query(at, terms) | {"to": str(end)}, headers=_TYPE)

    def _query(self, at: int, terms: Terms | None) -> dict[str, str]:
        query = {"from": str(at), "max": str(_MOST_MESSAGES)}
        if terms is not None and terms.key is not None:
            query["key"] = terms.key.decode("utf-8", "surrogateescape")
        if terms is not None and terms.tag is not None:
            query["tag"] = terms.tag.decode("utf-8", "surrogateescape")
        return query

    def _ask(self, query: dict[str, str], read_seconds: float = _READ_SECONDS) -> Answer:
        answer = self._connection.get(query=query, headers=_TYPE, read_seconds=read_seconds)
        self.first_seq = self._number(answer, "x-hbuf-first")
        self.end_seq = self._number(answer, "x-hbuf-last") + 1
        return answer

    def _number(self, answer: Answer, name: str) -> int:
        number = answer.number(name)
        if number is None:
            raise Unavailable(f"{self.shown}: the server's answer has no {name}")
        return number

    def _note(self, answer: Answer, start: int, end: int) -> None:
        """What an answer says is not there any more, or cannot be read."""
        retired = answer.number("x-hbuf-retired")
        if retired is not None and retired >= start:
            self.retired_seq = max(self.retired_seq, min(retired, end - 1))
        named = answer.headers.get_all("x-hbuf-damage", [])
        for text in named:
            file, _, rest = str(text).partition(" ")
            at, _, reason = rest.partition(" ")
            first = parse_segment_file(file)
            if first is None or not at.isdecimal():
                self._damage[0, 0, str(text)] = None
            else:
                self._damage[first, int(at), f"{file}: byte {at}: {reason}"] = None
        damaged = answer.number("x-hbuf-damaged")
        if damaged and not named:
            self._damage[0, start, f"{damaged} messages from {start} on are damaged"] = None

    def _chunks_of(self, data: bytes, start: int, end: int) -> Iterator[Chunk]:
        """The records of an answer, cut where numbers have a gap."""
        last = start - 1
        for window in windows(_Bytes(data), 0, len(data), start - 1):
            if window.damage:
                reason = f"what came from message {last + 1} on is damaged: {window.damage.reason}"
                self._damage[0, last + 1, reason] = None
                continue
            records = []
            for record in window.records:
                if record.seq >= end:
                    break
                if record.seq and record.seq <= last:
                    self._damage[0, record.seq, f"message {record.seq} came where it does not belong"] = None
                elif record.seq:
                    records.append(record)
                    last = record.seq
            for run in _runs(records):
                encoded = EntryBuilder(run[0].start).encode_entries(run, 0)
                at, after = run[0].start, run[-1].end
                yield Chunk(run[0].seq, at, window.data[at:after], index.parse_entries(encoded))


class _Bytes:
    """An answer, read as a segment is."""

    def __init__(self, data: bytes) -> None:
        self.length = len(data)
        self._data = data

    def pread(self, length: int, offset: int) -> bytes:
        return self._data[offset : offset + length]

    def hole(self, offset: int) -> Hole | None:
        return None


def _runs(records: list[Record]) -> Iterator[list[Record]]:
    """Records whose numbers follow each other."""
    for _, run in itertools.groupby(enumerate(records), lambda placed: placed[1].seq - placed[0]):
        yield [record for _, record in run]
