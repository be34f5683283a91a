"""A message before it is stored (Draft) and as it is read back (Message). Values, nothing else."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from hbuf.format.fields import NO_FIELDS, Fields, parse_fields
from hbuf.format.scan import Record
from hbuf.format.sealing import is_encrypted
from hbuf.format.times import datetime_of, parse_time


class Draft(NamedTuple):
    """What a client gives. Key, tags and headers are in `fields`, encoded once for all that share them."""

    body: bytes
    fields: Fields = NO_FIELDS
    producer: tuple[bytes, int] | None = None  # its name, and its number for this message


class Message(NamedTuple):
    tenant: str
    buffer: str
    seq: int
    time_us: int
    id: str
    key: str | None
    tags: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]
    body: bytes
    erased: bool = False
    encrypted: bool = False

    @property
    def time(self) -> datetime:
        return datetime_of(self.time_us)


def message_of(data: bytes, record: Record, tenant: str, buffer: str) -> Message:
    """The message that a record holds. An erased one has no key, tags, headers or body."""
    erased = record.salted == b"gone"
    key, tags, headers = parse_fields(b"" if erased else data[record.head_end : record.fields_end])
    return Message(
        tenant,
        buffer,
        record.seq,
        parse_time(record.time.decode()),
        record.id.decode(),
        key,
        tags,
        headers,
        b"" if erased else data[record.section_end : record.end - 2],
        erased,
        is_encrypted(record.own),
    )
