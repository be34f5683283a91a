"""What stands between messages in a stream, as a user writes it."""

from __future__ import annotations

import codecs
import os

from hbuf.errors import UsageError


def decode_separator(text: str) -> bytes:
    """Bytes of a separator, with \\n, \\t, \\0 and \\xHH understood."""
    try:
        decoded, _ = codecs.escape_decode(os.fsencode(text))
    except ValueError:
        raise UsageError(f"'{text}' is not a separator") from None
    return bytes(decoded)
