"""Encrypted bodies: the lines that say so, and the cipher, read again here with PyNaCl's bindings and nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable

import pytest
from blake3 import blake3
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
    crypto_box_seal,
)
from nacl.public import PrivateKey, SealedBox

from hbuf.errors import UsageError
from hbuf.format.chain import ZERO_ID, hasher_named
from hbuf.format.check import ChainState, check_records, waiting_key
from hbuf.format.fields import NO_FIELDS, encode_fields
from hbuf.format.keys import PublicKey, encode_public
from hbuf.format.record import Batch, behind_put, encode_data_key_put, encode_messages, encode_put
from hbuf.format.scan import Record, Unreadable, parse_record, scan
from hbuf.format.sealing import (
    DataKeyLine,
    Recipient,
    data_key_hash,
    encode_data_key_line,
    encode_recipient,
    fingerprint_of,
    opener,
    parse_data_key_line,
    parse_recipients,
    sealer,
    without_data_key_line,
)
from hbuf.format.settings import MAX_RECIPIENTS, Settings, change_recipients, set_recipients

UUID = "01234567-89ab-cdef-0123-456789abcdef"
TIME_US = 1_800_000_000_000_000
KEY = bytes(range(32))
SALT = base64.urlsafe_b64encode(bytes(range(100, 132))).rstrip(b"=")
SECRET = PrivateKey(b"s" * 32)
PUBLIC = bytes(SECRET.public_key)
BLAKE3 = hasher_named("blake3")
HASH = data_key_hash(BLAKE3, KEY)

LINE = encode_data_key_line(HASH, 300)
RECIPIENT_LINE = encode_recipient(Recipient(b"0123456789abcdef", bytes(range(80))))
SEALED = RECIPIENT_LINE.split(b" ")[2].rstrip()
FULL_LINES = (
    b"x-hbuf-format: 1\r\nx-hbuf-hash: blake3\r\nx-hbuf-buffer: %b\r\nx-hbuf-epoch: 1\r\nx-hbuf-first: 1\r\n"
    b"x-hbuf-prev: %b\r\n" % (UUID.encode(), ZERO_ID)
)


def record(own: bytes, method: bytes = b"POST", seq: bytes = b"x-hbuf-seq: 1\r\n") -> Record | Unreadable:
    """A record with these lines in its head. (Its id is not asked here.)"""
    head = b"%b /b/orders HTTP/1.1\r\nhost: hbuf\r\n%bx-hbuf-time: 2026-11-18T04:51:00.000000Z\r\n" % (method, seq)
    tail = b"content-length: 0\r\nx-hbuf-salt: %b\r\nx-hbuf-id: %b\r\n\r\n\r\n" % (SALT, b"0" * 64)
    return parse_record(head + own + tail, 0)


def put(own: bytes) -> Record | Unreadable:
    return record(own, b"PUT", b"")


# The lines


def test_line_of_a_message_is_the_hash_in_hex_and_the_offset() -> None:
    assert LINE == b"x-hbuf-data-key: %b 300\r\n" % HASH
    found = record(LINE)
    assert isinstance(found, Record)
    assert parse_data_key_line(found.own) == DataKeyLine(HASH, 300)
    assert without_data_key_line(b"x-hbuf-batch: 1/2\r\n" + LINE + b"x-hbuf-origin: o\r\n") == (
        b"x-hbuf-batch: 1/2\r\nx-hbuf-origin: o\r\n"
    )


def test_line_of_a_recipient_is_the_fingerprint_and_the_sealed_key() -> None:
    found = put(RECIPIENT_LINE * 3)
    assert isinstance(found, Record)
    assert parse_recipients(found.own) == [Recipient(b"0123456789abcdef", bytes(range(80)))] * 3
    assert parse_recipients(FULL_LINES) == []
    assert parse_data_key_line(RECIPIENT_LINE) is None


def test_fingerprint_is_the_one_by_which_a_key_is_shown() -> None:
    assert fingerprint_of(PUBLIC).decode() == hashlib.sha256(b"hbuf1 key\nencrypt\n" + PUBLIC).hexdigest()[:16]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        HASH,
        HASH + b" ",
        HASH + b" -1",
        HASH + b" 01",
        HASH + b" +1",
        HASH + b" 1 2",
        HASH + b" 12345678901",
        HASH + b"  1",
        HASH + b" x",
        HASH[:-1] + b" 1",
        HASH + b"0 1",
        HASH.upper() + b" 1",
        HASH[:-1] + b"g 1",
        HASH[:16] + b" 1",
    ],
)
def test_other_line_of_a_message_is_damage(value: bytes) -> None:
    found = record(b"x-hbuf-data-key: %b\r\n" % value)
    assert isinstance(found, Unreadable)
    assert parse_data_key_line(b"x-hbuf-data-key: %b\r\n" % value) is None


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"0123456789abcdef",
        b"0123456789abcdef ",
        SEALED,
        b"0123456789abcde " + SEALED,
        b"0123456789abcdef0 " + SEALED,
        b"0123456789ABCDEF " + SEALED,
        b"0123456789abcdef " + SEALED[:-1],
        b"0123456789abcdef " + SEALED + b"A",
        b"0123456789abcdef " + SEALED + b"=",
        b"0123456789abcdef " + SEALED + b" " + SEALED,
        b"0123456789abcdef " + SEALED[:-2] + b"+" + SEALED[-1:],
        b"0123456789abcdef " + SEALED[:-2] + b"/" + SEALED[-1:],
    ],
)
def test_other_line_of_a_recipient_is_damage(value: bytes) -> None:
    line = b"x-hbuf-recipient: %b\r\n" % value
    assert isinstance(put(line), Unreadable)
    assert isinstance(put(RECIPIENT_LINE + line), Unreadable)
    assert isinstance(put(FULL_LINES + line), Unreadable)
    assert parse_recipients(line) == []


def test_sealed_key_has_one_way_to_be_written() -> None:
    """Its last character carries 4 bits: those which would carry more decode to the same, and are damage."""
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    taken = []
    for character in alphabet:
        sealed = SEALED[:-1] + bytes([character])
        found = put(b"x-hbuf-recipient: 0123456789abcdef %b\r\n" % sealed)
        canonical = base64.urlsafe_b64encode(base64.urlsafe_b64decode(sealed + b"=")).rstrip(b"=") == sealed
        assert isinstance(found, Record) == canonical
        taken.append(canonical)
    assert sum(taken) == 16


@pytest.mark.parametrize("own", [LINE + LINE, LINE + b"x-hbuf-batch: 1/1\r\n", b"x-hbuf-origin: o\r\n" + LINE])
def test_data_key_twice_or_out_of_its_place_is_damage(own: bytes) -> None:
    assert isinstance(record(own), Unreadable)


def test_data_key_comes_behind_producer_and_before_origin() -> None:
    own = b"x-hbuf-batch: 1/1\r\nx-hbuf-producer: p\r\nx-hbuf-producer-seq: 1\r\n" + LINE + b"x-hbuf-origin: o\r\n"
    assert isinstance(record(own), Record)
    assert parse_data_key_line(own) == DataKeyLine(HASH, 300)


@pytest.mark.parametrize("name", ["x-hbuf-data-key: ", f"x-hbuf-data-key: {'a' * 64} 0"])
def test_producer_that_is_named_like_the_line_is_not_the_line(name: str) -> None:
    producer = b"x-hbuf-producer: %b\r\nx-hbuf-producer-seq: 1\r\n" % name.encode()
    assert parse_data_key_line(producer) is None
    assert parse_data_key_line(producer + LINE) == DataKeyLine(HASH, 300)
    assert without_data_key_line(producer + LINE) == producer
    assert without_data_key_line(producer) == producer


@pytest.mark.parametrize(
    "own",
    [
        FULL_LINES + RECIPIENT_LINE,
        FULL_LINES + b"x-hbuf-sign-key: %b\r\n" % SALT + RECIPIENT_LINE * 2,
        RECIPIENT_LINE,
        RECIPIENT_LINE * MAX_RECIPIENTS,
        RECIPIENT_LINE + b"x-hbuf-colour: red\r\n",
    ],
    ids=["full", "full and signed", "inside", "inside, many", "inside, with a line of later versions"],
)
def test_put_with_recipients_is_read(own: bytes) -> None:
    found = put(own)
    assert isinstance(found, Record)
    assert len(parse_recipients(found.own)) == own.count(b"x-hbuf-recipient")


@pytest.mark.parametrize(
    "own",
    [
        b"",
        b"x-hbuf-colour: red\r\n",
        b"x-hbuf-first: 1\r\n" + RECIPIENT_LINE,
        b"x-hbuf-buffer: %b\r\n" % UUID.encode() + RECIPIENT_LINE,
        b"x-hbuf-sign-key: %b\r\n" % SALT + RECIPIENT_LINE,
        FULL_LINES.partition(b"\r\n")[2] + RECIPIENT_LINE,
        FULL_LINES.replace(b"x-hbuf-epoch: 1\r\n", b"") + RECIPIENT_LINE,
        RECIPIENT_LINE + FULL_LINES,
        RECIPIENT_LINE + b"x-hbuf-sign-key: %b\r\n" % SALT,
        b"x-hbuf-colour: red\r\n" + RECIPIENT_LINE,
    ],
)
def test_put_without_settings_has_recipients_and_nothing_else(own: bytes) -> None:
    assert isinstance(put(own), Unreadable)


def test_put_that_brings_a_data_key_has_no_number() -> None:
    assert isinstance(record(RECIPIENT_LINE, b"PUT"), Unreadable)


# The cipher


@pytest.mark.parametrize("name", ["blake3", "sha256"])
def test_hash_of_a_data_key_covers_its_purpose(name: str) -> None:
    independent = blake3 if name == "blake3" else hashlib.sha256
    expected = independent(b"hbuf1 data key\n" + KEY).hexdigest().encode()
    assert data_key_hash(hasher_named(name), KEY) == expected


@pytest.mark.parametrize("body", [b"", b"x", b'{"total": 42}', bytes(range(256)) * 400], ids=len)
def test_stored_body_is_what_the_format_says(body: bytes) -> None:
    head, fields = b"POST /b/orders HTTP/1.1\r\n", b"x-hbuf-key: k\r\n"
    stored = sealer(KEY, UUID)(SALT, head, fields, body)
    nonce = base64.urlsafe_b64decode(SALT + b"=")[:24]
    associated = b"hbuf1 aad\n" + UUID.encode() + b"\n" + head + fields
    assert crypto_aead_xchacha20poly1305_ietf_decrypt(stored, associated, nonce, KEY) == body
    assert stored == crypto_aead_xchacha20poly1305_ietf_encrypt(body, associated, nonce, KEY)
    assert len(stored) == len(body) + 16
    assert opener(KEY, UUID)(SALT, head, fields, stored) == body


def open_body(key: bytes, uuid: str, salt: bytes, head: bytes, fields: bytes, stored: bytes) -> bytes | None:
    return opener(key, uuid)(salt, head, fields, stored)


SEALED_WITH: dict[str, bytes | str] = {
    "key": KEY,
    "uuid": UUID,
    "salt": SALT,
    "head": b"POST /b/orders HTTP/1.1\r\nx-hbuf-seq: 1\r\n",
    "fields": b"x-hbuf-key: k\r\n",
    "stored": sealer(KEY, UUID)(SALT, b"POST /b/orders HTTP/1.1\r\nx-hbuf-seq: 1\r\n", b"x-hbuf-key: k\r\n", b"body"),
}


def opened(**other: bytes | str) -> bytes | None:
    return open_body(**(SEALED_WITH | other))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("key", lambda key: bytes([key[0] ^ 1]) + key[1:]),
        ("uuid", lambda uuid: uuid[:-1] + "e"),
        ("salt", lambda salt: b"A" + salt[1:]),
        ("salt", lambda salt: salt[:31] + b"A" + salt[32:]),
        ("head", lambda head: head.replace(b": 1", b": 2")),
        ("head", lambda head: head + b"x"),
        ("fields", lambda fields: b""),
        ("fields", lambda fields: fields.replace(b"k\r", b"l\r")),
        ("stored", lambda stored: stored[:-1] + bytes([stored[-1] ^ 1])),
        ("stored", lambda stored: bytes([stored[0] ^ 128]) + stored[1:]),
        ("stored", lambda stored: stored[:-1]),
        ("stored", lambda stored: stored + b"\0"),
        ("stored", lambda stored: stored[:15]),
        ("stored", lambda stored: b""),
    ],
)
def test_body_does_not_open_where_anything_was_changed(what: str, change: Callable[[bytes], bytes]) -> None:
    assert opened() == b"body"
    other = change(SEALED_WITH[what])  # type: ignore[arg-type]
    assert other != SEALED_WITH[what]
    assert opened(**{what: other}) is None


# Whole records


def encrypted_batch() -> tuple[bytes, Batch]:
    """A full PUT, and behind it one that brings the key and three messages."""
    hasher = BLAKE3
    opening, prev = encode_put(
        hasher, "orders", ZERO_ID, 1, TIME_US, SALT, b"{}", hash_name="blake3", uuid=UUID, epoch=1
    )
    lines = encode_recipient(Recipient(fingerprint_of(PUBLIC), crypto_box_seal(KEY, PUBLIC)))
    brings, prev = encode_data_key_put(hasher, "orders", prev, TIME_US, SALT, lines)
    own = [b"", b"x-hbuf-producer: p\r\nx-hbuf-producer-seq: 7\r\n", b""]
    line = encode_data_key_line(HASH, len(opening))
    batch = encode_messages(
        hasher, "orders", prev, 1, TIME_US, b".".join([SALT] * 3), [b"one", b"", b"three" * 20_000],
        [NO_FIELDS, encode_fields("k", ["t"], [("content-type", "text/plain")]), NO_FIELDS],
        [each + line for each in own], offset=len(opening) + len(brings), seal=sealer(KEY, UUID),
    )  # fmt: skip
    return opening, behind_put(brings, batch)


def test_segment_is_read_by_who_has_the_secret_and_nothing_of_hbuf() -> None:
    """Framed with expressions, unsealed and decrypted with PyNaCl: what another implementation would do."""
    opening, batch = encrypted_batch()
    segment = opening + batch.data
    bodies = []
    at = 0
    while at < len(segment):
        end = segment.index(b"\r\n\r\n", at) + 4
        section = segment[at:end]
        length = int(re.findall(rb"\r\ncontent-length: (\d+)\r\n", section)[0])
        if section.startswith(b"POST"):
            [(key_hash, put_at)] = re.findall(rb"\r\nx-hbuf-data-key: ([0-9a-f]{64}) (\d+)\r\n", section)
            brings = segment[int(put_at) :].partition(b"\r\n\r\n")[0]
            [(who, sealed)] = re.findall(rb"\r\nx-hbuf-recipient: ([0-9a-f]{16}) (\S+)\r\n", brings)
            assert who.decode() == hashlib.sha256(b"hbuf1 key\nencrypt\n" + PUBLIC).hexdigest()[:16]
            key = SealedBox(SECRET).decrypt(base64.urlsafe_b64decode(sealed + b"="))
            assert blake3(b"hbuf1 data key\n" + key).hexdigest().encode() == key_hash
            salt_at = section.index(b"x-hbuf-salt: ")
            nonce = base64.urlsafe_b64decode(section[salt_at + 13 : salt_at + 13 + 43] + b"=")[:24]
            associated = b"hbuf1 aad\n%b\n%b" % (UUID.encode(), section[:salt_at])  # head and fields
            stored = segment[end : end + length]
            bodies.append(crypto_aead_xchacha20poly1305_ietf_decrypt(stored, associated, nonce, key))
        at = end + length + 2
    assert bodies == [b"one", b"", b"three" * 20_000]


def faults_of(segment: bytes) -> tuple[list[str], ChainState]:
    state, found = ChainState(), scan(segment)
    assert found.unreadable is None
    faults = check_records(BLAKE3, segment, found.records, state, 0)
    return [fault.reason for fault in faults + waiting_key(state, len(segment))], state


def test_chain_verifies_without_a_key_and_counts_what_is_encrypted() -> None:
    opening, batch = encrypted_batch()
    faults, state = faults_of(opening + batch.data)
    assert (faults, state.encrypted, state.numbered, state.settled) == ([], 3, 3, True)


def test_data_key_without_a_message_that_uses_it_is_a_fault() -> None:
    opening, batch = encrypted_batch()
    segment = opening + batch.data
    brings = scan(segment).records[1]
    faults, state = faults_of(segment[: brings.end])
    assert faults == ["a data key is not followed by a message that uses it"]
    assert not state.settled
    plain = encode_messages(
        BLAKE3, "orders", brings.id, 1, TIME_US, SALT, [b"plain"], [NO_FIELDS], [b""], offset=brings.end
    )
    faults, state = faults_of(segment[: brings.end] + plain.data)
    assert faults == ["a data key is not followed by a message that uses it"]
    again, _ = encode_data_key_put(BLAKE3, "orders", brings.id, TIME_US, SALT, RECIPIENT_LINE)
    faults, _ = faults_of(segment[: brings.end] + again)
    assert len(faults) == 2


# Recipients as a setting

PLAIN = Settings(UUID, "orders", "2026-11-18T04:51:00.000000Z")


def text_of(n: int) -> str:
    return encode_public(PublicKey("encrypt", n.to_bytes(32, "big")))


def test_recipients_are_added_and_removed_and_each_is_there_once() -> None:
    one = set_recipients(PLAIN, [text_of(1), text_of(1)])
    assert one.recipients == (text_of(1),)
    two = change_recipients(one, [text_of(2), text_of(1)], [])
    assert two.recipients == (text_of(1), text_of(2))
    assert change_recipients(two, [text_of(3)], [text_of(1)]).recipients == (text_of(2), text_of(3))
    assert change_recipients(PLAIN, [text_of(1)], []).recipients == (text_of(1),)


def test_recipients_that_cannot_be_are_refused() -> None:
    one = set_recipients(PLAIN, [text_of(1)])
    for added, removed in (([], [text_of(1)]), ([], [text_of(2)]), ([text_of(2)], [text_of(1), text_of(2)])):
        with pytest.raises(UsageError):
            change_recipients(one, added, removed)
    other_kind = encode_public(PublicKey("sign", bytes(32)))
    for recipients in ([other_kind], ["alice"], [""], map(text_of, range(MAX_RECIPIENTS + 1))):
        with pytest.raises(UsageError):
            set_recipients(PLAIN, recipients)
