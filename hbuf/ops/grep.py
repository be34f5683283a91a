"""Searching messages: a pattern over bodies and fields, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hbuf.errors import UsageError
from hbuf.format import index
from hbuf.format.scan import Record
from hbuf.ops.tail import Filter, note_damage
from hbuf.store.reader import Chunk, Reader


def compile_pattern(text: str, *, ignore_case: bool, fixed: bool) -> re.Pattern[bytes]:
    pattern = text.encode("utf-8", "surrogateescape")
    try:
        return re.compile(
            re.escape(pattern) if fixed else pattern, re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
        )
    except re.error as error:
        raise UsageError(f"'{text}' is not a regular expression: {error}") from None


def matches(
    reader: Reader, start: int, pattern: re.Pattern[bytes], wanted: Filter, *, invert: bool = False
) -> Iterator[tuple[Chunk, int, Record]]:
    """Chunks with the place and record of each message that matches (or, inverted, does not)."""
    terms = wanted.terms if wanted.by_terms else None
    for chunk in reader.chunks(start, reader.end_seq, terms):
        data = chunk.data
        for i, entry in enumerate(chunk.entries):
            if entry.flags & index.FLAG_DELETE:
                continue
            record = chunk.parse(i)
            if record is None:
                note_damage(reader, chunk, i)
            elif wanted.wants(data, record) and _matches(pattern, data, record) != invert:
                yield chunk, i, record


def _matches(pattern: re.Pattern[bytes], data: bytes, record: Record) -> bool:
    if pattern.search(data[record.section_end : record.end - 2]):
        return True
    if record.fields_end == record.head_end or record.salted == b"gone":
        return False
    return pattern.search(data[record.head_end : record.fields_end].replace(b"\r\n", b"\n")) is not None
