"""Buffer.append and append_many: receipts, units, producers, and what is refused before anything is stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hbuf
from hbuf.errors import BadInput, TooLarge, UsageError


@pytest.fixture
def buffer(tmp_path: Path) -> Iterator[hbuf.Buffer]:
    with hbuf.create(tmp_path / "orders") as opened:
        yield opened


def bodies(buffer: hbuf.Buffer) -> list[bytes]:
    return [message.body for message in buffer.read()]


def test_receipt_tells_what_is_stored(buffer: hbuf.Buffer) -> None:
    receipt = buffer.append(b"one", key="user-17", tags=["a", "b"], headers=[("Content-Type", "text/plain")])
    [message] = buffer.read()
    assert isinstance(receipt, hbuf.Receipt)
    assert receipt == hbuf.Receipt(message.seq, message.id, message.time_us, duplicate=False)
    assert (message.key, message.tags, message.headers) == ("user-17", ("a", "b"), (("content-type", "text/plain"),))


def test_many_messages_get_receipts_in_order(buffer: hbuf.Buffer) -> None:
    given: list[bytes | hbuf.Draft] = [
        b"plain",
        hbuf.draft(b"with a key", key="user-17"),
        hbuf.draft(b"", tags=["empty"]),
    ]
    receipts = buffer.append_many(iter(given))
    messages = list(buffer.read())
    assert [receipt.seq for receipt in receipts] == [1, 2, 3]
    assert [receipt.id for receipt in receipts] == [message.id for message in messages]
    assert [message.body for message in messages] == [b"plain", b"with a key", b""]
    assert len({message.time_us for message in messages}) == 1


def test_receipts_of_a_batch_that_goes_over_several_segments_have_the_times_that_are_stored(tmp_path: Path) -> None:
    with hbuf.create(tmp_path / "small", segment_messages="2") as small:
        receipts = small.append_many([b"%d" % number for number in range(7)])
        messages = list(small.read())
    assert [receipt.time_us for receipt in receipts] == [message.time_us for message in messages]


def test_no_messages_are_no_receipts(buffer: hbuf.Buffer) -> None:
    assert buffer.append_many([]) == []
    assert buffer.append_many([], atomic=True) == []
    assert bodies(buffer) == []


def test_unit_is_numbered_in_the_records_and_lies_in_one_segment_however_full_that_gets(tmp_path: Path) -> None:
    with hbuf.create(tmp_path / "orders", segment_messages="2", segment_bytes="4096") as buffer:
        buffer.append(b"before")
        receipts = buffer.append_many([b"a" * 2000, b"b" * 2000, b"c" * 2000], atomic=True)
        assert [receipt.seq for receipt in receipts] == [2, 3, 4]
        buffer.append(b"behind")
        assert buffer.verify().ok
    segments = [path.read_bytes() for path in sorted((tmp_path / "orders" / "segments").glob("*.http"))]
    places = [[data.count(b"x-hbuf-batch: %d/3\r\n" % i) for i in (1, 2, 3)] for data in segments]
    assert places == [[0, 0, 0], [1, 1, 1], [0, 0, 0]]


def test_unit_with_one_message_that_is_too_large_is_not_stored_at_all(tmp_path: Path) -> None:
    with hbuf.create(tmp_path / "orders", max_message_bytes="10") as buffer:
        with pytest.raises(TooLarge) as caught:
            buffer.append_many([b"small", b"x" * 11], atomic=True)
        assert (caught.value.exit_code, caught.value.stored) == (65, 0)
        assert bodies(buffer) == []


def test_producer_s_number_that_was_seen_is_a_duplicate_and_stored_once(buffer: hbuf.Buffer) -> None:
    first = buffer.append(b"one", producer="till-3", producer_seq=7)
    again = buffer.append(b"one", producer="till-3", producer_seq=7)
    older = buffer.append(b"zero", producer="till-3", producer_seq=6)
    assert (first.duplicate, again.duplicate, older.duplicate) == (False, True, True)
    # The number of an older one is not kept anywhere that is quick to find.
    assert (again.seq, older.seq) == (first.seq, 0)
    assert (again.id, again.time_us) == ("", 0)
    assert bodies(buffer) == [b"one"]


def test_producers_are_told_apart_and_gaps_are_taken(buffer: hbuf.Buffer) -> None:
    numbers = [("a", 1), ("b", 1), ("a", 5), ("b", 0), ("a", 5)]
    receipts = buffer.append_many(
        [hbuf.draft(name.encode(), producer=name, producer_seq=number) for name, number in numbers]
    )
    assert [receipt.duplicate for receipt in receipts] == [False, False, False, True, True]
    assert bodies(buffer) == [b"a", b"b", b"a"]


def test_duplicate_is_known_to_the_next_one_who_opens_the_buffer(buffer: hbuf.Buffer, tmp_path: Path) -> None:
    buffer.append_many([hbuf.draft(b"one", producer="till-3", producer_seq=1), b"two"])
    with hbuf.open(tmp_path / "orders") as other:
        assert other.append(b"one", producer="till-3", producer_seq=1).duplicate
        assert not other.append(b"three", producer="till-3", producer_seq=2).duplicate
    assert buffer.append(b"three", producer="till-3", producer_seq=2).duplicate


def test_unit_of_one_producer_s_number_is_sent_twice_and_stored_once(buffer: hbuf.Buffer) -> None:
    unit = [hbuf.draft(body, producer="bank", producer_seq=1) for body in (b"debit", b"credit")]
    assert [receipt.duplicate for receipt in buffer.append_many(unit, atomic=True)] == [False, False]
    assert [receipt.duplicate for receipt in buffer.append_many(unit, atomic=True)] == [True, True]
    assert bodies(buffer) == [b"debit", b"credit"]


@pytest.mark.parametrize("given", [{"producer": "till-3"}, {"producer_seq": 1}])
def test_producer_and_its_number_come_together(buffer: hbuf.Buffer, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        buffer.append(b"one", **given)
    assert bodies(buffer) == []


@pytest.mark.parametrize("number", [-1, 10**19])
def test_producer_s_number_that_no_record_can_hold_is_refused(buffer: hbuf.Buffer, number: int) -> None:
    with pytest.raises(UsageError):
        buffer.append(b"one", producer="till-3", producer_seq=number)
    assert buffer.verify().ok


def test_longest_producer_s_name_is_taken_beside_the_most_fields(buffer: hbuf.Buffer) -> None:
    # The line is `x-note: VALUE` CRLF, and all fields together have at most 64,511 bytes.
    headers = [("x-note", "v" * (64_511 - 10))]
    buffer.append(b"one", headers=headers, producer="é" * 64, producer_seq=10**18 - 1)
    assert buffer.verify().ok
    assert [message.headers for message in buffer.read()] == [tuple(headers)]


@pytest.mark.parametrize("name", ["", " till", "till ", "a\nb", "p" * 129, "é" * 65])
def test_producer_s_name_that_cannot_be_stored_is_refused(buffer: hbuf.Buffer, name: str) -> None:
    with pytest.raises((UsageError, TooLarge)):
        buffer.append(b"one", producer=name, producer_seq=1)
    assert bodies(buffer) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"key": ""},
        {"key": " blank"},
        {"key": "a\r\nb"},
        {"key": "\udcff"},
        {"tags": ["a\tb"]},
        {"headers": [("cookie", "secret")]},
        {"headers": [("content-length", "3")]},
        {"headers": [("x-hbuf-id", "1")]},
        {"headers": [("x-bad name", "1")]},
    ],
)
def test_field_that_cannot_be_kept_is_refused(buffer: hbuf.Buffer, fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        hbuf.draft(b"one", **fields)
    with pytest.raises(UsageError):
        buffer.append(b"one", **fields)
    assert bodies(buffer) == []


def test_fields_of_more_than_64511_bytes_are_too_large(buffer: hbuf.Buffer) -> None:
    with pytest.raises(TooLarge, match="64511") as caught:
        buffer.append(b"one", headers=[("x-note", "v" * (64_511 - 9))])
    assert (caught.value.exit_code, isinstance(caught.value, BadInput)) == (65, True)


def test_message_over_the_limit_is_too_large_and_the_buffer_goes_on(tmp_path: Path) -> None:
    with hbuf.create(tmp_path / "orders", max_message_bytes="5") as buffer:
        assert buffer.append(b"12345").seq == 1
        with pytest.raises(TooLarge):
            buffer.append(b"123456")
        assert buffer.append(b"1234").seq == 2


@pytest.mark.parametrize("body", ["text", None, 5])
def test_body_that_is_not_bytes_is_a_type_error_and_the_buffer_goes_on(buffer: hbuf.Buffer, body: Any) -> None:
    with pytest.raises(TypeError):
        buffer.append(body)
    with pytest.raises(TypeError):
        buffer.append_many([b"fine", body])
    assert buffer.append(b"one").seq == 1
    assert buffer.verify().ok


def test_draft_is_a_value_that_can_be_stored_more_than_once(buffer: hbuf.Buffer) -> None:
    draft = hbuf.draft(b"one", key="k")
    assert isinstance(draft, hbuf.Draft)
    assert draft == hbuf.draft(b"one", key="k")
    assert [receipt.seq for receipt in buffer.append_many([draft, draft])] == [1, 2]
    one, two = buffer.read()
    assert (one.body, one.key) == (two.body, two.key)
    assert one.id != two.id
