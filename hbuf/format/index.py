"""The index of a segment: a header, then 32 bytes for each numbered record. It is never evidence.

    header (64 bytes, little-endian): magic 4s | version u16 | unused u16 | first u64 | durable length u64
                                      | erase counter u64 | id of the opening PUT 32s
    entry  (32 bytes): time i64 (µs) | offset u32 | body length u32 | section length u16 | head length u16
                       | key offset u16 (0: none) | key length u16 | tags length u16 | flags u16
                       | first 4 bytes of the id, as a big-endian number stored u32

The erase counter goes up by one when messages of the segment begin to be erased, and again when they are: it is odd
in between. The durable length is written after the entries, and never ahead of what is on disk: lock-free readers show
what lies below it and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hbuf.errors import Damaged

MAGIC = b"hbix"
VERSION = 1
HEADER = struct.Struct("<4sHHQQQ32s")
HEADER_BYTES = HEADER.size
ENTRY = struct.Struct("<qIIHHHHHHI")
ENTRY_BYTES = ENTRY.size
DURABLE_LENGTH_AT = 16
ERASE_COUNTER_AT = 24
LENGTH = struct.Struct("<Q")

# An offset is 32 bits: no record begins behind this.
MAX_SEGMENT_BYTES = 2**32 - 1

FLAG_DELETE = 1
FLAG_ERASED = 2
FLAG_ENCRYPTED = 4
FLAG_SIGNED = 8
FLAG_UNIT = 16
FLAG_GAP = 32  # other bytes lie before this record: a PUT, or damage

_FLAGS_AT = 26
_DELETES = bytes(flags & FLAG_DELETE for flags in range(256))  # of each value of the flags' lower byte


class Header(NamedTuple):
    first: int
    durable_length: int
    erase_counter: int
    put_id: bytes  # 32 bytes


class Entry(NamedTuple):
    time_us: int
    offset: int
    body_length: int
    section_length: int
    head_length: int
    key_offset: int
    key_length: int
    tags_length: int
    flags: int
    id_start: int

    @property
    def end(self) -> int:
        return self.offset + self.section_length + self.body_length + 2


def encode_header(header: Header) -> bytes:
    first, durable_length, erase_counter, put_id = header
    return HEADER.pack(MAGIC, VERSION, 0, first, durable_length, erase_counter, put_id)


def parse_header(data: bytes) -> Header:
    """Raises Damaged for bytes that are not the header of an index of this version."""
    if len(data) < HEADER_BYTES:
        raise Damaged("the index is shorter than its header")
    magic, version, _, first, durable_length, erase_counter, put_id = HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise Damaged("the index has another magic or version")
    return Header(first, durable_length, erase_counter, put_id)


def settled(erase_counter: int) -> int:
    """The counter of an index that is made anew: even, since nothing of its segment is being erased."""
    return erase_counter + (erase_counter & 1)


def parse_entry(data: bytes | bytearray, i: int) -> Entry:
    """Entry `i` of entries back to back."""
    return Entry._make(ENTRY.unpack_from(data, i * ENTRY_BYTES))


def parse_entries(data: bytes | bytearray | memoryview) -> list[Entry]:
    return list(map(Entry._make, ENTRY.iter_unpack(data)))


def iterate_entries(data: bytes | memoryview) -> Iterator[tuple[int, ...]]:
    """The entries as bare tuples, for loops over many."""
    return ENTRY.iter_unpack(data)


def delete_flags(data: bytes | bytearray) -> bytes | bytearray:
    """A byte for each of entries back to back: 1 for a DELETE, 0 for a message."""
    return data[_FLAGS_AT::ENTRY_BYTES].translate(_DELETES)


def joins(entries: Iterable[Entry], start: int) -> bool:
    """Whether each entry begins where the one before ends (or says that it does not), from `start` on."""
    at = start
    for entry in entries:
        if entry.offset != at and not (entry.flags & FLAG_GAP and entry.offset > at):
            return False
        at = entry.end
    return True
