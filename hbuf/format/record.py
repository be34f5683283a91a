"""Encoding records, whole batches at a time. The one place that a compiled twin could take over.

It knows the layout and nothing of where bytes go. Time, salts and the id before are arguments.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from hbuf.format.chain import COMMITTED, COPY_LIMIT_BYTES, IDENTIFIED, Hasher, commitment, record_id
from hbuf.format.fields import NO_FIELDS, Fields
from hbuf.format.grammar import MAX_BODY_BYTES
from hbuf.format.index import ENTRY, FLAG_DELETE, FLAG_GAP, FLAG_SIGNED, Entry
from hbuf.format.sealing import TAG_BYTES, Seal
from hbuf.format.times import encode_time

SALT_STEP = 44  # a batch's salts are one string: 43 characters each, and one that is passed over

FORMAT_VERSION = 1

Sign = Callable[[int, bytes], bytes]  # of a number and an id: the signature as a record has it


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
    flags: Iterable[int] = itertools.repeat(0),
    method: str = "POST",
    seal: Seal | None = None,
    sign: Sign | None = None,
) -> Batch:
    """Chains `bodies` behind the record `prev`, as messages `first`, `first + 1`, …, at `offset` of a segment.

    `fields`, `own_lines` (encoded lines of the head) and `flags` give one value a body; `itertools.repeat` shares one.
    `salts` is None in a buffer that is not erasable; `flags` are those of the index entries. `seal` encrypts each
    body. With `sign` the last record is signed.
    """
    head_format = (
        f"{method} /b/{buffer_name} HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: %d\r\n"
        f"x-hbuf-time: {encode_time(time_us)}\r\n%bcontent-length: %d\r\n"
    ).encode()
    pack = ENTRY.pack
    records: list[bytes] = []
    entries: list[bytes] = []
    ids: list[bytes] = []
    seq = first
    salt = salt_line = b""
    salt_at = 0
    longer = 0 if seal is None else TAG_BYTES
    # The hot path of every append: everything that can be done once a batch is done above.
    for body, (field_lines, key_offset, key_length, tags_length), own, flag in zip(
        bodies, fields, own_lines, flags, strict=False
    ):
        length = len(body) + longer
        head = head_format % (seq, own, length)
        if salts is not None:
            salt = salts[salt_at : salt_at + 43]
            salt_at += SALT_STEP
            salt_line = b"x-hbuf-salt: %b\r\n" % salt
        if seal is not None:
            body = seal(salt, head, field_lines, body)
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
            pack(time_us, offset, length, section_length, head_length, key_at, key_length, tags_length, flag,
                 int(prev[:8], 16))
        )  # fmt: skip
        ids.append(prev)
        offset += len(record)
        seq += 1
    if sign is not None:
        records[-1], entries[-1] = _signed(records[-1], entries[-1], sign(seq - 1, prev))
    return Batch(b"".join(records), b"".join(entries), ids)


def encode_deletes(
    hasher: Hasher,
    buffer_name: str,
    prev: bytes,
    first: int,
    time_us: int,
    salts: bytes | None,
    own_lines: Sequence[bytes],
    *,
    offset: int,
    sign: Sign | None = None,
) -> Batch:
    """The same for records that say what was erased or retired: each has its lines in the head, and no body."""
    bodies, no_fields = [b""] * len(own_lines), itertools.repeat(NO_FIELDS)
    return encode_messages(
        hasher, buffer_name, prev, first, time_us, salts, bodies, no_fields, own_lines,
        offset=offset, flags=itertools.repeat(FLAG_DELETE), method="DELETE", sign=sign,
    )  # fmt: skip


def _signed(record: bytes, entry: bytes, signature: bytes) -> tuple[bytes, bytes]:
    """A record with its signature, which no id covers, and its entry."""
    values = Entry._make(ENTRY.unpack(entry))
    blank = values.section_length - 2
    line = b"x-hbuf-sig: %b\r\n" % signature
    values = values._replace(section_length=values.section_length + len(line), flags=values.flags | FLAG_SIGNED)
    return record[:blank] + line + record[blank:], ENTRY.pack(*values)


def most_lines_bytes(buffer_name: str, last_seq: int, *, salted: bool, signed: bool) -> int:
    """How many bytes a message's record has at most besides its own lines, its fields and its body."""
    head = (
        f"POST /b/{buffer_name} HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: {last_seq}\r\n"
        f"x-hbuf-time: {encode_time(0)}\r\ncontent-length: {MAX_BODY_BYTES}\r\n"
    )
    trailer = f"x-hbuf-salt: {'':43}\r\n" if salted else ""
    if signed:
        trailer += f"x-hbuf-sig: {'':86}\r\n"
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
    sign_key: bytes | None = None,
    recovery_key: bytes | None = None,
    sign: Sign | None = None,
) -> tuple[bytes, bytes]:
    """The record that opens a segment, and its id. Its body is the buffer's settings as JSON.

    `sign_key` is the public key that signs from here on, and `sign` signs this record, with the key before it.
    """
    keys = b""
    if sign_key is not None:
        keys += b"x-hbuf-sign-key: %b\r\n" % encode_key(sign_key)
    if recovery_key is not None:
        keys += b"x-hbuf-recovery-key: %b\r\n" % encode_key(recovery_key)
    head = (
        f"PUT /b/{buffer_name} HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-time: {encode_time(time_us)}\r\n"
        f"x-hbuf-format: {FORMAT_VERSION}\r\nx-hbuf-hash: {hash_name}\r\nx-hbuf-buffer: {uuid}\r\n"
        f"x-hbuf-epoch: {epoch}\r\nx-hbuf-first: {first}\r\nx-hbuf-prev: {prev.decode()}\r\n"
        f"{keys.decode()}content-length: {len(settings)}\r\n"
    ).encode()
    fields = b"content-type: application/json\r\n"
    salt_line = b"" if salt is None else b"x-hbuf-salt: %b\r\n" % salt
    put_id = record_id(hasher, prev, commitment(hasher, salt or b"", fields, settings), head)
    sig_line = b"" if sign is None else b"x-hbuf-sig: %b\r\n" % sign(first, put_id)
    return b"%b%b%bx-hbuf-id: %b\r\n%b\r\n%b\r\n" % (head, fields, salt_line, put_id, sig_line, settings), put_id


