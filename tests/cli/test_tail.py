"""hbuf-tail: which messages it shows, and how."""

from __future__ import annotations

import json
import re
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hbuf
from hbuf.format.settings import Settings
from hbuf.format.times import encode_time
from hbuf.store.create import create_buffer
from hbuf.store.directory import BufferDirectory
from hbuf.store.outgoing import Outgoing
from hbuf.store.writer import Writer

if TYPE_CHECKING:
    from cli.conftest import MakeBuffer, Run

HOUR_US = 3_600_000_000


class HandSetClock:
    """Two clocks that go together, as on a good machine, and only when they are told to."""

    def __init__(self) -> None:
        self.time_us = time.time_ns() // 1000 - 10 * HOUR_US

    def now_us(self) -> int:
        return self.time_us

    def steady_us(self) -> int:
        return self.time_us


@pytest.fixture
def numbers(make_buffer: MakeBuffer) -> Path:
    """Bodies 1 to 15, four in a segment."""
    return make_buffer("numbers", [b"%d" % i for i in range(1, 16)], segment_messages="4")


@pytest.fixture
def hours() -> list[str]:
    """A buffer `hours` with a message for each of the last ten hours, a minute late. Returns their times."""
    directory, clock = BufferDirectory(Path("hours").absolute()), HandSetClock()
    create_buffer(
        directory, Settings(str(uuid.uuid4()), "hours", encode_time(clock.time_us), segment_messages=4), clock
    )
    clock.time_us += HOUR_US // 60
    with Writer(directory, clock=clock) as writer:
        for hour in range(10):
            writer.append(Outgoing([b"%d" % hour]))
            clock.time_us += HOUR_US
    with hbuf.open(directory.path) as buffer:
        return [encode_time(message.time_us) for message in buffer.read()]


def shown(run: Run, *arguments: str) -> list[int]:
    done = run("hbuf-tail", *arguments)
    assert (done.code, done.err) == (0, "")
    return [int(line) for line in done.lines]


@pytest.mark.over_https
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], range(6, 16)),
        (["-n", "3"], range(13, 16)),
        (["--lines", "3"], range(13, 16)),
        (["-n", "0"], []),
        (["-n", "100"], range(1, 16)),
        (["-o", "first"], range(1, 16)),
        (["--from", "last"], [15]),
        (["-o", "end"], []),
        (["-o", "1"], range(1, 16)),
        (["-o", "5"], range(5, 16)),
        (["-o", "15"], [15]),
        (["-o", "16"], []),
        (["-o", "1000000000000"], []),
        (["-o", "-3"], range(13, 16)),
        (["-o", "-0"], []),
        (["-o", "-100"], range(1, 16)),
        (["-o", "@10m"], range(1, 16)),
        (["-o", "@2000-01-01"], range(1, 16)),
        (["-o", "@2999-01-01T00:00:00Z"], []),
        (["-o", "2", "-n", "1"], range(2, 16)),
        (["-c", "2"], [6, 7]),
        (["--count", "2", "-o", "4"], [4, 5]),
        (["-c", "0"], []),
        (["-c", "100", "-n", "2"], [14, 15]),
        (["-e"], range(6, 16)),
        (["--exit-at-end", "-o", "14"], [14, 15]),
        (["--since", "10m"], range(1, 16)),
        (["--since", "10m", "-c", "1"], [1]),
        (["--since", "2999-01-01"], []),
        (["--until", "2000-01-01", "-o", "first"], []),
        (["--until", "2999-01-01"], range(6, 16)),
        (["-o", "first", "-g", "1$"], [1, 11]),
        (["--grep", "^1[3-9]"], [13, 14, 15]),
        (["-o", "first", "-g", "1", "-c", "2"], [1, 10]),
        (["-n", "2", "-g", "15"], [15]),
        (["-o", "first", "-g", "x-hbuf"], []),
    ],
    ids=str,
)
def test_which_messages_are_shown(run: Run, numbers: Path, options: list[str], expected: list[int]) -> None:
    assert shown(run, *options, "numbers") == list(expected)


@pytest.mark.over_https
def test_times_choose_messages(run: Run, hours: list[str]) -> None:
    assert shown(run, "hours", "-o", f"@{hours[4]}") == [4, 5, 6, 7, 8, 9]
    assert shown(run, "hours", "-o", "@3h") == [7, 8, 9]
    assert shown(run, "hours", "--since", hours[8]) == [8, 9]
    assert shown(run, "hours", "--since", hours[8].replace("Z", "+00:00")) == [8, 9]
    assert shown(run, "hours", "--since", "2h") == [8, 9]
    assert shown(run, "hours", "--until", hours[2], "-o", "first") == [0, 1]
    assert shown(run, "hours", "--until", "8h", "-o", "first") == [0, 1]
    assert shown(run, "hours", "--since", "6h", "--until", "120m") == [4, 5, 6, 7]
    assert shown(run, "hours", "--since", hours[3], "--until", hours[3]) == []
    assert shown(run, "hours", "-o", "3", "--since", "0.5h") == []


