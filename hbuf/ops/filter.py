"""Which messages are wanted, and finding them in a chunk without parsing those that are not.

It looks for bytes first, parses what has them, and decides on the record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hbuf.errors import UsageError
from hbuf.format.scan import Record, key_of, tags_of
from hbuf.format.sealing import is_encrypted
from hbuf.format.tags import Terms
from hbuf.store.view import Chunk

_SPECIAL = set(r".^$*+?{}[]\|()")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression over bytes; `literal` where it is nothing but text, which is found much faster."""

    regex: re.Pattern[bytes]
    literal: bytes | None

    def found_in(self, data: bytes) -> bool:
        return self.regex.search(data) is not None


def compile_pattern(text: str, *, ignore_case: bool = False, fixed: bool = False) -> Pattern:
    encoded = text.encode("utf-8", "surrogateescape")
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    try:
        regex = re.compile(re.escape(encoded) if fixed else encoded, flags)
    except re.error as error:
        raise UsageError(f"'{text}' is not a regular expression: {error}") from None
    is_text = fixed or not _SPECIAL & set(text)
    return Pattern(regex, encoded if is_text and encoded and not ignore_case else None)


class Damageable(Protocol):
    """Who is told of messages that cannot be read."""

    def note_damage(self, chunk: Chunk, i: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Filter:
    """Empty: all messages. `pattern` is looked for in bodies, and `in_fields` in key, tags and headers too."""

    key: bytes | None = None
    tag: bytes | None = None
    pattern: Pattern | None = None
    in_fields: bool = False
    invert: bool = False  # of the pattern alone

    @property
    def by_terms(self) -> bool:
        return self.key is not None or self.tag is not None

    @property
    def wants_all(self) -> bool:
        return not self.by_terms and self.pattern is None

    def without_pattern(self) -> Filter:
        """What can be said of a message whose body cannot be read yet."""
        return replace(self, pattern=None)

    @property
    def terms(self) -> Terms | None:
        return Terms(self.key, self.tag) if self.by_terms else None

    def places(self, reader: Damageable, chunk: Chunk) -> Sequence[int]:
        """Which messages of a chunk are wanted. What cannot be read is noted as damage."""
        if self.wants_all and not chunk.suspect and chunk.has_messages_only():
            return range(len(chunk.entries))
        found = []
        for i in self._candidates(chunk):
            if chunk.is_delete(i) or (not self.by_terms and not self._may_match(chunk, i)):
                continue
            record = chunk.parse(i)
            if record is None:
                reader.note_damage(chunk, i)
            elif self.wants(chunk.data, record):
                found.append(i)
        return found

    def wants(self, data: bytes, record: Record) -> bool:
        if self.key is not None and key_of(data, record) != self.key:
            return False
        if self.tag is not None and self.tag not in tags_of(data, record):
            return False
        if self.pattern is None:
            return True
        # An erased message says nothing, not even that it lacks something.
        return record.salted != b"gone" and self._matches(self.pattern, data, record) != self.invert

    def _matches(self, pattern: Pattern, data: bytes, record: Record) -> bool:
        if not is_encrypted(record.own) and pattern.found_in(data[record.section_end : record.end - 2]):
            return True
        if not self.in_fields or record.fields_end == record.head_end:
            return False
        return pattern.found_in(data[record.head_end : record.fields_end].replace(b"\r\n", b"\n"))

    def _candidates(self, chunk: Chunk) -> Iterable[int]:
        """The messages that have the rarest bytes which a wanted one must have."""
        if self.key is not None:
            return chunk.holding(b"\r\nx-hbuf-key: %b\r\n" % self.key)
        if self.tag is not None:
            return chunk.holding(b"\r\nx-hbuf-tag: %b\r\n" % self.tag)
        if self.pattern is not None and self.pattern.literal is not None and not self.invert:
            return chunk.holding(self.pattern.literal)
        return range(len(chunk.entries))

    def _may_match(self, chunk: Chunk, i: int) -> bool:
        """Whether it is worth parsing message `i`: its body matches, or its fields may."""
        if self.pattern is None or self.invert or (self.in_fields and chunk.has_fields(i)):
            return True
        return self.pattern.found_in(chunk.body(i))


EVERYTHING = Filter()
