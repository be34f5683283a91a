"""The example in docs/format.md is what the code reads and writes, byte for byte."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from hbuf.format.chain import hasher_named
from hbuf.format.check import ChainState, check_records
from hbuf.format.fields import encode_fields
from hbuf.format.message import message_of
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