@pytest.mark.over_https
def test_an_empty_buffer_shows_nothing(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("empty")
    for place in ("first", "last", "end", "-3", "1", "@10m"):
        assert run("hbuf-tail", "empty", "-o", place) == (0, b"", "")
    assert run("hbuf-tail", "--json", "empty") == (0, b"", "")


@pytest.mark.over_https
@pytest.mark.parametrize("tags_files", ["there", "missing", "damaged"])
def test_key_and_tag_choose_messages_with_tags_files_and_without(
    run: Run, make_buffer: MakeBuffer, tags_files: str
) -> None:
    messages = [
        hbuf.draft(b"%d" % i, key=f"k{i % 3}", tags=[f"t{i % 2}", "all"] if i % 5 else [], headers=[("x-t", "t0")])
        for i in range(1, 16)
    ]
    make_buffer("orders", messages, segment_messages="4")
    sealed = sorted(Path("orders/segments").glob("*.tags"))
    assert len(sealed) == 3
    for path in sealed:
        if tags_files == "missing":
            path.unlink()
        elif tags_files == "damaged":
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert shown(run, "orders", "-o", "first", "--key", "k2") == [2, 5, 8, 11, 14]
    assert shown(run, "orders", "-o", "first", "--tag", "t0") == [2, 4, 6, 8, 12, 14]
    assert shown(run, "orders", "-o", "first", "--tag", "t0", "--key", "k2") == [2, 8, 14]
    assert shown(run, "orders", "-o", "7", "--tag", "all", "-c", "2") == [7, 8]
    assert shown(run, "orders", "-n", "2", "--key", "k0") == [15]
    assert shown(run, "orders", "-o", "first", "--key", "k") == []
    assert shown(run, "orders", "-o", "first", "--tag", "no such") == []
    assert shown(run, "orders", "-o", "first", "--tag", "t1", "-g", "^1") == [1, 11, 13]


@pytest.mark.over_https
@pytest.mark.parametrize(
    ("options", "end"),
    [
        ([], b"\n"),
        (["--raw"], b"\n"),
        (["-0"], b"\0"),
        (["--null"], b"\0"),
        (["-D", r"\x1e"], b"\x1e"),
        (["--separator", "<SEP>"], b"<SEP>"),
        (["-D", r"\r\n"], b"\r\n"),
        (["-D", ""], b""),
    ],
    ids=repr,
)
def test_how_each_body_ends(run: Run, make_buffer: MakeBuffer, options: list[str], end: bytes) -> None:
    messages = [b"one", b"", b"\xff\0\n"]
    make_buffer("orders", messages)
    assert run("hbuf-tail", *options, "orders") == (0, b"".join(body + end for body in messages), "")


@pytest.mark.over_https
def test_http_is_what_the_segments_hold(run: Run, numbers: Path) -> None:
    stored = b"".join(path.read_bytes() for path in sorted(numbers.glob("segments/*.http")))
    # Each segment opens with a PUT, which is no message.
    without_puts = re.sub(rb"PUT .*?(?=POST )", b"", stored, flags=re.DOTALL)
    assert run("hbuf-tail", "--http", "-o", "first", "numbers") == (0, without_puts, "")


def test_json_has_every_field(run: Run, make_buffer: MakeBuffer) -> None:
    messages = [
        hbuf.draft("Łódź".encode(), key="k", tags=["a", "b"], headers=[("content-type", "text/plain")]),
        hbuf.draft(b"\xff"),
    ]
    make_buffer("tenants/acme/buffers/orders", messages)
    done = run("hbuf-tail", "--json", "tenants/acme/buffers/orders")
    assert (done.code, done.err) == (0, "")
    first, second = (json.loads(line) for line in done.lines)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first.pop("time"))
    assert re.fullmatch(r"[0-9a-f]{64}", first.pop("id"))
    assert first == {
        "tenant": "acme",
        "buffer": "orders",
        "seq": 1,
        "key": "k",
        "tags": ["a", "b"],
        "headers": [{"name": "content-type", "value": "text/plain"}],
        "body": "Łódź",
        "erased": False,
        "encrypted": False,
    }
    assert (second["body_base64"], second["key"], second["tags"], second["headers"]) == ("/w==", None, [], [])
    assert "body" not in second


def test_moved_buffer_has_its_directorys_name(run: Run, numbers: Path) -> None:
    numbers.rename("renamed")
    shown_now = json.loads(run("hbuf-tail", "--json", "-n", "1", "renamed").out)
    assert (shown_now["tenant"], shown_now["buffer"]) == ("default", "renamed")


@pytest.mark.over_https
@pytest.mark.parametrize("form", ["--raw", "--http", "--json"])
@pytest.mark.parametrize("options", [[], ["--key", "k"], ["-g", "."]], ids=["all", "by key", "by pattern"])
def test_damaged_message_is_named_and_the_others_are_shown(
    run: Run, make_buffer: MakeBuffer, form: str, options: list[str]
) -> None:
    make_buffer("orders", [hbuf.draft(b"body %d" % i, key="k") for i in range(1, 8)], segment_messages="3")
    segment = Path("orders/segments/00000000000000000004.http")
    content = segment.read_bytes()
    at = content.index(b"POST /b/orders HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: 4\r\n")
    segment.write_bytes(content[:at] + b"GARB" + content[at + 4 :])
    done = run("hbuf-tail", "-o", "first", form, *options, "orders")
    assert done.code == 65
    assert re.findall(rb"body \d", done.out) == [b"body %d" % i for i in (1, 2, 3, 5, 6, 7)]
    assert done.err.startswith(f"hbuf-tail: orders: 00000000000000000004.http: byte {at}: ")
    assert len(done.err.splitlines()) == 1


@pytest.mark.over_https
def test_index_that_is_missing_makes_no_difference(run: Run, numbers: Path) -> None:
    for path in numbers.glob("segments/*.idx"):
        path.unlink()
    assert shown(run, "-o", "first", "numbers") == list(range(1, 16))
    assert shown(run, "-n", "3", "numbers") == [13, 14, 15]


@pytest.mark.over_https
def test_paused_and_closed_buffers_are_read_all_the_same(run: Run, numbers: Path) -> None:
    run("hbuf-close", "numbers")
    run("hbuf-pause", "numbers")
    assert shown(run, "-n", "1", "numbers") == [15]
