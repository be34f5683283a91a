"""Parsing records, whole windows at a time. A record matches the grammar exactly, or is damaged.

It gets bytes and says what is in them; it does not read files, and it does not check hashes (`check` does).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from hbuf.format.deletes import ERASES, RETIRES
from hbuf.format.fields import parse_tags
from hbuf.format.grammar import (
    BASE64_KEY,
    LINE,
    MAX_BODY_BYTES,
    MAX_SECTION_BYTES,
    RECORD_SECTION,
    RECORD_START,
    is_text,
)
from hbuf.format.sealing import DATA_KEY, RECIPIENT
from hbuf.format.times import parse_time

# No record is shorter: with it, damage of n bytes cannot hide more than n // 189 numbers.
_SHORTEST_RECORD_BYTES = 189

_KEY_GROUP, _TAGS_GROUP = (RECORD_SECTION.groupindex[name] for name in ("key", "tags"))
_NO_SPAN = (-1, -1)


class Record(NamedTuple):
    """Where one record lies in a window, and what its lines say. Nothing is copied but short values."""

    start: int
    head_end: int
    fields_end: int
    section_end: int
    end: int
    method: bytes
    seq: int  # 0 for a PUT
    time: bytes
    own: bytes  # the head's own lines, between time and content-length
    key: tuple[int, int]  # span of the key's value, (-1, -1) where there is none
    tags: tuple[int, int]  # span of the tag lines, (-1, -1) where there are no fields at all
    salted: bytes | None  # b"salt", b"gone", or None
    salt: bytes
    id: bytes
    sig: bytes | None

    @property
    def body_start(self) -> int:
        return self.section_end

    @property
    def body_end(self) -> int:
        return self.end - 2


class Unreadable(NamedTuple):
    """Bytes that are not a record, or not yet: `needed` says how many from `at` on could still make them one."""

    at: int
    reason: str
    needed: int = 0


class Scan(NamedTuple):
    records: list[Record]
    end: int  # just behind the last whole record
    unreadable: Unreadable | None  # what stands there, where it is neither a record nor the window's end


def scan(data: bytes, start: int = 0, *, limit: int | None = None) -> Scan:
    """All whole records of `data` from `start` on, up to the first place that is not one (or `limit` records)."""
    records: list[Record] = []
    append = records.append
    at = start
    size = len(data)
    last_time = b""
    while at < size:
        if limit is not None and len(records) >= limit:
            break
        found = parse_record(data, at, last_time)
        if isinstance(found, Unreadable):
            return Scan(records, at, found)
        append(found)
        at = found.end
        last_time = found.time
    return Scan(records, at, None)


def parse_record(data: bytes, at: int, known_time: bytes = b"") -> Record | Unreadable:
    """The record that begins at `at`. `known_time` is a time that was found valid just before."""
    found = RECORD_SECTION.match(data, at)
    if found is None:
        return _unmatched(data, at)
    (head, method, seq, time, own, length, fields, _, _, salted, salt, record_id, sig) = found.groups()
    section_end = found.end()
    if section_end - at > MAX_SECTION_BYTES:
        return Unreadable(at, "the header section is too long")
    body_length = int(length)
    end = section_end + body_length + 2
    if body_length > MAX_BODY_BYTES:
        return Unreadable(at, "the body is longer than any may be")
    if end > len(data):
        return Unreadable(at, "the record is cut short", end - at)
    if data[end - 2 : end] != b"\r\n":
        return Unreadable(at, "the body is not followed by an empty line")
    if time != known_time and not _is_time(time):
        return Unreadable(at, "the time does not exist")
    if own or method != b"POST" or seq is None or salted == b"gone":
        reason = _unusual(method, seq, own, salted, fields, body_length)
        if reason:
            return Unreadable(at, reason)
    if fields and (not is_text(fields) or (salted != b"gone" and fields.startswith(b"x: "))):
        return Unreadable(at, "the fields are not as they may be")
    head_end = at + len(head)
    # The constructor of a named tuple takes twice as long as the tuple; this is where a scan spends its time.
    return tuple.__new__(
        Record,
        (
            at,
            head_end,
            head_end + len(fields),
            section_end,
            end,
            method,
            int(seq) if seq else 0,
            time,
            own,
            found.span(_KEY_GROUP) if fields else _NO_SPAN,
            found.span(_TAGS_GROUP) if fields else _NO_SPAN,
            salted,
            salt or b"",
            record_id,
            sig,
        ),
    )


def record_starts(data: bytes) -> Iterator[int]:
    """Where records may begin, for finding the way past damage. A body may hold what looks like one."""
    return (found.start() for found in RECORD_START.finditer(data))


def can_follow(record: Record, after: int, skipped_bytes: int) -> bool:
    """Whether a record can be a later one than number `after`, with `skipped_bytes` of damage between.

    Somebody may have put a whole fake record into a body: a number is believed only if that many fit between.
    """
    return record.seq == 0 or after < record.seq <= after + 2 + skipped_bytes // _SHORTEST_RECORD_BYTES


def own_values(own: bytes) -> dict[bytes, bytes]:
    """The head's own lines by name. (`x-hbuf-recipient`, which may repeat, gives its last.)"""
    return dict(LINE.findall(own)) if own else {}


def key_of(data: bytes, record: Record) -> bytes | None:
    start, end = record.key
    return data[start:end] if start >= 0 else None


def tags_of(data: bytes, record: Record) -> list[bytes]:
    start, end = record.tags
    return parse_tags(data[start:end]) if end > start else []