def encode_data_key_put(
    hasher: Hasher, buffer_name: str, prev: bytes, time_us: int, salt: bytes, recipient_lines: bytes
) -> tuple[bytes, bytes]:
    """The record inside a segment that brings a data key, and its id."""
    head = (
        f"PUT /b/{buffer_name} HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-time: {encode_time(time_us)}\r\n"
        f"{recipient_lines.decode()}content-length: 0\r\n"
    ).encode()
    put_id = record_id(hasher, prev, commitment(hasher, salt, b"", b""), head)
    return b"%bx-hbuf-salt: %b\r\nx-hbuf-id: %b\r\n\r\n\r\n" % (head, salt, put_id), put_id


def behind_put(put: bytes, batch: Batch) -> Batch:
    """A batch that a PUT is written before: its first entry says that other bytes lie there."""
    values = Entry._make(ENTRY.unpack_from(batch.entries))
    entry = ENTRY.pack(*values._replace(flags=values.flags | FLAG_GAP))
    return Batch(put + batch.data, entry + batch.entries[len(entry) :], batch.ids)


def encode_key(key: bytes) -> bytes:
    """A public key of 32 bytes as a record's line has it: 43 characters of base64url."""
    return base64.urlsafe_b64encode(key).rstrip(b"=")


def parse_key(encoded: bytes) -> bytes:
    return base64.urlsafe_b64decode(encoded + b"=")


def encode_own_lines(*, unit: tuple[int, int] | None, producer: tuple[bytes, int] | None) -> bytes:
    """The lines of a message's head that only the writer adds, in their order."""
    lines = b""
    if unit is not None:
        lines += b"x-hbuf-batch: %d/%d\r\n" % unit
    if producer is not None:
        lines += b"x-hbuf-producer: %b\r\nx-hbuf-producer-seq: %d\r\n" % producer
    return lines
