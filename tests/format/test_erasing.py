"""What erasing does to bytes, and what it finds of messages in bytes that were set aside."""

import re

import pytest

from hbuf.errors import BadInput
from hbuf.format.chain import hasher_named
from hbuf.format.deletes import Erasure
from hbuf.format.erased_list import encode_erased_list, parse_erased_list
from hbuf.format.erasing import blank_patches, find_layout, gone_patch, layout_of_record
from hbuf.format.fields import encode_fields
from hbuf.format.record import encode_messages
from hbuf.format.remains import Erased, Remains, erased_of
from hbuf.format.scan import Record, parse_record

FIELDS = encode_fields("user-17", ["host=web1"], [("x-note", "private")])
UUID = "3f2b6c1e-8f0a-4f0e-9a55-0d7d1b1f9a10"


def encoded(body: bytes, *, fields: bytes = b"", salt: bytes = b"A" * 43, seq: int = 7) -> bytes:
    fields_of = FIELDS if not fields else encode_fields(fields.decode(), [], [])
    batch = encode_messages(
        hasher_named("sha256"), "orders", b"0" * 64, seq, 0, salt + b"=", [body], [fields_of], [b""], offset=0
    )
    return batch.data


def parsed(data: bytes) -> Record:
    record = parse_record(data, 0)
    assert isinstance(record, Record)
    return record


def erased(data: bytes, steps: int = 99) -> bytes:
    """The record after so many of the patches that erase it."""
    layout = layout_of_record(parsed(data))
    changed = bytearray(data)
    for at, patch in [gone_patch(layout, 0, b"c" * 64), *blank_patches(layout, 0)][:steps]:
        changed[at : at + len(patch)] = patch
    return bytes(changed)


def test_erased_record_has_the_same_length_and_nothing_of_its_message() -> None:
    data = encoded(b"body")
    after = erased(data)
    record = parsed(after)
    assert len(after) == len(data)
    assert record.salted == b"gone"
    assert (record.id, record.time, record.seq) == (parsed(data).id, parsed(data).time, 7)
    for text in (b"user-17", b"web1", b"private", b"body", b"A" * 43):
        assert text not in after
    assert re.search(rb"\r\nx: -+\r\nx-hbuf-gone: [A-Za-z0-9_-]{43}\r\nx-hbuf-id: ", after)


@pytest.mark.parametrize("steps", range(4))
def test_layout_is_found_whatever_state_an_erase_left(steps: int) -> None:
    data = encoded(b"body")
    record = parsed(data)
    assert find_layout(erased(data, steps), 0, 7, record.id) == layout_of_record(record)


def test_layout_is_found_where_a_line_is_torn() -> None:
    data = encoded(b"body")
    record = parsed(data)
    torn = data[: record.fields_end + 9] + b"ne: QUFB" + data[record.fields_end + 17 :]
    assert find_layout(torn, 0, 7, record.id) == layout_of_record(record)


@pytest.mark.parametrize(("seq", "wanted"), [(8, None), (7, b"0" * 64)], ids=["number", "id"])
def test_layout_of_another_message_is_not_found(seq: int, wanted: bytes | None) -> None:
    data = encoded(b"body")
    assert find_layout(data, 0, seq, wanted or parsed(data).id) is None


# Remains


def said(data: bytes) -> Erased:
    return erased_of(data, parsed(data))


def left_of(data: bytes, message: Erased) -> bytes:
    """`data` with all that was found of the message overwritten."""
    changed = bytearray(data)
    for start, end in Remains(data).regions_of(message):
        changed[start:end] = bytes(end - start)
    return bytes(changed)


STORED = encoded(b"a longer body, twice: " * 2, salt=b"B" * 42 + b"A")
ATTEMPT = encoded(b"a longer body, twice: " * 2, salt=b"C" * 42 + b"A")
OTHER = encoded(b"of somebody else", fields=b"user-18", salt=b"D" * 42 + b"A")


def test_attempt_that_was_cut_anywhere_leaves_nothing() -> None:
    behind_head = parsed(ATTEMPT).head_end
    for end in range(len(ATTEMPT) + 1):
        left = left_of(OTHER + ATTEMPT[:end], said(STORED))
        assert left.startswith(OTHER)
        assert left[len(OTHER) + behind_head : len(OTHER) + len(ATTEMPT) - 2].strip(b"\0") == b""


@pytest.mark.parametrize("zeros", [(0, 20), (20, 60), (60, 200), (150, 400), (0, 260)])
def test_attempt_that_was_overwritten_in_part_leaves_nothing(zeros: tuple[int, int]) -> None:
    behind_head = parsed(ATTEMPT).head_end
    start, end = (min(behind_head + at, len(ATTEMPT) - 2) for at in zeros)
    blanked = ATTEMPT[:start] + bytes(end - start) + ATTEMPT[end:]
    left = left_of(blanked + OTHER, said(STORED))
    assert left[behind_head : len(ATTEMPT) - 2].strip(b"\0") == b""
    assert left.endswith(OTHER)


def test_what_others_said_stays() -> None:
    assert left_of(OTHER + OTHER, said(STORED)) == OTHER + OTHER


def test_same_salt_is_the_same_message_whatever_became_of_it() -> None:
    damaged = STORED.replace(b"twice", b"thrice")
    left = left_of(damaged, said(STORED))
    assert b"thrice" not in left
    assert b"user-17" not in left


def test_record_in_the_body_of_another_is_left_with_it() -> None:
    around = encoded(ATTEMPT, fields=b"user-18", salt=b"E" * 42 + b"A")
    assert left_of(around, said(STORED)) == around


# Lists

LISTED = [Erasure(2, b"1" * 64, b"2" * 64), Erasure(10, b"3" * 64, b"4" * 64)]


def test_list_is_read_as_it_was_written() -> None:
    text = encode_erased_list(UUID, reversed(LISTED))
    assert text.startswith(f"hbuf erased {UUID}\n2 1111".encode())
    assert parse_erased_list(text) == (UUID, LISTED)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"hello\n",
        f"hbuf erased {UUID}".encode(),
        encode_erased_list(UUID, LISTED)[:-1],
        encode_erased_list(UUID, LISTED)[:-20],
        encode_erased_list(UUID, LISTED) + b"\n",
        encode_erased_list(UUID, LISTED) + b"3 4 5\n",
    ],
)
def test_list_that_is_cut_or_none_is_refused(text: bytes) -> None:
    with pytest.raises(BadInput):
        parse_erased_list(text)
