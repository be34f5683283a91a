"""The erased message and its DELETE in docs/format.md are what erasing makes of the example, byte for byte."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from hbuf.format.chain import commitment, hasher_named
from hbuf.format.check import ChainState, Gone, check_records
from hbuf.format.deletes import Erasure, encode_delete, parse_delete
from hbuf.format.erasing import blank_patches, gone_patch, layout_of_record
from hbuf.format.record import encode_deletes
from hbuf.format.scan import Record, own_values, scan
from hbuf.format.times import parse_time

TEXT = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
HASHER = hasher_named("sha256")


def fenced(kind: str) -> str:
    [block] = re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return str(block)


@pytest.fixture
def example() -> bytes:
    return base64.b64decode(fenced("base64"))


@pytest.fixture
def erased() -> bytes:
    return fenced("http-erased").replace("␍␊\n", "\r\n").replace("␀", "\0").encode()


def message(example: bytes) -> Record:
    return scan(example).records[1]


def commitment_of(example: bytes) -> bytes:
    record = message(example)
    fields, body = example[record.head_end : record.fields_end], example[record.body_start : record.body_end]
    return commitment(HASHER, record.salt, fields, body)


def test_erased_message_is_what_erasing_makes_of_the_example(example: bytes, erased: bytes) -> None:
    record = message(example)
    layout = layout_of_record(record)
    expected = bytearray(example[record.start : record.end])
    for at, patch in (gone_patch(layout, 0, commitment_of(example)), *blank_patches(layout, 0)):
        expected[at : at + len(patch)] = patch
    assert erased.startswith(bytes(expected))
    assert scan(erased).records[0].end == len(expected)


def test_delete_is_what_the_encoder_writes(example: bytes, erased: bytes) -> None:
    record, delete = message(example), scan(erased).records[1]
    what = parse_delete(delete.own)
    assert what == Erasure(record.seq, record.id, commitment_of(example))
    values = own_values(delete.own)
    lines = encode_delete(what, values[b"x-hbuf-by"], values[b"x-hbuf-reason"])
    batch = encode_deletes(
        HASHER,
        "orders",
        scan(example).records[-1].id,
        delete.seq,
        parse_time(delete.time.decode()),
        delete.salt + b"=",
        [lines],
        offset=0,
    )
    assert erased[delete.start :] == batch.data


def test_chain_holds_with_the_message_erased(example: bytes, erased: bytes) -> None:
    record = message(example)
    gone_end = scan(erased).records[0].end
    segment = example[: record.start] + erased[:gone_end] + example[record.end :] + erased[gone_end:]
    state = ChainState()
    assert check_records(HASHER, segment, scan(segment).records, state, 0) == []
    assert state.gone == {record.seq: Gone(record.id, commitment_of(example))}
    assert [delete.seq for delete in state.deletes] == [3]
