"""Changing records where they lie, without chaining anything anew."""

from __future__ import annotations

import base64

from hbuf.format.chain import commitment

from .buffers import ENCRYPTED, PLAIN, SIGNED, Target
from .forging import Forged, copied
from .registry import attack


def _replace(target: Target, first: int, old: bytes, new: bytes) -> None:
    """In a segment's bytes, once."""
    data = target.segment(first).read_bytes()
    assert data.count(old) >= 1, old
    target.segment(first).write_bytes(data.replace(old, new, 1))


@attack("a byte of a body is changed")
def change_body(target: Target) -> None:
    forged = Forged(target.path)
    part = forged.message(5)
    part.body = part.body[:-1] + bytes([part.body[-1] ^ 1])
    forged.write()


@attack("a body is made longer, with its length")
def lengthen_body(target: Target) -> None:
    forged = Forged(target.path)
    forged.message(5).set_body(forged.message(5).body + b"!")
    forged.write()


@attack("the name in a request line is changed")
def change_request_line(target: Target) -> None:
    forged = Forged(target.path)
    part = forged.message(5)
    part.head = part.head.replace(b"/b/buffer ", b"/b/other_ ")
    forged.write()


@attack("a number is changed")
def change_number(target: Target) -> None:
    forged = Forged(target.path)
    forged.message(8).set(b"x-hbuf-seq", b"9")
    forged.write(indexed=False)


@attack("a time is changed")
def change_time(target: Target) -> None:
    forged = Forged(target.path)
    forged.message(5).set(b"x-hbuf-time", b"2020-01-01T00:00:00.000000Z")
    forged.write()


@attack("a length is changed")
def change_length(target: Target) -> None:
    forged = Forged(target.path)
    forged.message(5).set(b"content-length", b"1")
    forged.write(indexed=False)


@attack("a key is changed")
def change_key(target: Target) -> None:
    _replace(target, 4, b"x-hbuf-key: user-17", b"x-hbuf-key: user-18")


@attack("a tag is removed")
def remove_tag(target: Target) -> None:
    forged = Forged(target.path)
    part = forged.message(5)
    part.fields = part.fields.replace(b"x-hbuf-tag: host=web1\r\n", b"")
    forged.write()


@attack("a client's field is changed")
def change_field(target: Target) -> None:
    _replace(target, 4, b"content-type: text/plain", b"content-type: text/plaim")


@attack("a line is added behind content-length")
def add_field(target: Target) -> None:
    forged = Forged(target.path)
    forged.message(5).fields += b"x-evil: 1\r\n"
    forged.write()


@attack("a line is added to a head")
def add_head_line(target: Target) -> None:
    forged = Forged(target.path)
    part = forged.message(8)
    part.head = part.head.replace(b"content-length", b"x-hbuf-later: 1\r\ncontent-length")
    forged.write()


@attack("transfer-encoding is added")
def add_transfer_encoding(target: Target) -> None:
    forged = Forged(target.path)
    forged.message(5).fields += b"transfer-encoding: chunked\r\n"
    forged.write(indexed=False)


@attack("a salt is changed")
def change_salt(target: Target) -> None:
    forged = Forged(target.path)
    forged.message(5).salt = b"A" * 43
    forged.write()


@attack("a salt is written in base64 that is not canonical")
def write_salt_otherwise(target: Target) -> None:
    forged = Forged(target.path)
    part = forged.message(5)
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    last = alphabet.index(part.salt[-1:])
    part.salt = part.salt[:-1] + alphabet[last + 1 : last + 2]
    forged.write(indexed=False)


@attack("an id is changed")
def change_id(target: Target) -> None:
    forged = Forged(target.path)
    part = forged.message(5)
    part.id = bytes([part.id[0] ^ 1]) + part.id[1:] if part.id[:1].isdigit() else b"0" + part.id[1:]
    forged.write()


@attack("a signature is changed", kinds=[SIGNED])
def change_signature(target: Target) -> None:
    forged = Forged(target.path)
    forged.last.sig = b"A" * 86
    forged.write()


@attack("a signature is removed", kinds=[SIGNED])
def remove_signature(target: Target) -> None:
    forged = Forged(target.path)
    forged.last.sig = None
    forged.write(indexed=False)