# The head's own lines of each method: those known here come in this order, unknown ones after them.
_POST_OWN = (
    b"x-hbuf-batch",
    b"x-hbuf-producer",
    b"x-hbuf-producer-seq",
    b"x-hbuf-data-key",
    b"x-hbuf-origin",
)
_PUT_OWN = (
    b"x-hbuf-format",
    b"x-hbuf-hash",
    b"x-hbuf-buffer",
    b"x-hbuf-epoch",
    b"x-hbuf-first",
    b"x-hbuf-prev",
    b"x-hbuf-sign-key",
    b"x-hbuf-recovery-key",
    b"x-hbuf-recipient",
)
_DELETE_OWN = (b"x-hbuf-erases", b"x-hbuf-retires", b"x-hbuf-by", b"x-hbuf-reason")
_OWN_ORDER = {b"POST": _POST_OWN, b"PUT": _PUT_OWN, b"DELETE": _POST_OWN + _DELETE_OWN}
_TRAILER_NAMES = (b"x-hbuf-salt", b"x-hbuf-gone", b"x-hbuf-id", b"x-hbuf-sig", b"x-hbuf-key", b"x-hbuf-tag")
_MANY = b"x-hbuf-recipient"

_UNIT = re.compile(rb"([1-9][0-9]{0,9})/([1-9][0-9]{0,9})")
_DECIMAL = re.compile(rb"0|[1-9][0-9]{0,18}")
_POSITIVE = re.compile(rb"[1-9][0-9]{0,18}")
_HEX_ID = re.compile(rb"[0-9a-f]{64}")
_UUID = re.compile(rb"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_OWN_VALUES = {
    b"x-hbuf-batch": _UNIT,
    b"x-hbuf-producer-seq": _DECIMAL,
    b"x-hbuf-data-key": DATA_KEY,
    b"x-hbuf-format": _POSITIVE,
    b"x-hbuf-hash": re.compile(rb"[a-z0-9]+"),
    b"x-hbuf-buffer": _UUID,
    b"x-hbuf-epoch": _POSITIVE,
    b"x-hbuf-first": _POSITIVE,
    b"x-hbuf-prev": _HEX_ID,
    b"x-hbuf-sign-key": BASE64_KEY,
    b"x-hbuf-recovery-key": BASE64_KEY,
    b"x-hbuf-recipient": RECIPIENT,
    b"x-hbuf-erases": ERASES,
    b"x-hbuf-retires": RETIRES,
}
_FULL_PUT = _PUT_OWN[:6]


def _unusual(
    method: bytes, seq: bytes | None, own: bytes, salted: bytes | None, fields: bytes, body_length: int
) -> str | None:
    """What is wrong with a record that is more than a plain message, or None."""
    if (seq is None) != (method == b"PUT"):
        return "a PUT has no number, and every other record has one"
    if salted == b"gone":
        if method != b"POST":
            return "only a message can be erased"
        if fields and not fields.startswith(b"x: "):
            return "an erased message still has fields"
    if not is_text(own):
        return "the head is not as it may be"
    lines = LINE.findall(own)
    reason = _out_of_order(method, [name for name, _ in lines])
    if reason:
        return reason
    values = dict(lines)
    for name, value in lines:
        pattern = _OWN_VALUES.get(name)
        if pattern and not pattern.fullmatch(value):
            return f"{name.decode()} is not as it may be"
    if (b"x-hbuf-producer" in values) != (b"x-hbuf-producer-seq" in values):
        return "a producer and its number come together"
    if method == b"DELETE" and (b"x-hbuf-erases" in values) == (b"x-hbuf-retires" in values):
        return "a DELETE says what was erased or what was retired"
    if method == b"DELETE" and (fields or body_length or b"x-hbuf-by" not in values or b"x-hbuf-reason" not in values):
        return "a DELETE says by whom and why, and has neither fields nor a body"
    if method == b"PUT":
        return _unusual_put(values)
    return None


def _unusual_put(values: dict[bytes, bytes]) -> str | None:
    """A full one has all its lines; another brings a data key, and nothing else."""
    if b"x-hbuf-format" in values:
        return None if all(name in values for name in _FULL_PUT) else "a PUT lacks one of its lines"
    known = [name for name in values if name in _PUT_OWN]
    return None if known == [_MANY] else "a PUT without settings brings a data key and nothing else"


def _out_of_order(method: bytes, names: list[bytes]) -> str | None:
    order = _OWN_ORDER[method]
    place = -1
    for name in names:
        if name in _TRAILER_NAMES:
            return f"{name.decode()} is not in its place"
        here = order.index(name) if name in order else len(order)
        if here < place or (here == place and name in order and name != _MANY):
            return f"{name.decode()} is not in its place"
        place = here
    return None


def _is_time(time: bytes) -> bool:
    try:
        parse_time(time.decode())
    except ValueError:
        return False
    return True


def _unmatched(data: bytes, at: int) -> Unreadable:
    """Why no record begins at `at`."""
    window = data[at : at + MAX_SECTION_BYTES]
    section_end = window.find(b"\r\n\r\n")
    if section_end < 0 and len(data) - at < MAX_SECTION_BYTES:
        return Unreadable(at, "the header section is cut short", MAX_SECTION_BYTES)
    if section_end < 0:
        return Unreadable(at, "no record begins here")
    return Unreadable(at, "the header section does not match the grammar")
