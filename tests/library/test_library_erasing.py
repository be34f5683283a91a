"""Erasing with the library."""

from pathlib import Path

import pytest

import hbuf
from hbuf.errors import NotAllowed, NotFound, UsageError


@pytest.fixture
def orders(tmp_path: Path) -> hbuf.Buffer:
    buffer = hbuf.create(tmp_path / "orders")
    buffer.append_many([hbuf.draft(b"order %d" % n, key=f"user-{n % 2}") for n in range(1, 6)])
    return buffer


def erased(orders: hbuf.Buffer) -> list[int]:
    return [message.seq for message in orders.read() if message.erased]


def test_messages_are_erased_by_number_and_the_buffer_goes_on(orders: hbuf.Buffer) -> None:
    assert orders.erase([4, 2], reason="asked for") == 2
    assert orders.erase([2, 3], reason="asked for") == 1
    assert erased(orders) == [2, 3, 4]
    assert orders.append(b"order 6").seq == 9
    assert orders.verify().ok


def test_erased_message_has_a_number_and_a_time_and_nothing_else(orders: hbuf.Buffer) -> None:
    before = next(orders.read("2"))
    orders.erase([2], reason="asked for")
    after = next(orders.read("2"))
    assert (after.seq, after.time, after.id) == (before.seq, before.time, before.id)
    assert (after.erased, after.key, after.tags, after.headers, after.body) == (True, None, (), (), b"")


def test_all_messages_of_a_key_are_erased(orders: hbuf.Buffer) -> None:
    assert orders.erase(key="user-1", reason="asked for") == 3
    assert erased(orders) == [1, 3, 5]
    assert list(orders.read(key="user-1")) == []


def test_pattern_never_matches_what_is_erased(orders: hbuf.Buffer) -> None:
    orders.erase([2], reason="asked for")
    assert [message.seq for message in orders.read(pattern="")] == [1, 3, 4, 5]


@pytest.mark.parametrize(("numbers", "key"), [([], None), ([1], "user-1")])
def test_either_numbers_or_a_key_are_given(orders: hbuf.Buffer, numbers: list[int], key: str | None) -> None:
    with pytest.raises(UsageError):
        orders.erase(numbers, key=key, reason="asked for")


@pytest.mark.parametrize(("numbers", "error"), [([1, 9], NotFound), ([0], NotFound), ([1, 6], NotAllowed)])
def test_what_cannot_be_erased_raises_and_nothing_is_erased(
    orders: hbuf.Buffer, numbers: list[int], error: type[Exception]
) -> None:
    orders.erase([5], reason="asked for")
    with pytest.raises(error):
        orders.erase(numbers, reason="asked for")
    assert erased(orders) == [5]
