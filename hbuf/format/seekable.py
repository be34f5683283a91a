"""Compressed segments: Zstandard frames back to back, then the table of Zstandard's *seekable format*.

    frame  magic 0xFD2FB528 u32 | descriptor u8 | content size u8, u16 (less 256), u32 or u64 | blocks | checksum u32
    table  magic 0x184D2A5E u32 | bytes that follow u32 | entries | footer
    entry  (8 bytes):  bytes of the frame u32 | bytes of its content u32
    footer (9 bytes):  number of entries u32 | descriptor u8, 0 | magic 0x8F92EAB1 u32

All little-endian. Any Zstandard tool reads such a file: the table is a frame that decoders skip. It is checked here
that frames and table are exactly that, with nothing between; blocks are not decoded here.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable
from typing import NamedTuple

from hbuf.errors import Damaged

# What a frame holds: as much as readers take at a time. Read is any size up to the largest, where all frames of a file
# have the same and only the last has less: so one wrong number in a table cannot shift what follows.
FRAME_BYTES = 1024 * 1024
LARGEST_FRAME_BYTES = 16 * 1024 * 1024

_MAGIC = bytes.fromhex("28b52ffd")
HEADER_BYTES = 14  # no header is longer, and no frame shorter
_CHECKSUM_BYTES = 4
_DESCRIPTOR = 0b00100100  # single segment, content checksum; no dictionary, and the other bits are not used
_SIZE_FLAG_SHIFT = 6
_SIZES = (struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q"))
_SHORT_SIZE_OFFSET = 256  # what a content size of two bytes is less than the size

_TABLE_START = struct.Struct("<II")
_TABLE_MAGIC = 0x184D2A5E
_ENTRY = struct.Struct("<II")
_FOOTER = struct.Struct("<IBI")
_FOOTER_MAGIC = 0x8F92EAB1
FOOTER_BYTES = _FOOTER.size


class Frame(NamedTuple):
    """One frame of a compressed segment: where it lies in the file, and which bytes of the segment it holds."""

    at: int
    size: int
    start: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length


def encode_table(sizes: Iterable[tuple[int, int]]) -> bytes:
    """The table of frames, each given as its own bytes and the bytes of its content."""
    entries = [_ENTRY.pack(*each) for each in sizes]
    body = b"".join(entries) + _FOOTER.pack(len(entries), 0, _FOOTER_MAGIC)
    return _TABLE_START.pack(_TABLE_MAGIC, len(body)) + body


def parse_footer(data: bytes) -> int:
    """How many bytes at the end of a file are its table, from the last FOOTER_BYTES."""
    if len(data) < FOOTER_BYTES:
        raise Damaged("the seek table is missing")
    count, descriptor, magic = _FOOTER.unpack(data)
    if magic != _FOOTER_MAGIC or descriptor:
        raise Damaged("the seek table's footer is damaged or missing")
    return _TABLE_START.size + int(count) * _ENTRY.size + FOOTER_BYTES


def parse_table(data: bytes, file_bytes: int) -> list[Frame]:
    """The frames that a whole table names. They and it fill the file, or it is damaged."""
    if len(data) < _TABLE_START.size + FOOTER_BYTES or parse_footer(data[-FOOTER_BYTES:]) != len(data):
        raise Damaged("the seek table names more frames than the file can hold")
    if _TABLE_START.unpack_from(data) != (_TABLE_MAGIC, len(data) - _TABLE_START.size):
        raise Damaged("the seek table does not begin as it must")
    sizes = list(_ENTRY.iter_unpack(data[_TABLE_START.size : -FOOTER_BYTES]))
    if not sizes or not all(size and 0 < length <= LARGEST_FRAME_BYTES for size, length in sizes):
        raise Damaged("the seek table names a frame of a size that cannot be")
    if sum(size for size, _ in sizes) + len(data) != file_bytes:
        raise Damaged("the seek table names other frames than the file has")
    *lengths, last = (length for _, length in sizes)
    if lengths and (set(lengths) != {lengths[0]} or last > lengths[0]):
        raise Damaged("the seek table names frames that do not hold as much as the first")
    return _placed(sizes)


def content_bytes(frame: bytes) -> int:
    """What the header of a frame says of its content. Raises Damaged where it is not one that is written here."""
    if not frame.startswith(_MAGIC) or len(frame) < HEADER_BYTES:
        raise Damaged("no compressed frame begins here")
    flag = frame[4] >> _SIZE_FLAG_SHIFT
    if frame[4] & ((1 << _SIZE_FLAG_SHIFT) - 1) != _DESCRIPTOR:
        raise Damaged("the header of a compressed frame is not as it must be")
    size: int = _SIZES[flag].unpack_from(frame, 5)[0] + (_SHORT_SIZE_OFFSET if flag == 1 else 0)
    if not 0 < size <= LARGEST_FRAME_BYTES:
        raise Damaged("a compressed frame says that it holds more than one may")
    return size


def walk_frames(data: bytes) -> list[Frame]:
    """The frames of a file whose table cannot be used, from its first byte on.

    One that is cut short, or whose end cannot be told, is the last, and takes the rest.
    """
    sizes = []
    at = 0
    while data.startswith(_MAGIC, at):
        try:
            length = content_bytes(data[at : at + HEADER_BYTES])
        except Damaged:
            break
        end = _frame_end(data, at)
        sizes.append(((end or len(data)) - at, length))
        if end is None:
            break
        at = end
    return _placed(sizes)


def _frame_end(data: bytes, at: int) -> int | None:
    """Where the frame at `at` ends, by the headers of its blocks: their size, their kind, whether one is the last."""
    at += len(_MAGIC) + 1 + _SIZES[data[at + 4] >> _SIZE_FLAG_SHIFT].size
    is_last = False
    while not is_last:
        header = int.from_bytes(data[at : at + 3], "little")
        is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        at += 3 + (1 if kind == 1 else size)  # of a run only its one byte is there
        if kind == 3 or at + _CHECKSUM_BYTES > len(data):
            return None
    return at + _CHECKSUM_BYTES


def _placed(sizes: list[tuple[int, int]]) -> list[Frame]:
    ats = itertools.accumulate((size for size, _ in sizes), initial=0)
    starts = itertools.accumulate((length for _, length in sizes), initial=0)
    return [Frame(at, size, start, length) for at, start, (size, length) in zip(ats, starts, sizes, strict=False)]
