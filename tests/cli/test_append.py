"""hbuf-append: how input is cut into messages, what is kept with each, and what a receipt says."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hbuf
from hbuf.store import fsops

if TYPE_CHECKING:
    from cli.conftest import Bodies, MakeBuffer, Run


@pytest.mark.over_https
def test_each_line_is_a_message_also_an_empty_one_and_a_last_one_without_its_newline(run: Run, bodies: Bodies) -> None:
    assert run("hbuf-append", "orders", stdin=b"one\n\ntwo\r\nthree") == (0, b"", "")
    assert bodies("orders") == [b"one", b"", b"two\r", b"three"]


def test_no_input_makes_the_buffer_and_stores_nothing(run: Run, bodies: Bodies) -> None:
    assert run("hbuf-append", "orders") == (0, b"", "")
    assert bodies("orders") == []


@pytest.mark.over_https
@pytest.mark.parametrize("option", ["-0", "--null"])
def test_null_ends_messages_and_newlines_are_data(run: Run, bodies: Bodies, option: str) -> None:
    assert run("hbuf-append", option, "orders", stdin=b"one\nmore\0\0two").code == 0
    assert bodies("orders") == [b"one\nmore", b"", b"two"]


@pytest.mark.over_https
@pytest.mark.parametrize(
    ("separator", "data"),
    [
        (";", b"one;two\nmore;three"),
        (r"\x1e", b"one\x1etwo\nmore\x1ethree\x1e"),
        (r"\t", b"one\ttwo\nmore\tthree"),
        ("<SEP>", b"one<SEP>two\nmore<SEP>three"),
        (r"\r\n--\r\n", b"one\r\n--\r\ntwo\nmore\r\n--\r\nthree\r\n--\r\n"),
        ("é", "oneétwo\nmoreéthree".encode()),
    ],
)
def test_separator_ends_messages(run: Run, bodies: Bodies, separator: str, data: bytes) -> None:
    assert run("hbuf-append", "orders", "-D", separator, stdin=data) == (0, b"", "")
    assert bodies("orders") == [b"one", b"two\nmore", b"three"]


@pytest.mark.over_https
def test_each_file_is_one_message_and_a_dash_is_standard_input(run: Run, bodies: Bodies) -> None:
    Path("first").write_bytes(b"line 1\nline 2\n")
    Path("empty").write_bytes(b"")
    Path("-odd").write_bytes(b"\0\xff")
    done = run("hbuf-append", "orders", "-v", "--", "first", "-", "empty", "-odd", stdin=b"from\nthe pipe\n")
    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in done.lines] == ["1", "2", "3", "4"]
    assert bodies("orders") == [b"line 1\nline 2\n", b"from\nthe pipe\n", b"", b"\0\xff"]


def test_missing_file_is_named_and_nothing_is_made(run: Run) -> None:
    Path("first").write_bytes(b"1")
    done = run("hbuf-append", "orders", "first", "missing", "first")
    assert done == (66, b"", "hbuf-append: missing: No such file or directory\n")
    assert not Path("orders").exists()


@pytest.mark.over_https
def test_file_that_cannot_be_read_is_named_with_how_many_before_it_were_stored(run: Run, bodies: Bodies) -> None:
    Path("first").write_bytes(b"1")
    Path("folder").mkdir()
    done = run("hbuf-append", "orders", "first", "first", "folder", "first")
    assert done == (74, b"", "hbuf-append: folder: Is a directory; 2 messages were stored\n")
    assert bodies("orders") == [b"1", b"1"]


@pytest.mark.over_https
def test_key_tags_and_headers_are_kept_with_each_message(run: Run) -> None:
    options = ["-k", "Łódź", "--tag", "host=web1", "--tag", "b", "-H", "Content-Type:  text/plain ", "-H", "x-empty:"]
    assert run("hbuf-append", "orders", *options, stdin=b"one\ntwo\n") == (0, b"", "")
    shown = [json.loads(line) for line in run("hbuf-tail", "--json", "orders").lines]
    assert [(each["key"], each["tags"], each["body"]) for each in shown] == [
        ("Łódź", ["host=web1", "b"], "one"),
        ("Łódź", ["host=web1", "b"], "two"),
    ]
    assert shown[0]["headers"] == [{"name": "content-type", "value": "text/plain"}, {"name": "x-empty", "value": ""}]


@pytest.mark.over_https
def test_verbose_prints_number_and_id_of_each_message(run: Run) -> None:
    done = run("hbuf-append", "-v", "orders", stdin=b"one\ntwo\n")
    with hbuf.open("orders") as buffer:
        assert done == (0, b"".join(b"%d %b\n" % (m.seq, m.id.encode()) for m in buffer.read()), "")


def test_missing_buffer_is_made_with_the_directories_above_it(run: Run, bodies: Bodies) -> None:
    assert run("hbuf-append", "new/tenants/acme/buffers/orders", stdin=b"one\n") == (0, b"", "")
    assert bodies("new/tenants/acme/buffers/orders") == [b"one"]


@pytest.mark.over_https
def test_no_create_refuses_a_missing_buffer_and_makes_nothing(run: Run) -> None:
    done = run("hbuf-append", "--no-create", "orders", stdin=b"one\n")
    assert done == (66, b"", "hbuf-append: orders: there is no such buffer\n")
    assert not Path("orders").exists()


@pytest.mark.over_https
def test_no_create_appends_to_one_that_is_there(run: Run, make_buffer: MakeBuffer, bodies: Bodies) -> None:
    make_buffer("orders")
    assert run("hbuf-append", "--no-create", "orders", stdin=b"one\n") == (0, b"", "")
    assert bodies("orders") == [b"one"]


@pytest.mark.over_https
def test_atomic_input_is_one_unit_in_one_segment(run: Run, make_buffer: MakeBuffer, bodies: Bodies) -> None:
    make_buffer("orders", segment_messages="2")
    assert run("hbuf-append", "orders", "--atomic", stdin=b"one\ntwo\nthree\n") == (0, b"", "")
    assert bodies("orders") == [b"one", b"two", b"three"]
    assert len(list(Path("orders/segments").glob("*.http"))) == 1
    shown = run("hbuf-tail", "--http", "orders").out
    assert [f"x-hbuf-batch: {i}/3\r\n".encode() in shown for i in (1, 2, 3)] == [True, True, True]
    assert run("hbuf-verify", "--quiet", "orders").code == 0


@pytest.mark.over_https
def test_atomic_input_with_one_bad_message_stores_nothing(run: Run, make_buffer: MakeBuffer, bodies: Bodies) -> None:
    make_buffer("orders", max_message_bytes="100")
    done = run("hbuf-append", "orders", "--atomic", stdin=b"one\n%b\nthree\n" % (b"x" * 101))
    assert done.code == 65
    assert done.err.splitlines()[0].endswith("; 0 messages were stored")
    bad_line = run("hbuf-append", "orders", "--atomic", "--json", stdin=b'{"body": "one"}\n{"body": 2}\n')
    assert bad_line.code == 65
    assert "line 2: " in bad_line.err
    assert bad_line.err.endswith("; 0 messages were stored\n")
    assert bodies("orders") == []


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """File descriptors, one for each sync that was done."""
    done: list[int] = []
    sync = fsops.sync_data

    def counted(fd: int) -> None:
        done.append(fd)
        sync(fd)

    monkeypatch.setattr(fsops, "sync_data", counted)
    return done


@pytest.mark.parametrize(("mode", "least", "most"), [("always", 50, 10_000), ("batch", 1, 10), ("never", 0, 0)])
def test_fsync_says_how_often_to_sync(
    run: Run, make_buffer: MakeBuffer, bodies: Bodies, syncs: list[int], mode: str, least: int, most: int
) -> None:
    make_buffer("orders", [b"before"])
    syncs.clear()
    assert run("hbuf-append", "orders", "--fsync", mode, stdin=b"line\n" * 50) == (0, b"", "")
    assert least <= len(syncs) <= most
    assert bodies("orders") == [b"before"] + [b"line"] * 50
    assert run("hbuf-verify", "--quiet", "orders").code == 0


@pytest.mark.over_https
def test_paused_buffer_is_waited_for_then_75(run: Run, make_buffer: MakeBuffer, bodies: Bodies) -> None:
    make_buffer("orders")
    assert run("hbuf-pause", "orders", "--reason", "moving disks") == (0, b"", "")
    done = run("hbuf-append", "orders", "--timeout", "50ms", stdin=b"one\n")
    assert (done.code, done.out) == (75, b"")
    line, hint = done.err.splitlines()
    assert line.startswith("hbuf-append: orders: is paused by ")
    assert line.endswith(": moving disks; 0 messages were stored")
    assert hint.startswith("hint: hbuf-pause --resume ")
    assert bodies("orders") == []


@pytest.mark.over_https
def test_locked_buffer_is_waited_for_then_75(run: Run, make_buffer: MakeBuffer, bodies: Bodies) -> None:
    make_buffer("orders")
    holder = os.open("orders/lock", os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        done = run("hbuf-append", "orders", "--timeout", "50ms", stdin=b"one\n")
    finally:
        os.close(holder)
    line, hint = done.err.splitlines()
    assert (done.code, done.out) == (75, b"")
    assert line == "hbuf-append: orders: is locked by another writer; 0 messages were stored"
    assert hint.startswith("hint: ")
    assert bodies("orders") == []


@pytest.mark.over_https
def test_message_beyond_the_limit_is_refused_with_the_way_out(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", max_message_bytes="100")
    assert run("hbuf-append", "orders", stdin=b"x" * 100).code == 0
    done = run("hbuf-append", "orders", stdin=b"x" * 101)
    line, hint = done.err.splitlines()
    assert done.code == 65
    assert line.startswith("hbuf-append: orders: a message has ")
    assert line.endswith("; 0 messages were stored")
    assert "hbuf-set" in hint


@pytest.mark.over_https
def test_bodies_with_anything_in_them_come_back_as_they_were(run: Run, bodies: Bodies) -> None:
    run("hbuf-append", "orders", stdin=b"first\n")
    fake = Path("orders/segments/00000000000000000001.http").read_bytes()
    tricky = [b"", b"\0", b"\r\n\r\n", b"\xff\xfe", fake, b"x" * 3_000_000]
    for i, body in enumerate(tricky):
        Path(f"file{i}").write_bytes(body)
    assert run("hbuf-append", "orders", *[f"file{i}" for i in range(len(tricky))]) == (0, b"", "")
    assert bodies("orders") == [b"first", *tricky]
    assert run("hbuf-verify", "--quiet", "orders").code == 0
    shown = run("hbuf-tail", "orders", "-o", "2", "-D", "").out
    assert shown == b"".join(tricky)
