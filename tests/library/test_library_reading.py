"""Buffer.read, follow and verify: places, choices, typed messages, and what is not as it must be."""

from __future__ import annotations

import contextlib
import queue
import shutil
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import hbuf
from hbuf.errors import Damaged, NewerFormat, NotFound, UsageError
from hbuf.format.places import Place

DEADLINE_SECONDS = 30
BODIES = [b"first order", b"second\norder", b"", b"third", b"\xff\x00"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five messages in three segments, the even ones with a key, the last two with a tag."""
    path = tmp_path_factory.mktemp("made") / "orders"
    with hbuf.create(path, segment_messages="2") as opened:
        for number, body in enumerate(BODIES, 1):
            opened.append(
                body, key="even" if number % 2 == 0 else None, tags=["late", f"n={number}"] if number > 3 else []
            )
    return path


@pytest.fixture
def buffer(made: Path, tmp_path: Path) -> Iterator[hbuf.Buffer]:
    """A copy of it: copying is quicker than making, which syncs."""
    with hbuf.open(shutil.copytree(made, tmp_path / "orders")) as opened:
        yield opened


def seqs(messages: Iterator[hbuf.Message]) -> list[int]:
    return [message.seq for message in messages]


def flip(path: Path, old: bytes, new: bytes) -> None:
    whole = path.read_bytes()
    assert whole.count(old) == 1
    path.write_bytes(whole.replace(old, new))


def test_message_is_a_frozen_value_with_the_documented_types(tmp_path: Path) -> None:
    with hbuf.create(tmp_path / "orders") as orders:
        receipt = orders.append("smörgås".encode(), key="ü", tags=["a", ""], headers=[("x-n", "ł")])
        [message] = orders.read()
    assert message == hbuf.Message(
        tenant="default",
        buffer="orders",
        seq=1,
        time_us=receipt.time_us,
        id=receipt.id,
        key="ü",
        tags=("a", ""),
        headers=(("x-n", "ł"),),
        body="smörgås".encode(),
        erased=False,
        encrypted=False,
    )
    assert isinstance(message.time, datetime)
    assert message.time.tzinfo is UTC
    assert round(message.time.timestamp() * 1_000_000) == message.time_us
    with pytest.raises(AttributeError):
        message.seq = 2  # type: ignore[misc]


def test_everything_is_read_in_order_over_all_segments(buffer: hbuf.Buffer) -> None:
    assert [(message.seq, message.body) for message in buffer.read()] == list(enumerate(BODIES, 1))


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("first", [1, 2, 3, 4, 5]),
        ("last", [5]),
        ("end", []),
        ("1", [1, 2, 3, 4, 5]),
        ("3", [3, 4, 5]),
        ("6", []),
        ("99", []),
        ("-2", [4, 5]),
        ("-99", [1, 2, 3, 4, 5]),
        ("@1970-01-01", [1, 2, 3, 4, 5]),
        ("@1h", [1, 2, 3, 4, 5]),
        ("@9999-01-01", []),
        (Place("number", 4), [4, 5]),
    ],
)
def test_place_says_where_reading_begins(buffer: hbuf.Buffer, place: str | Place, expected: list[int]) -> None:
    assert seqs(buffer.read(place)) == expected


@pytest.mark.parametrize("until", ["4", "-2", Place("number", 4)])
def test_until_is_a_place_that_is_not_read_any_more(buffer: hbuf.Buffer, until: str | Place) -> None:
    assert seqs(buffer.read("2", until=until)) == [2, 3]
    assert seqs(buffer.read(until="99")) == [1, 2, 3, 4, 5]
    assert seqs(buffer.read("4", until="2")) == []


def test_time_as_a_place_is_exact_to_the_microsecond(buffer: hbuf.Buffer) -> None:
    messages = list(buffer.read())
    for message in messages:
        first_then = next(other.seq for other in messages if other.time_us >= message.time_us)
        exact = message.time.isoformat().replace("+00:00", "Z")
        assert next(buffer.read(f"@{exact}")).seq == first_then
        assert seqs(buffer.read(until=f"@{exact}")) == list(range(1, first_then))


def test_count_limits_what_was_chosen(buffer: hbuf.Buffer) -> None:
    assert seqs(buffer.read(count=2)) == [1, 2]
    assert seqs(buffer.read(key="even", count=1)) == [2]
    assert seqs(buffer.read(count=0)) == []
    assert seqs(buffer.read(count=99)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"key": "even"}, [2, 4]),
        ({"key": "odd"}, []),
        ({"tag": "late"}, [4, 5]),
        ({"tag": "n=5"}, [5]),
        ({"key": "even", "tag": "late"}, [4]),
        ({"key": "late"}, []),
        ({"tag": "even"}, []),
        ({"pattern": "order"}, [1, 2]),
        ({"pattern": "ORDER"}, []),
        ({"pattern": "(?i)ORDER"}, [1, 2]),
        ({"pattern": "order", "key": "even"}, [2]),
        ({"pattern": "^$"}, [3]),
        ({"pattern": "^second"}, [2]),
        ({"pattern": "^order"}, [2]),
        ({"pattern": "second$"}, [2]),
        ({"pattern": r"\Aorder"}, []),
        ({"pattern": r"order\Z"}, [1, 2]),
        ({"pattern": "x-hbuf"}, []),
        ({"pattern": "even"}, []),
    ],
    ids=str,
)
def test_key_tag_and_pattern_choose_together(buffer: hbuf.Buffer, choice: dict[str, Any], expected: list[int]) -> None:
    assert seqs(buffer.read(**choice)) == expected


@pytest.mark.parametrize("place", ["", "0", "-", "one", "@", "@yesterday", "consumer:", "1.5"])
def test_text_that_is_no_place_is_a_usage_error(buffer: hbuf.Buffer, place: str) -> None:
    with pytest.raises(UsageError):
        list(buffer.read(place))


def test_consumer_s_place_is_reserved(buffer: hbuf.Buffer) -> None:
    with pytest.raises(NotFound):
        list(buffer.read("consumer:billing"))


def test_pattern_that_is_no_regular_expression_is_a_usage_error(buffer: hbuf.Buffer) -> None:
    with pytest.raises(UsageError, match="regular expression"):
        list(buffer.read(pattern="["))


def test_reading_ends_at_the_end_as_it_was_when_it_began(buffer: hbuf.Buffer) -> None:
    found = []
    for message in buffer.read():
        found.append(message.seq)
        buffer.append(b"while reading")
    assert found == [1, 2, 3, 4, 5]


def test_damaged_message_is_passed_over_and_named_at_the_end_and_by_verify(buffer: hbuf.Buffer, tmp_path: Path) -> None:
    flip(tmp_path / "orders" / "segments" / "00000000000000000003.http", b"x-hbuf-seq: 3\r\n", b"x-hbuf-seq; 3\r\n")
    read = buffer.read()
    assert [next(read).seq for _ in range(4)] == [1, 2, 4, 5]
    with pytest.raises(Damaged, match="message 3 is damaged"):
        next(read)
    assert ("bytes", 3) in {(fault.kind, fault.seq) for fault in buffer.verify().faults}


def test_buffer_of_a_newer_format_is_refused_by_name(buffer: hbuf.Buffer, tmp_path: Path) -> None:
    for segment in (tmp_path / "orders" / "segments").glob("*.http"):
        flip(segment, b"x-hbuf-format: 1\r\n", b"x-hbuf-format: 2\r\n")
    with pytest.raises(NewerFormat, match="format 2") as caught, hbuf.open(tmp_path / "orders") as newer:
        list(newer.read())
    assert caught.value.exit_code == 65
    with pytest.raises(NewerFormat), hbuf.open(tmp_path / "orders") as newer:
        newer.append(b"more")


# The message at which a Following stops; it has to be chosen by what is followed.
LAST = hbuf.draft(b"want no more", key="even")


class Following:
    """Takes messages from `follow` in a thread of its own, so that one that never comes fails and does not hang."""

    def __init__(self, messages: Iterator[hbuf.Message]) -> None:
        self._messages = messages
        self._bodies: queue.Queue[bytes] = queue.Queue()
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self) -> None:
        for message in self._messages:
            if message.body == LAST.body:
                break
            self._bodies.put(message.body)
        del self._messages  # a generator: it lets its files go

    def next_body(self, seconds: float = DEADLINE_SECONDS) -> bytes:
        return self._bodies.get(timeout=seconds)

    def end(self, buffer: hbuf.Buffer) -> None:
        buffer.append_many([LAST])
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()


def test_following_gives_what_is_there_and_then_what_comes_also_in_new_segments(buffer: hbuf.Buffer) -> None:
    following = Following(buffer.follow("4"))
    assert [following.next_body() for _ in range(2)] == BODIES[3:]
    buffer.append_many([b"six", b"seven", b"eight"])
    assert [following.next_body() for _ in range(3)] == [b"six", b"seven", b"eight"]
    following.end(buffer)


def test_following_from_the_end_shows_only_what_comes_and_is_chosen(buffer: hbuf.Buffer) -> None:
    following = Following(buffer.follow(key="even", pattern="want"))
    # Until it waits nobody can tell what its end is: so messages are sent until one comes through.
    deadline = time.monotonic() + DEADLINE_SECONDS
    body = b""
    while not body and time.monotonic() < deadline:
        buffer.append_many([b"wanted, but no key", hbuf.draft(b"no", key="even"), hbuf.draft(b"wanted", key="even")])
        with contextlib.suppress(queue.Empty):
            body = following.next_body(0.1)
    assert body == b"wanted"
    following.end(buffer)


def test_verify_reports_what_was_checked(buffer: hbuf.Buffer) -> None:
    last = list(buffer.read())[-1]
    report = buffer.verify()
    assert report.ok
    assert (report.faults, report.not_checked) == ([], {})
    assert (report.segments, report.messages, report.first_seq, report.last_seq) == (3, 5, 1, 5)
    assert report.last_id == last.id
    assert buffer.verify(head=f"{last.seq}:{last.id}").ok


def test_verify_names_the_place_of_a_changed_byte(buffer: hbuf.Buffer, tmp_path: Path) -> None:
    segment = tmp_path / "orders" / "segments" / "00000000000000000001.http"
    flip(segment, b"first order", b"First order")
    report = buffer.verify()
    assert not report.ok
    [fault] = report.faults
    assert (fault.kind, fault.file, fault.seq) == ("chain", segment.name, 1)
    assert segment.read_bytes()[fault.at :].startswith(b"POST /b/orders HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: 1\r\n")


@pytest.mark.parametrize("head", ["5:" + "0" * 64, "6:" + "0" * 64])
def test_verify_misses_a_head_that_is_not_there(buffer: hbuf.Buffer, head: str) -> None:
    report = buffer.verify(head=head)
    assert [fault.kind for fault in report.faults] == ["completeness"]


@pytest.mark.parametrize("head", ["", "5", "x:" + "0" * 64, "5:" + "0" * 63, "5:" + "G" * 64])
def test_head_that_is_no_number_and_id_is_a_usage_error(buffer: hbuf.Buffer, head: str) -> None:
    with pytest.raises(UsageError):
        buffer.verify(head=head)
