"""What one answer holds of a buffer: bounded in messages and bytes, in one of three forms. It runs on a reading thread.

Records go out as they are stored; none is parsed where none must be looked for.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from hbuf.format.index import Entry
from hbuf.format.jsonlines import encode_json
from hbuf.format.message import message_of
from hbuf.format.places import Place
from hbuf.ops.filter import Filter
from hbuf.ops.tail import select_chunks
from hbuf.store.reader import Reader
from hbuf.store.view import Chunk

Form = Literal["http", "json", "body"]


@dataclass(slots=True)
class Read:
    start: int  # what `from` means
    end: int  # what `to` means
    next: int  # where to go on
    first: int
    last: int
    parts: list[bytes] = field(default_factory=list)
    count: int = 0  # of messages
    size: int = 0  # of all parts
    retired: int = 0  # the last number that was asked for and is retired
    damage: list[str] = field(default_factory=list)  # FILE BYTE REASON
    is_bounded: bool = False  # by `to`: there is nothing to wait for


@dataclass(frozen=True, slots=True)
class Wanted:
    start: Place
    end: Place | None
    filter: Filter
    most: int
    form: Form
    most_bytes: int

    @property
    def is_plain(self) -> bool:
        """Whether records go out as they are stored, one behind the other."""
        return self.form == "http" and self.filter.wants_all

    def following(self, found: Read) -> Wanted:
        """What comes behind an answer without messages."""
        return replace(self, start=Place("number", found.next))

    def read(self, reader: Reader) -> Read:
        start = reader.resolve(self.start)
        end = reader.end_seq
        first, last = reader.first_seq, end - 1
        bounded = False
        if self.end is not None:
            wanted_end = reader.resolve(self.end)
            bounded = wanted_end <= end
            end = min(end, wanted_end)
        found = Read(start, end, max(start, first) if start < end else start, first, last, is_bounded=bounded)
        if start < first:
            found.retired = min(end, first) - 1
        reader.retired_seq = 0
        if self.most:
            _fill(found, self, reader, max(start, 1), end)
        found.retired = max(found.retired, reader.retired_seq)
        found.damage = damage_between(reader, start, found.next)
        return found


def _fill(found: Read, wanted: Wanted, reader: Reader, start: int, end: int) -> None:
    at = max(start, found.first)
    while at < end:
        # A chunk is a megabyte: no more of it is read than can be wanted.
        stop = min(end, at + wanted.most - found.count) if wanted.filter.wants_all else end
        for chunk, places in _chunks(reader, at, stop, wanted):
            if wanted.is_plain and not chunk.suspect and chunk.has_messages_only():
                full = _take_run(found, wanted, chunk)
            else:
                full = _take_each(found, wanted, reader, chunk, places)
            if full:
                return
        at = stop
        found.next = max(found.next, at)


def _chunks(reader: Reader, start: int, end: int, wanted: Wanted) -> Iterator[tuple[Chunk, Sequence[int]]]:
    if not wanted.is_plain:
        yield from select_chunks(reader, start, end, wanted.filter)
        return
    for chunk in reader.chunks(start, end):
        yield chunk, range(len(chunk.entries))


def _take_run(found: Read, wanted: Wanted, chunk: Chunk) -> bool:
    """As many records as there is room for, in one piece. Returns whether that was the last."""
    entries = chunk.entries
    most = min(len(entries), wanted.most - found.count)
    room = chunk.base + wanted.most_bytes - found.size
    taken = bisect.bisect_right(entries, room, hi=most, key=_end_of)
    if not taken and not found.count:
        taken = 1
    if taken:
        stop = entries[taken - 1].end - chunk.base
        data = chunk.data if stop == len(chunk.data) else chunk.data[:stop]
        found.parts.append(data)
        found.size += len(data)
        found.count += taken
        found.next = chunk.first + taken
    return taken < len(entries) or found.count >= wanted.most


def _end_of(entry: Entry) -> int:
    return entry.end


def _take_each(found: Read, wanted: Wanted, reader: Reader, chunk: Chunk, places: Sequence[int]) -> bool:
    """Record by record: those that are wanted, and of all records those that are no message either."""
    only_bodies = wanted.form == "body" and _has_only_bodies(chunk)
    for i in places:
        seq = chunk.first + i
        if found.count >= wanted.most:
            return True
        is_message, data = (True, chunk.body(i)) if only_bodies else _encoded(wanted, reader, chunk, i)
        if data is None:
            continue
        if found.size and found.size + len(data) > wanted.most_bytes:
            found.next = seq
            return True
        found.parts.append(data)
        found.size += len(data)
        found.count += is_message
        found.next = seq + 1
    if found.count >= wanted.most:
        return True
    found.next = chunk.first + len(chunk.entries)
    return False


def _has_only_bodies(chunk: Chunk) -> bool:
    """Whether every record of it has a body that can be told, so that none must be parsed."""
    if chunk.suspect or not chunk.has_messages_only() or chunk.may_have_erased():
        return False
    return b"\r\nx-hbuf-data-key: " not in chunk.data


def _encoded(wanted: Wanted, reader: Reader, chunk: Chunk, i: int) -> tuple[bool, bytes | None]:
    """Whether record `i` is a message, and what goes out of it, if anything does."""
    record = chunk.parse(i)
    if record is None:
        reader.note_damage(chunk, i)
        return False, None
    is_message = record.method == b"POST"
    if wanted.form == "http":
        return is_message, chunk.data[record.start : record.end]
    if not is_message:
        return False, None
    message = message_of(chunk.data, record, reader.directory.tenant, reader.directory.name)
    if wanted.form == "json":
        return True, encode_json(message) + b"\n"
    if message.erased or message.encrypted:
        return False, None
    return True, message.body


def damage_between(reader: Reader, start: int, end: int) -> list[str]:
    """What is damaged in an answer with the numbers from `start` up to `end`."""
    found = []
    for (first, at), reason in sorted(reader.damage.items()):
        if reader.segment_of(max(start, 1)) > first or first >= max(end, start + 1):
            continue
        seq = reader.damaged_seqs.get((first, at))
        if seq is None:
            try:
                seq = reader.view(first).number_at(at)
            except FileNotFoundError:
                continue
        if start <= seq < max(end, start + 1):
            found.append(f"{reader.directory.segment_file(first).name} {at} {reason}")
    return found
