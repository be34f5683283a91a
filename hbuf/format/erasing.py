"""What erasing does to the bytes of a message, in place: no byte moves, and the chain stays as it is.

    x-hbuf-salt: <salt>   becomes   x-hbuf-gone: <commitment>, which has as many characters
    the fields            become    one line `x: ---…` of the same length
    the body              becomes   zeros

Head, id and signature stay. So a message can be found, and an erase that was cut short be finished, whatever state
the bytes between are in.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import NamedTuple

from hbuf.format.grammar import HEAD, MAX_BODY_BYTES, MAX_SECTION_BYTES, TRAILER_END
from hbuf.format.scan import Record

Patch = tuple[int, bytes]  # where, and what is written there

_GONE = b"x-hbuf-gone: "
_SALTED_BYTES = len(_GONE) + 43 + 2  # the line of a salt or of a commitment
_ID_LINE = b"\r\nx-hbuf-id: "
_ZEROS = bytes(1024 * 1024)

RECORD_HEAD = re.compile(HEAD)
_SECTION_END = re.compile(TRAILER_END)


class Layout(NamedTuple):
    """Where the parts of a message lie that an erase overwrites, counted from where its record begins."""

    head_end: int
    fields_end: int
    section_end: int
    end: int


def layout_of_record(record: Record) -> Layout:
    """Of a record as a scan finds it."""
    start = record.start
    return Layout(record.head_end - start, record.fields_end - start, record.section_end - start, record.end - start)


def find_layout(data: bytes, at: int, seq: int, record_id: bytes) -> Layout | None:
    """Of message `seq` of this id, whose record begins at `at`, even where an erase of it was cut short.

    `data` has the whole header section. No other record can have the same id: what it says of itself is believed.
    """
    head = RECORD_HEAD.match(data, at)
    if head is None or head["method"] != b"POST" or head["seq"] is None or int(head["seq"]) != seq:
        return None
    id_at = data.find(_ID_LINE + record_id + b"\r\n", head.end() - 2, at + MAX_SECTION_BYTES) + 2
    rest = _SECTION_END.match(data, id_at) if id_at >= 2 else None
    fields_end = id_at - _SALTED_BYTES
    body_length = int(head["length"])
    if rest is None or fields_end < head.end() or body_length > MAX_BODY_BYTES:
        return None
    section_end = rest.end()
    return Layout(head.end() - at, fields_end - at, section_end - at, section_end - at + body_length + 2)


def id_in(section: bytes) -> bytes | None:
    """The id that a header section ends with, whatever stands before it."""
    found = _SECTION_END.fullmatch(section, section.rfind(_ID_LINE) + 2)
    return found["id"] if found else None


def gone_patch(layout: Layout, offset: int, commitment: bytes) -> Patch:
    """The line that takes the place of the salt, of a record that begins at `offset`."""
    encoded = base64.urlsafe_b64encode(bytes.fromhex(commitment.decode())).rstrip(b"=")
    return offset + layout.fields_end, _GONE + encoded + b"\r\n"


def blank_patches(layout: Layout, offset: int) -> Iterator[Patch]:
    """The filler, and the zeros of the body."""
    if layout.fields_end > layout.head_end:
        yield offset + layout.head_end, filler(layout.fields_end - layout.head_end)
    yield from zeros(offset + layout.section_end, offset + layout.end - 2)


def filler(length: int) -> bytes:
    """One line in the place of fields. No fields are shorter than it: they are lines with longer names."""
    return b"x: " + b"-" * (length - 5) + b"\r\n"


def zeros(start: int, end: int) -> Iterator[Patch]:
    """In pieces that share their bytes: a body may be large."""
    for at in range(start, end, len(_ZEROS)):
        yield at, _ZEROS if end - at >= len(_ZEROS) else _ZEROS[: end - at]
