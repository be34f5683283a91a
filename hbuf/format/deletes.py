"""What a DELETE says: that one message was erased, or that everything up to a number was retired.

    x-hbuf-erases: <number> <id> <commitment>
    x-hbuf-retires: 1-<number> <id of that number>
    x-hbuf-by: <who>
    x-hbuf-reason: <why>

Its body is empty. What it says is covered by the chain as every head is.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hbuf.errors import UsageError
from hbuf.format.grammar import VALUE, is_text

MAX_REASON_BYTES = 1024

ERASES = re.compile(rb"([1-9][0-9]{0,18}) ([0-9a-f]{64}) ([0-9a-f]{64})")
RETIRES = re.compile(rb"1-([1-9][0-9]{0,18}) ([0-9a-f]{64})")

_ERASES_LINE = re.compile(rb"(?m)^x-hbuf-erases: " + ERASES.pattern + rb"\r\n")
_RETIRES_LINE = re.compile(rb"(?m)^x-hbuf-retires: " + RETIRES.pattern + rb"\r\n")


class Erasure(NamedTuple):
    """Message `seq`, of this id, may be gone: its commitment takes the place of what it covered."""

    seq: int
    id: bytes
    commitment: bytes


class Retirement(NamedTuple):
    """All messages up to `end`, which has this id, may be gone."""

    end: int
    id: bytes


def encode_delete(what: Erasure | Retirement, by: bytes, reason: bytes) -> bytes:
    """The head's own lines of a DELETE."""
    line = b"x-hbuf-erases: %d %b %b\r\n" if isinstance(what, Erasure) else b"x-hbuf-retires: 1-%d %b\r\n"
    return line % what + b"x-hbuf-by: %b\r\nx-hbuf-reason: %b\r\n" % (by, reason)


def parse_delete(own: bytes) -> Erasure | Retirement:
    """What the own lines of a DELETE say, which match the grammar."""
    if found := _ERASES_LINE.search(own):
        return Erasure(int(found[1]), found[2], found[3])
    if found := _RETIRES_LINE.search(own):
        return Retirement(int(found[1]), found[2])
    raise ValueError("neither erases nor retires")


def check_reason(reason: str) -> bytes:
    """A reason as a line can hold it."""
    encoded = reason.encode("utf-8", "surrogateescape")
    if not VALUE.fullmatch(encoded) or not is_text(encoded) or len(encoded) > MAX_REASON_BYTES:
        hint = f"no control characters, no blanks at its ends, at most {MAX_REASON_BYTES} bytes"
        raise UsageError("the reason must be one line of text", hint=hint)
    return encoded
