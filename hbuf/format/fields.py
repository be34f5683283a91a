"""A message's fields: its key, its tags, and what is kept of a client's own header fields.

They can be erased with the body, so they stand behind the head. One `Fields` can serve a whole batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hbuf.errors import TooLarge, UsageError
from hbuf.format.grammar import CLIENT_NAME, LINE, MAX_FIELDS_BYTES, VALUE, is_text

# The longest head and trailer have 830 bytes besides a producer's name, and 1024 are kept free for them.
MAX_PRODUCER_BYTES = 128

_KEY_LINE_START = len("x-hbuf-key: ")


class Fields(NamedTuple):
    """Field lines as they are stored, and what the index says of them."""

    encoded: bytes
    key_offset: int  # of the key's value, from the first field; 0 where there is none
    key_length: int
    tags_length: int  # of all tag lines together


NO_FIELDS = Fields(b"", 0, 0, 0)


def encode_fields(key: str | None, tags: Iterable[str], headers: Iterable[tuple[str, str]]) -> Fields:
    key_line = b""
    key_length = 0
    if key is not None:
        value = _checked_value("key", key)
        if not value:
            raise UsageError("a key cannot be empty")
        key_line = b"x-hbuf-key: %b\r\n" % value
        key_length = len(value)
    tag_lines = b"".join(b"x-hbuf-tag: %b\r\n" % _checked_value("tag", tag) for tag in tags)
    header_lines = b"".join(
        b"%b: %b\r\n" % (_checked_name(name), _checked_value(name, value)) for name, value in headers
    )
    encoded = key_line + tag_lines + header_lines
    if not encoded:
        return NO_FIELDS
    if len(encoded) > MAX_FIELDS_BYTES:
        raise TooLarge(f"key, tags and fields have {len(encoded)} bytes; the limit is {MAX_FIELDS_BYTES}")
    return Fields(encoded, _KEY_LINE_START if key_length else 0, key_length, len(tag_lines))


def parse_fields(encoded: bytes) -> tuple[str | None, tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Key, tags and headers of the field lines of a record that passed the grammar."""
    if not encoded:
        return None, (), ()
    key: str | None = None
    tags: list[str] = []
    headers: list[tuple[str, str]] = []
    for name, value in LINE.findall(encoded):
        if name == b"x-hbuf-key":
            key = value.decode()
        elif name == b"x-hbuf-tag":
            tags.append(value.decode())
        else:
            headers.append((name.decode(), value.decode()))
    return key, tuple(tags), tuple(headers)


def parse_tags(tag_lines: bytes) -> list[bytes]:
    """The values of encoded tag lines."""
    return [value for _, value in LINE.findall(tag_lines)]


def encode_producer(name: str) -> bytes:
    encoded = _checked_value("producer", name)
    if not encoded:
        raise UsageError("a producer's name cannot be empty")
    if len(encoded) > MAX_PRODUCER_BYTES:
        raise UsageError(f"the producer's name has {len(encoded)} bytes; the limit is {MAX_PRODUCER_BYTES}")
    return encoded


def _checked_name(name: str) -> bytes:
    lowered = name.lower()
    if lowered.startswith("x-hbuf-"):
        raise UsageError(f"field '{name}' is reserved", hint="key and tags have options of their own")
    encoded = lowered.encode() if name.isascii() else b""
    if not CLIENT_NAME.fullmatch(encoded):
        raise UsageError(
            f"field '{name}' cannot be kept with a message",
            hint="kept are content-type, content-encoding, content-language, traceparent, tracestate, ce-* and x-*",
        )
    return encoded


def _checked_value(what: str, value: str) -> bytes:
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the value of '{what}' is not UTF-8") from None
    if not VALUE.fullmatch(encoded) or not is_text(encoded):
        if value != value.strip(" "):
            raise UsageError(f"the value of '{what}' has a blank at its start or end")
        raise UsageError(f"the value of '{what}' has a control character in it")
    return encoded
