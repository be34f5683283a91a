"""What each writer sends: message `k` of a writer has one possible body, so that whoever checks can tell.

A body is `NAME/K/` and bytes that follow from both. Writers of lines send no newline.
"""

from __future__ import annotations

import random

_FAKE_RECORD = (
    b"\r\nPOST /b/orders HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: 1\r\nx-hbuf-time: 2026-11-18T04:51:00.123456Z\r\n"
    b"content-length: 0\r\nx-hbuf-id: " + b"0" * 64 + b"\r\n\r\n\r\n"
)
# One message in so many is long.
_LONG_EVERY = 60
_LONG_BYTES = 20_000
_SHORT_BYTES = 200


def body_of(writer: str, k: int, *, lines: bool) -> bytes:
    numbers = random.Random(f"{writer}/{k}")
    length = numbers.randrange(_LONG_BYTES if numbers.randrange(_LONG_EVERY) == 0 else _SHORT_BYTES)
    rest = numbers.randbytes(length)
    if lines:
        rest = rest.replace(b"\n", b" ")
    elif numbers.randrange(10) == 0:
        rest += _FAKE_RECORD
    return b"%b/%d/%b" % (writer.encode(), k, rest)


def parse_body(body: bytes) -> tuple[str, int] | None:
    """Writer and number of a body, or None for one that no writer sends."""
    parts = body.split(b"/", 2)
    if len(parts) != 3 or not parts[1].isdigit():
        return None
    return parts[0].decode(errors="replace"), int(parts[1])
