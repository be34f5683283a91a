"""What bytes that were set aside still hold of messages: whole records, and records that are cut off or damaged.

An append that was interrupted leaves its message there, and the message that was stored in its stead has another
salt. So it is known by its key and body, as far as they are there. To take too much is right here: nobody was ever
told that these bytes are stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from hbuf.format.erasing import RECORD_HEAD
from hbuf.format.grammar import MAX_SECTION_BYTES
from hbuf.format.scan import Record, Unreadable, key_of, parse_record, record_starts

_KEY = re.compile(rb"x-hbuf-key: ([^\r\n]+)\r\n")
_SALT = re.compile(rb"(?:^|\r\n)x-hbuf-salt: ([A-Za-z0-9_-]{43})(?:\r|$)")
_NOT_ZERO = re.compile(rb"[^\0]+")
_ZEROS = bytes(8)
# Of salt, id, signature where there is one, and the blank line.
_TRAILER_BYTES = (58 + 77 + 2, 58 + 77 + 100 + 2)
_TRAILER = re.compile(rb"(?:^|(?<=\r\n))x-hbuf-(?:salt|gone|id): ")


class Region(NamedTuple):
    start: int
    end: int


class Erased(NamedTuple):
    """What a message says that is to be forgotten."""

    salt: bytes
    key: bytes | None
    fields: bytes
    body: bytes


def erased_of(data: bytes, record: Record) -> Erased:
    fields = data[record.head_end : record.fields_end]
    return Erased(record.salt, key_of(data, record), fields, data[record.section_end : record.body_end])


class _Torn(NamedTuple):
    """What is left of a record behind its head."""

    region: Region
    fields: bytes
    fields_whole: bool
    bodies: tuple[bytes, ...]  # up to where it should end, and up to where the next record begins

    def is_of(self, erased: Erased) -> bool:
        if not self.fields_whole:
            # It may end in the trailer, in a line that cannot be told yet.
            shorter = min(len(self.fields), len(erased.fields))
            return shorter > 0 and self.fields[:shorter] == erased.fields[:shorter]
        key = _KEY.match(self.fields)
        if (key[1] if key else None) != erased.key:
            return False
        if any(self.bodies):
            return any(body and erased.body.startswith(body) for body in self.bodies)
        return bool(self.fields) and (key is not None or self.fields == erased.fields)


class _Blanked(NamedTuple):
    """A record with zeros behind its head: overwriting it may have been interrupted, at any page."""

    start: int  # behind the head
    rest: bytes

    def regions_of(self, erased: Erased) -> Iterator[Region]:
        for trailer in _TRAILER_BYTES:
            body_at = len(erased.fields) + trailer
            expected = erased.fields + bytes(trailer) + erased.body
            left = self.rest[: len(erased.fields)] + bytes(trailer) + self.rest[body_at : body_at + len(erased.body)]
            if all(expected.startswith(found[0], found.start()) for found in _NOT_ZERO.finditer(left)):
                yield Region(self.start, self.start + min(len(expected), len(self.rest)))


class Remains:
    """The records in some bytes, to be compared with many messages."""

    def __init__(self, data: bytes) -> None:
        self._salts: dict[bytes, list[Region]] = {}
        self._whole: dict[tuple[bytes | None, bytes], list[Region]] = {}
        self._torn: list[_Torn] = []
        self._blanked: list[_Blanked] = []
        end = 0
        starts = list(record_starts(data))
        for start, following in zip(starts, [*starts[1:], len(data)], strict=False):
            if start < end:
                continue  # in the body of a whole record
            self._add_blanked(data, start, following)
            record = parse_record(data, start)
            if isinstance(record, Unreadable):
                self._add_torn(data, start, following)
            else:
                end = record.end
                self._add_whole(data, record)

    def regions_of(self, erased: Erased) -> Iterator[Region]:
        """Where something of the message may be."""
        yield from self._salts.get(erased.salt, ())
        if self._whole:
            yield from self._whole.get((erased.key, _digest(erased.body)), ())
        yield from (torn.region for torn in self._torn if torn.is_of(erased))
        for blanked in self._blanked:
            yield from blanked.regions_of(erased)

    def _add_whole(self, data: bytes, record: Record) -> None:
        if record.method == b"POST" and record.salted != b"gone":
            erased = erased_of(data, record)
            region = Region(record.head_end, record.body_end)
            self._salts.setdefault(erased.salt, []).append(region)
            self._whole.setdefault((erased.key, _digest(erased.body)), []).append(region)

    def _add_blanked(self, data: bytes, start: int, following: int) -> None:
        head = RECORD_HEAD.match(data, start)
        if head is not None and head["method"] == b"POST" and data[head.end() : following].strip(b"\0\r\n"):
            rest = data[head.end() : head.end() + MAX_SECTION_BYTES + int(head["length"])]
            if _ZEROS in rest:
                self._blanked.append(_Blanked(head.end(), rest))

    def _add_torn(self, data: bytes, start: int, following: int) -> None:
        head = RECORD_HEAD.match(data, start)
        if head is None or head["method"] != b"POST":
            return
        body_at = data.find(b"\r\n\r\n", head.end() - 2) + 4
        is_cut = not 4 <= body_at <= following
        section = data[head.end() : following if is_cut else body_at - 2]
        body_end = min(body_at + int(head["length"]), len(data))
        bodies = () if is_cut else (data[body_at:body_end], data[body_at:following])
        trailer = _TRAILER.search(section)
        region = Region(head.end(), following if is_cut else max(body_end, following))
        fields = section[: trailer.start()] if trailer else section
        self._torn.append(_Torn(region, fields, trailer is not None, bodies))
        salt = _SALT.search(section)
        if salt:
            self._salts.setdefault(salt[1], []).append(region)


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()
