"""The examples in docs/format.md are what the code reads and writes, byte for byte."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from hbuf.format.chain import hasher_named
from hbuf.format.check import ChainState, Keys, check_records, is_put_signed
from hbuf.format.fields import NO_FIELDS, encode_fields
from hbuf.format.keys import KeyFile, PublicKey, encode_key_file, encode_public, fingerprint, parse_key_file
from hbuf.format.message import message_of
from hbuf.format.note import encode_note, encode_signature, head_text, key_hash, parse_note, put_text
from hbuf.format.record import encode_messages, encode_own_lines, encode_put
from hbuf.format.scan import own_values, scan
from hbuf.format.settings import encode_settings, parse_settings
from hbuf.format.times import parse_time

TEXT = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")


def fenced(kind: str) -> str:
    blocks = re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, f"docs/format.md has {len(blocks)} blocks of {kind}"
    return str(blocks[0])


@pytest.fixture
def example() -> bytes:
    return base64.b64decode(fenced("base64"))


def test_readable_and_encoded_example_are_the_same_bytes(example: bytes) -> None:
    assert fenced("http-record").replace("␍␊\n", "\r\n").encode() == example


def test_example_is_whole_and_its_chain_holds(example: bytes) -> None:
    found = scan(example)
    assert (found.end, found.unreadable) == (len(example), None)
    assert check_records(hasher_named("sha256"), example, found.records, ChainState(), 0) == []
    assert [record.method for record in found.records] == [b"PUT", b"POST", b"POST"]


def test_changed_byte_in_the_example_is_a_fault(example: bytes) -> None:
    changed = example.replace(b'{"total": 42}', b'{"total": 43}')
    assert changed != example
    faults = check_records(hasher_named("sha256"), changed, scan(changed).records, ChainState(), 0)
    assert [(fault.kind, fault.seq) for fault in faults] == [("chain", 1)]


def test_stated_places_and_ids_are_those_of_the_example(example: bytes) -> None:
    stated = re.findall(r"^\| `(?:PUT|POST \d)` \| (\d+) \| `([0-9a-f]{64})` \|$", TEXT, re.MULTILINE)
    assert [(int(at), record_id.encode()) for at, record_id in stated] == [
        (record.start, record.id) for record in scan(example).records
    ]


def test_example_is_what_the_encoder_writes(example: bytes) -> None:
    opening, *posts = scan(example).records
    hasher = hasher_named("sha256")
    settings = parse_settings(example[opening.body_start : opening.body_end])
    put, put_id = encode_put(
        hasher,
        settings.name,
        b"0" * 64,
        1,
        parse_time(opening.time.decode()),
        opening.salt,
        encode_settings(settings),
        hash_name=settings.hash,
        uuid=settings.uuid,
        epoch=1,
    )
    messages = [message_of(example, post, "default", settings.name) for post in posts]
    producer = own_values(posts[1].own)
    batch = encode_messages(
        hasher,
        settings.name,
        put_id,
        1,
        messages[0].time_us,
        b"".join(post.salt + b"\n" for post in posts),
        [message.body for message in messages],
        [encode_fields(message.key, message.tags, message.headers) for message in messages],
        [
            b"",
            encode_own_lines(unit=None, producer=(producer[b"x-hbuf-producer"], int(producer[b"x-hbuf-producer-seq"]))),
        ],
        offset=len(put),
    )
    assert put + batch.data == example


# The signed example


SEEDS = [bytes(range(start, start + 32)) for start in (0, 32, 64)]  # first key, second key, recovery key
PUBLIC = [bytes(SigningKey(seed).verify_key) for seed in SEEDS]
UUID = "6f1c2a9e-3b47-4d58-9c60-7a8b9cadbecf"


def stored(kind: str) -> bytes:
    return fenced(kind).replace("␍␊\n", "\r\n").encode()


def by_first_key(text: Callable[[str, int, bytes], bytes]) -> Callable[[int, bytes], bytes]:
    return lambda number, record_id: encode_signature(
        SigningKey(SEEDS[0]).sign(text(UUID, number, record_id)).signature
    )


def opening(data: bytes, prev: bytes, first: int, announced: bytes) -> tuple[bytes, bytes]:
    """The PUT at the start of `data`, as the encoder writes it, and its id."""
    put = scan(data).records[0]
    settings = parse_settings(data[put.body_start : put.body_end])
    return encode_put(
        hasher_named("sha256"), "ledger", prev, first, parse_time(put.time.decode()), put.salt,
        encode_settings(settings), hash_name="sha256", uuid=UUID, epoch=1,
        sign_key=announced, recovery_key=PUBLIC[2], sign=by_first_key(put_text),
    )  # fmt: skip


def test_signed_example_is_what_the_encoder_writes() -> None:
    data = stored("http-signed")
    posts = scan(data).records[1:]
    put, put_id = opening(data, b"0" * 64, 1, PUBLIC[0])
    batch = encode_messages(
        hasher_named("sha256"), "ledger", put_id, 1, parse_time(posts[0].time.decode()),
        b"".join(post.salt + b"\n" for post in posts), [b"paid 10", b"paid 20"], repeat(NO_FIELDS), repeat(b""),
        offset=len(put), sign=by_first_key(head_text),
    )  # fmt: skip
    assert put + batch.data == data
    following = stored("http-next")
    assert opening(following, batch.ids[-1], 3, PUBLIC[1])[0] == following


def test_signed_example_s_chain_and_signatures_hold() -> None:
    first, following = stored("http-signed"), stored("http-next")
    state = ChainState()
    assert is_put_signed(scan(first).records[0], PUBLIC[0])
    assert check_records(hasher_named("sha256"), first, scan(first).records, state, 0) == []
    assert (state.signatures, state.settled, state.keys) == (1, True, Keys(PUBLIC[0], PUBLIC[2]))
    assert check_records(hasher_named("sha256"), following, scan(following).records, state, 0) == []
    assert (state.signatures, state.settled, state.keys) == (2, True, Keys(PUBLIC[1], PUBLIC[2]))


def test_changed_signature_in_the_signed_example_is_a_fault() -> None:
    data = stored("http-signed")
    start = data.rindex(b"x-hbuf-sig: ") + len(b"x-hbuf-sig: ")
    changed = data[:start] + (b"A" if data[start : start + 1] != b"A" else b"B") + data[start + 1 :]
    faults = check_records(hasher_named("sha256"), changed, scan(changed).records, ChainState(), 0)
    assert [(fault.kind, fault.seq) for fault in faults] == [("signatures", 2)]


def test_note_in_the_text_is_that_of_the_signed_example(open_note: Callable[[bytes, str, bytes], list[str]]) -> None:
    note, last = fenced("note"), scan(stored("http-signed")).records[-1]
    assert last.sig is not None
    signature = base64.urlsafe_b64decode(last.sig + b"==")
    assert note == encode_note(UUID, 2, last.id, PUBLIC[0], signature)
    assert parse_note(note.encode())[:3] == (UUID, 2, last.id)
    assert open_note(note.encode(), f"hbuf/{UUID}", PUBLIC[0])[:2] == [f"hbuf/{UUID}", "2"]
    assert f"Its key hash is `{key_hash(f'hbuf/{UUID}', PUBLIC[0]).hex()}`" in TEXT


def test_keys_in_the_text_are_those_of_the_signed_example() -> None:
    first = PublicKey("sign", PUBLIC[0])
    assert fenced("public-key") == encode_public(first) + "\n"
    assert f"here `{fingerprint(first)}`" in TEXT
    put_id = scan(stored("http-next")).records[0].id
    key = KeyFile("sign", SEEDS[1], PUBLIC[1], UUID, PUBLIC[0], put_id)
    assert fenced("key-file").encode() == encode_key_file(key)
    assert parse_key_file(fenced("key-file").encode()) == key