@attack("a signature is moved to another record", kinds=[SIGNED])
def move_signature(target: Target) -> None:
    forged = Forged(target.path)
    forged.message(5).sig = forged.message(6).sig
    forged.write()


@attack("a signature is added where no key is announced", kinds=[PLAIN, ENCRYPTED])
def add_signature(target: Target) -> None:
    forged = Forged(target.path)
    forged.last.sig = b"A" * 86
    forged.write()


@attack("two messages are swapped")
def swap_messages(target: Target) -> None:
    forged = Forged(target.path)
    segment = forged.segments[7]
    at = [segment.index(forged.message(seq)) for seq in (7, 8)]
    segment[at[0]], segment[at[1]] = segment[at[1]], segment[at[0]]
    forged.write(indexed=False)


@attack("a message is taken out")
def take_message_out(target: Target) -> None:
    forged = Forged(target.path)
    forged.segments[7].remove(forged.message(8))
    forged.write(indexed=False)


@attack("two records have one number")
def repeat_number(target: Target) -> None:
    forged = Forged(target.path)
    segment = forged.segments[7]
    segment.insert(segment.index(forged.message(8)), copied(forged.message(8)))
    forged.write(indexed=False)


@attack("an old record is written again at the end")
def replay_record(target: Target) -> None:
    forged = Forged(target.path)
    forged.segments[7].append(copied(forged.message(2)))
    forged.write(indexed=False)


@attack("bytes are put between two records")
def put_bytes_between(target: Target) -> None:
    _replace(target, 4, b"\r\nPOST /b/", b"\r\nanything\r\nPOST /b/")


@attack("the end of an atomic unit is cut off")
def cut_unit(target: Target) -> None:
    forged = Forged(target.path)
    forged.segments[4].remove(forged.message(6))
    forged.write(indexed=False)


@attack("a message is made to look erased")
def forge_gone(target: Target) -> None:
    forged = Forged(target.path)
    forged.message(5).make_gone(forged.hasher)
    forged.write()


@attack("a PUT is made to look erased")
def forge_gone_put(target: Target) -> None:
    forged = Forged(target.path)
    part = forged.segments[4][0]
    commit = commitment(forged.hasher, part.salt, part.fields, part.body)
    part.salted, part.salt = b"gone", base64.urlsafe_b64encode(bytes.fromhex(commit.decode())).rstrip(b"=")
    forged.write(indexed=False)


@attack("a setting in a PUT is changed")
def change_setting(target: Target) -> None:
    _replace(target, 4, b'"max_message_bytes": 16777216', b'"max_message_bytes": 99999999')


@attack("a PUT names another buffer")
def change_uuid(target: Target) -> None:
    forged = Forged(target.path)
    forged.segments[4][0].set(b"x-hbuf-buffer", b"00000000-0000-4000-8000-000000000000")
    forged.write(indexed=False)


@attack("a PUT names another record before it")
def change_prev(target: Target) -> None:
    forged = Forged(target.path)
    forged.segments[4][0].set(b"x-hbuf-prev", b"0" * 64)
    forged.write(indexed=False)


@attack("a recipient is added to a data key", kinds=[ENCRYPTED])
def add_recipient(target: Target) -> None:
    forged = Forged(target.path)
    put = next(part for part in forged.segments[4] if part.is_put and not part.is_full_put)
    line = b"x-hbuf-recipient: %b\r\n" % put.value(b"x-hbuf-recipient")
    put.head = put.head.replace(line, line + line.replace(line[18:34], b"0" * 16))
    forged.write()


@attack("a data key is replaced", kinds=[ENCRYPTED])
def replace_data_key(target: Target) -> None:
    forged = Forged(target.path)
    [mine, other] = [
        next(part for part in forged.segments[first] if part.is_put and not part.is_full_put) for first in (4, 7)
    ]
    mine.set(b"x-hbuf-recipient", other.value(b"x-hbuf-recipient"))
    forged.write()


@attack("a data key is removed", kinds=[ENCRYPTED])
def remove_data_key(target: Target) -> None:
    forged = Forged(target.path)
    forged.segments[4].remove(next(part for part in forged.segments[4] if part.is_put and not part.is_full_put))
    forged.write(indexed=False)
