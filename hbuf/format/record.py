"""Encoding records, whole batches at a time. The one place that a compiled twin could take over.

It knows the layout and nothing of where bytes go. Time, salts and the id before are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hbuf.format.chain import COMMITTED, COPY_LIMIT_BYTES, IDENTIFIED, Hasher, commitment, record_id
from hbuf.format.fields import Fields
from hbuf.format.grammar import MAX_BODY_BYTES
from hbuf.format.index import ENTRY, FLAG_UNIT
from hbuf.format.times import encode_time

SALT_STEP = 44  # a batch's salts are one string: 43 characters each, and one that is passed over

FORMAT_VERSION = 1


class Batch(NamedTuple):
    """Records back to back, their index entries, and the id of each."""

    data: bytes
    entries: bytes
    ids: list[bytes]


def encode_messages(
    hasher: Hasher,
    buffer_name: str,
    prev: bytes,
    first: int,
    time_us: int,
    salts: bytes | None,
    bodies: Sequence[bytes],
    fields: Iterable[Fields],
    own_lines: Iterable[bytes],
    *,
    offset: int,
    in_unit: bool = False,
) -> Batch:
    """Chains `bodies` behind the record `prev`, as messages `first`, `first + 1`, …, at `offset` of a segment.

    `fields` and `own_lines` (encoded lines of the head) give one value a body; `itertools.repeat` shares one.
    `salts` is None in a buffer that is not erasable.
    """
    head_format = (
        f"POST /b/{buffer_name} HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: %d\r\n"
        f"x-hbuf-time: {encode_time(time_us)}\r\n%bcontent-length: %d\r\n"
    ).encode()
    flags = FLAG_UNIT if in_unit else 0
    pack = ENTRY.pack
    records: list[bytes] = []
    entries: list[bytes] = []
    ids: list[bytes] = []
    seq = first
    salt = salt_line = b""
    salt_at = 0
    # The hot path of every append: everything that can be done once a batch is done above.
    for body, (field_lines, key_offset, key_length, tags_length), own in zip(bodies, fields, own_lines, strict=False):
        length = len(body)
        head = head_format % (seq, own, length)
        if salts is not None:
            salt = salts[salt_at : salt_at + 43]
            salt_at += SALT_STEP
            salt_line = b"x-hbuf-salt: %b\r\n" % salt
        if length <= COPY_LIMIT_BYTES:
            commit = hasher(COMMITTED % (salt, field_lines, body)).hexdigest().encode()
        else:
            commit = commitment(hasher, salt, field_lines, body)
        prev = hasher(IDENTIFIED % (prev, commit, head)).hexdigest().encode()
        record = b"%b%b%bx-hbuf-id: %b\r\n\r\n%b\r\n" % (head, field_lines, salt_line, prev, body)
        head_length = len(head)
        key_at = head_length + key_offset if key_length else 0
        section_length = len(record) - length - 2
        records.append(record)
        entries.append(
            pack(time_us, offset, length, section_length, head_length, key_at, key_length, tags_length, flags,
                 int(prev[:8], 16))
        )  # fmt: skip
        ids.append(prev)
        offset += len(record)
        seq += 1
    return Batch(b"".join(records), b"".join(entries), ids)


def most_lines_bytes(buffer_name: str, last_seq: int, *, salted: bool) -> int:
    """How many bytes a message's record has at most besides its own lines, its fields and its body."""
    head = (
        f"POST /b/{buffer_name} HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: {last_seq}\r\n"
        f"x-hbuf-time: {encode_time(0)}\r\ncontent-length: {MAX_BODY_BYTES}\r\n"
    )
    trailer = f"x-hbuf-salt: {'':43}\r\n" if salted else ""
    return len(head) + len(trailer) + len(f"x-hbuf-id: {'':64}\r\n\r\n\r\n")


def encode_put(
    hasher: Hasher,
    buffer_name: str,
    prev: bytes,
    first: int,
    time_us: int,
    salt: bytes | None,
    settings: bytes,
    *,
    hash_name: str,
    uuid: str,
    epoch: int,
) -> tuple[bytes, bytes]:
    """The record that opens a segment, and its id. Its body is the buffer's settings as JSON."""
    head = (
        f"PUT /b/{buffer_name} HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-time: {encode_time(time_us)}\r\n"
        f"x-hbuf-format: {FORMAT_VERSION}\r\nx-hbuf-hash: {hash_name}\r\nx-hbuf-buffer: {uuid}\r\n"
        f"x-hbuf-epoch: {epoch}\r\nx-hbuf-first: {first}\r\nx-hbuf-prev: {prev.decode()}\r\n"
        f"content-length: {len(settings)}\r\n"
    ).encode()
    fields = b"content-type: application/json\r\n"
    salt_line = b"" if salt is None else b"x-hbuf-salt: %b\r\n" % salt
    put_id = record_id(hasher, prev, commitment(hasher, salt or b"", fields, settings), head)
    return b"%b%b%bx-hbuf-id: %b\r\n\r\n%b\r\n" % (head, fields, salt_line, put_id, settings), put_id


def encode_own_lines(*, unit: tuple[int, int] | None, producer: tuple[bytes, int] | None) -> bytes:
    """The lines of a message's head that only the writer adds, in their order."""
    lines = b""
    if unit is not None:
        lines += b"x-hbuf-batch: %d/%d\r\n" % unit
    if producer is not None:
        lines += b"x-hbuf-producer: %b\r\nx-hbuf-producer-seq: %d\r\n" % producer
    return lines
