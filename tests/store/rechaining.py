"""Segments that somebody wrote anew: records are changed, moved or left out, and chained again, so that they verify.

Whoever can write an unsigned buffer's files can do that. Hashed here after the format's text, with nothing of hbuf.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from blake3 import blake3

from hbuf.ops.reindex import reindex

from .checking import segment_of

_RECORD = re.compile(
    rb"(?P<head>[A-Z]+ /b/.*?\r\ncontent-length: (?P<length>\d+)\r\n)(?P<fields>.*?)"
    rb"x-hbuf-(?P<salted>salt|gone): (?P<salt>\S+)\r\nx-hbuf-id: (?P<id>\S+)\r\n\r\n",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Part:
    """One record of an unsigned buffer, without what the chain adds."""

    head: bytes
    fields: bytes
    salt: bytes
    body: bytes  # as it is stored

    def replaced(self, old: bytes, new: bytes) -> Part:
        assert old in self.head
        return replace(self, head=self.head.replace(old, new))

    def with_body(self, body: bytes) -> Part:
        length = b"content-length: %d\r\n"
        return replace(self, body=body).replaced(length % len(self.body), length % len(body))

    @property
    def brings_key(self) -> bool:
        return b"\r\nx-hbuf-recipient: " in self.head


def parts_of(segment: bytes) -> list[Part]:
    parts = []
    at = 0
    while at < len(segment):
        found = _RECORD.match(segment, at)
        assert found, f"no record at {at}"
        at = found.end() + int(found["length"])
        parts.append(Part(found["head"], found["fields"], found["salt"], segment[found.end() : at]))
        at += len(b"\r\n")
    return parts


def chained(parts: list[Part]) -> bytes:
    prev = b"0" * 64
    segment = b""
    for part in parts:
        commit = _hex(b"hbuf1 body " + part.salt + b"\n" + part.fields + part.body)
        prev = _hex(b"hbuf1 id\n" + prev + b"\n" + commit + b"\n" + part.head)
        section = part.head + part.fields + b"x-hbuf-salt: " + part.salt + b"\r\nx-hbuf-id: " + prev + b"\r\n\r\n"
        segment += section + part.body + b"\r\n"
    return segment


def read_parts(path: Path) -> list[Part]:
    """The records of a buffer's first segment."""
    return parts_of(segment_of(path, 1).read_bytes())


def write_parts(path: Path, parts: list[Part]) -> None:
    """Writes the first segment anew, with its index."""
    segment_of(path, 1).write_bytes(chained(parts))
    segment_of(path, 1).with_suffix(".idx").unlink()
    assert reindex(str(path), timeout_seconds=20)


def _hex(data: bytes) -> bytes:
    return blake3(data).hexdigest().encode()
