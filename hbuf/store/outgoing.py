"""Messages on their way into a buffer, in columns, and what became of them. Values; no files."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from hbuf.errors import ProducerGap
from hbuf.format.fields import NO_FIELDS, Fields
from hbuf.format.index import FLAG_UNIT
from hbuf.format.record import encode_own_lines


@dataclass(slots=True)
class Outgoing:
    """Messages to append, in columns. One `Fields` serves all of them, or there is one for each.

    `after` is the id that the last numbered record must have: they are stored only if nobody else came first.
    """

    bodies: Sequence[bytes]
    fields: Fields | Sequence[Fields] = NO_FIELDS
    producers: Sequence[tuple[bytes, int] | None] | None = None
    unit: bool = False
    strict_seq: bool = False
    after: bytes | None = None

    def part(self, start: int, end: int | None = None) -> Outgoing:
        fields = self.fields if isinstance(self.fields, Fields) else self.fields[start:end]
        producers = self.producers[start:end] if self.producers is not None else None
        return replace(self, bodies=self.bodies[start:end], fields=fields, producers=producers)

    def only(self, places: Sequence[int]) -> Outgoing:
        fields = self.fields if isinstance(self.fields, Fields) else [self.fields[place] for place in places]
        producers = [self.producers[place] for place in places] if self.producers is not None else None
        return replace(self, bodies=[self.bodies[place] for place in places], fields=fields, producers=producers)

    def most_bytes_each(self, lines_bytes: int) -> list[int]:
        """No fewer bytes than each message will take; `lines_bytes` is for the lines that all have."""
        if isinstance(self.fields, Fields) and not self.unit and self.producers is None:
            around = lines_bytes + len(self.fields.encoded)
            return [len(body) + around for body in self.bodies]
        each = zip(self.bodies, self.each_fields(), self.each_own_lines(), strict=False)
        return [len(body) + len(fields.encoded) + len(own) + lines_bytes for body, fields, own in each]

    def each_fields(self) -> Iterable[Fields]:
        return itertools.repeat(self.fields) if isinstance(self.fields, Fields) else self.fields

    def columns(self) -> Columns:
        flags = itertools.repeat(FLAG_UNIT if self.unit else 0)
        return Columns(self.bodies, self.each_fields(), self.each_own_lines(), flags)

    def each_own_lines(self) -> Iterable[bytes]:
        if not self.unit and self.producers is None:
            return itertools.repeat(b"")
        size = len(self.bodies)
        producers = self.producers if self.producers is not None else itertools.repeat(None, size)
        return [
            encode_own_lines(unit=(i, size) if self.unit else None, producer=producer)
            for i, producer in enumerate(producers, 1)
        ]


class Columns(NamedTuple):
    """Messages as they are encoded. All but `bodies` may be endless."""

    bodies: Sequence[bytes]
    fields: Iterable[Fields]
    own_lines: Iterable[bytes]
    flags: Iterable[int]


def joined(parts: Sequence[Outgoing]) -> Columns:
    """Messages of several senders, one behind the other; the units among them stay units."""
    if len(parts) == 1:
        return parts[0].columns()
    bodies: list[bytes] = []
    fields: list[Fields] = []
    own_lines: list[bytes] = []
    flags: list[int] = []
    for part in parts:
        size = len(part.bodies)
        bodies += part.bodies
        fields += itertools.islice(part.each_fields(), size)
        own_lines += itertools.islice(part.each_own_lines(), size)
        flags += [FLAG_UNIT if part.unit else 0] * size
    return Columns(bodies, fields, own_lines, flags)


@dataclass(slots=True)
class Appended:
    """What became of an `Outgoing`, message by message. A duplicate has the number it already had, or 0."""

    seqs: list[int] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)
    times_us: list[int] = field(default_factory=list)  # 0 for a duplicate
    duplicates: set[int] = field(default_factory=set)  # places in the batch

    @classmethod
    def of(cls, count: int) -> Appended:
        return cls([0] * count, [b""] * count, [0] * count)

    def forget_from(self, place: int) -> None:
        """What comes from `place` on is not settled."""
        del self.seqs[place:], self.ids[place:], self.times_us[place:]
        self.duplicates = {each for each in self.duplicates if each < place}

    def extend(self, following: Appended) -> None:
        self.duplicates.update(len(self.seqs) + place for place in following.duplicates)
        self.seqs += following.seqs
        self.ids += following.ids
        self.times_us += following.times_us


def numbers_of(outgoing: Outgoing, first: int) -> dict[bytes, tuple[int, int]]:
    """The last number of each of its producers, and of the message that has it, if the first becomes `first`."""
    return {
        producer[0]: (producer[1], seq)
        for seq, producer in enumerate(outgoing.producers or (), first)
        if producer is not None
    }


Numbers = Mapping[bytes, tuple[int, int]]  # the last number of each producer, and of the message that has it


def fresh_places(
    outgoing: Outgoing, known: Numbers, done: Appended, ahead: Numbers = MappingProxyType({})
) -> list[int]:
    """Which messages are new: a producer's number that is not greater than its last is a duplicate.

    `ahead` is what will be known when those have been stored that are to be written first.
    """
    if outgoing.producers is None:
        return list(range(len(outgoing.bodies)))
    last: dict[bytes, tuple[int, int]] = {}
    fresh: list[int] = []
    for place, producer in enumerate(outgoing.producers):
        if producer is not None:
            name, number = producer
            before = last.get(name) or ahead.get(name) or known.get(name)
            if before and number <= before[0]:
                done.duplicates.add(place)
                done.seqs[place] = before[1] if number == before[0] else 0
                continue
            if outgoing.strict_seq and before and number != before[0] + 1:
                raise ProducerGap(f"producer {name.decode()} goes from {before[0]} to {number}")
            if not outgoing.unit:  # the messages of a unit may share one number
                last[name] = (number, 0)
        fresh.append(place)
    return fresh
