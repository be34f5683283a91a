"""hbuf-close: nobody may append any more, until --reopen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.conftest import Bodies, MakeBuffer, Run


@pytest.fixture(autouse=True)
def orders(make_buffer: MakeBuffer) -> Path:
    return make_buffer("orders", [b"one"])


@pytest.mark.over_https
def test_append_to_a_closed_buffer_is_77_with_the_reason_and_the_way_out(run: Run, bodies: Bodies) -> None:
    assert run("hbuf-close", "orders", "--reason", "the year is over") == (0, b"", "")
    done = run("hbuf-append", "orders", stdin=b"two\n")
    line, hint = done.err.splitlines()
    assert (done.code, done.out) == (77, b"")
    assert line.startswith("hbuf-append: orders: is closed for writing by ")
    assert ": the year is over; 0 messages were stored" in line
    assert hint == "hint: hbuf-close --reopen opens it again"
    assert bodies("orders") == [b"one"]


@pytest.mark.over_https
def test_reading_verifying_and_listing_go_on(run: Run) -> None:
    run("hbuf-close", "orders")
    assert run("hbuf-tail", "orders") == (0, b"one\n", "")
    assert run("hbuf-grep", "one", "orders") == (0, b"one\n", "")
    assert run("hbuf-verify", "-q", "orders") == (0, b"", "")
    assert json.loads(run("hbuf-ls", "--json", "orders").out)["state"] == "closed"


@pytest.mark.over_https
def test_settings_cannot_be_changed_while_closed(run: Run) -> None:
    run("hbuf-close", "orders")
    done = run("hbuf-set", "orders", "segment_messages=9")
    assert done.code == 77
    assert json.loads(run("hbuf-set", "orders").out)["segment_messages"] is None


@pytest.mark.over_https
def test_reopened_buffer_takes_messages_again(run: Run, bodies: Bodies) -> None:
    run("hbuf-close", "orders")
    assert run("hbuf-close", "--reopen", "orders") == (0, b"", "")
    assert run("hbuf-append", "orders", stdin=b"two\n") == (0, b"", "")
    assert bodies("orders") == [b"one", b"two"]
    assert sorted(path.name for path in Path("orders").iterdir() if path.name == "closed") == []


@pytest.mark.over_https
def test_closing_twice_and_reopening_twice_are_no_errors(run: Run) -> None:
    for options in ([], [], ["--reopen"], ["--reopen"]):
        assert run("hbuf-close", "orders", *options) == (0, b"", "")


@pytest.mark.over_https
def test_writer_that_is_at_work_is_refused_with_its_next_batch(run: Run, bodies: Bodies) -> None:
    writer = run.start("hbuf-append", "orders", "-v")
    assert writer.stdin
    assert writer.stdout
    writer.stdin.write(b"two\n")
    assert writer.stdout.read(2) == b"2 "
    assert run("hbuf-close", "orders").code == 0
    writer.stdin.write(b"three\n")
    _, err = writer.communicate(timeout=30)
    assert writer.returncode == 77
    assert b"is closed for writing" in err
    assert b"; 1 message was stored" in err
    assert bodies("orders") == [b"one", b"two"]


@pytest.mark.over_https
def test_paused_buffer_is_waited_for_then_75(run: Run) -> None:
    run("hbuf-pause", "orders")
    for options in ([], ["--reopen"]):
        done = run("hbuf-close", "orders", "--timeout", "50ms", *options)
        assert (done.code, done.out) == (75, b"")
        assert done.err.startswith("hbuf-close: orders: is paused by ")
    assert not Path("orders/closed").exists()
