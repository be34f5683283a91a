"""The tags file of a sealed segment: which keys and tags are in it, and in which records.

    header (96 bytes, little-endian): magic 4s | version u16 | unused u16 | first u64 | records u32 | terms u32
                                      | places u32 | unused u32 | id of the opening PUT 32s
                                      | BLAKE2b-256 of all the rest 32s
    term  (16 bytes, sorted by hash): hash u64 | index of its first place u32 | how many u32
    place (4 bytes): the record's number, less the segment's first

A term is a key or a tag; its hash is BLAKE2b of 8 bytes, from the standard library, so that a reader needs no
package. A set of millions is matched against a segment's distinct terms, not against its messages, and a match
is confirmed on the record. The checksum guards against bits that flipped, not against an attacker:
`hbuf-verify` compares the file with its segment.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from hbuf.errors import Damaged

MAGIC = b"hbtg"
VERSION = 1
_HEADER = struct.Struct("<4sHHQIIII32s32s")
_TERM = struct.Struct("<QII")
_PLACE = struct.Struct("<I")
_LAST_PLACE = 2**32 - 1  # more than a segment can hold: a number beyond it is damaged
_CHECKSUM_AT = _HEADER.size - 32


def key_term(key: bytes) -> bytes:
    return b"k" + key


def tag_term(tag: bytes) -> bytes:
    return b"t" + tag


def term_hash(term: bytes) -> int:
    return int.from_bytes(blake2b(term, digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class Tags:
    """A tags file, read."""

    first: int
    records: int
    put_id: bytes
    hashes: array[int]
    starts: array[int]
    counts: array[int]
    places: array[int]

    def find(self, terms: Iterable[bytes]) -> set[int]:
        """Numbers of the records that may have one of `terms`."""
        found: set[int] = set()
        for term in terms:
            wanted = term_hash(term)
            at = bisect_left(self.hashes, wanted)
            if at < len(self.hashes) and self.hashes[at] == wanted:
                start = self.starts[at]
                found.update(self.first + place for place in self.places[start : start + self.counts[at]])
        return found


class Terms(NamedTuple):
    """A key, a tag, or both that a message must have."""

    key: bytes | None = None
    tag: bytes | None = None

    def find(self, tags: Tags) -> set[int]:
        """The numbers that a sealed segment's tags file names."""
        terms = [key_term(self.key)] if self.key is not None else []
        terms += [tag_term(self.tag)] if self.tag is not None else []
        return set.intersection(*(tags.find([term]) for term in terms))


def encode_tags(first: int, records: int, put_id: bytes, terms: Mapping[bytes, list[int]]) -> bytes:
    """`terms` gives, for each key_term and tag_term, the numbers that have it, ascending."""
    by_hash: dict[int, list[int]] = {}
    for term, numbers in terms.items():
        hashed = term_hash(term)
        by_hash[hashed] = sorted({*by_hash[hashed], *numbers}) if hashed in by_hash else numbers
    return _encode(first, records, put_id, by_hash)


def without_numbers(tags: Tags, numbers: Container[int]) -> bytes:
    """The tags file of the same segment with some of its messages erased."""
    by_hash = {}
    for hashed, start, count in zip(tags.hashes, tags.starts, tags.counts, strict=True):
        places = tags.places[start : start + count]
        left = [tags.first + place for place in places if tags.first + place not in numbers]
        if left:
            by_hash[hashed] = left
    return _encode(tags.first, tags.records, tags.put_id, by_hash)


def _encode(first: int, records: int, put_id: bytes, by_hash: Mapping[int, list[int]]) -> bytes:
    table = bytearray()
    places = bytearray()
    count = 0
    for hashed in sorted(by_hash):
        numbers = by_hash[hashed]
        table += _TERM.pack(hashed, count, len(numbers))
        places += b"".join(_PLACE.pack(min(number - first, _LAST_PLACE)) for number in numbers)
        count += len(numbers)
    rest = bytes(table + places)
    start = _HEADER.pack(MAGIC, VERSION, 0, first, records, len(by_hash), count, 0, put_id, bytes(32))[:_CHECKSUM_AT]
    return start + blake2b(start + rest, digest_size=32).digest() + rest


def parse_tags_file(data: bytes) -> Tags:
    """Raises Damaged for anything that is not whole and unchanged."""
    if len(data) < _HEADER.size:
        raise Damaged("the tags file is shorter than its header")
    magic, version, _, first, records, terms, places, _, put_id, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise Damaged("the tags file has another magic or version")
    rest = data[_HEADER.size :]
    if len(rest) != terms * _TERM.size + places * _PLACE.size:
        raise Damaged("the tags file has another length than it says")
    if blake2b(data[:_CHECKSUM_AT] + rest, digest_size=32).digest() != checksum:
        raise Damaged("the tags file's checksum does not match")
    table = list(_TERM.iter_unpack(rest[: terms * _TERM.size]))
    return Tags(
        first,
        records,
        put_id,
        array("Q", [row[0] for row in table]),
        array("L", [row[1] for row in table]),
        array("L", [row[2] for row in table]),
        array("L", [place for (place,) in _PLACE.iter_unpack(rest[terms * _TERM.size :])]),
    )
