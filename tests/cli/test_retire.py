"""hbuf-retire: what it prints, its exit codes, and what other commands say afterwards."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.conftest import Bodies, MakeBuffer, Run, WaitUntil

BODIES = [b"%d" % n for n in range(1, 10)]
EIGHT_GO = {"segment_messages": "2", "retention_messages": "1"}


@pytest.fixture
def orders(make_buffer: MakeBuffer) -> Path:
    return make_buffer("orders", BODIES, **EIGHT_GO)


def test_oldest_segments_go_silently_and_a_second_run_finds_nothing(run: Run, orders: Path, bodies: Bodies) -> None:
    assert run("hbuf-retire", "orders") == (0, b"", "")
    assert bodies("orders") == [b"9"]
    files = sorted(os.listdir(orders / "segments"))
    assert run("hbuf-retire", "orders") == (0, b"", "")
    assert sorted(os.listdir(orders / "segments")) == files
    assert run("hbuf-verify", "orders").lines[4] == "  completeness: numbers 9 to 10, 8 retired: ok"


def test_dry_run_tells_what_would_go_and_why(run: Run, orders: Path, make_buffer: MakeBuffer, bodies: Bodies) -> None:
    make_buffer("other", BODIES)
    size = sum(path.stat().st_size for path in sorted((orders / "segments").glob("*.http"))[:-1])
    done = run("hbuf-retire", "--dry-run", "orders", "other")
    assert done.lines == [
        f"orders: messages 1 to 8, {size} bytes in 4 segments: retention_messages 1",
        "other: nothing",
    ]
    assert bodies("orders") == BODIES


@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_json_tells_what_goes(run: Run, orders: Path, dry: list[str]) -> None:
    last = json.loads(run("hbuf-tail", "-o", "8", "-c", "1", "--json", "orders").out)
    told = json.loads(run("hbuf-retire", "--json", *dry, "orders").out)
    assert told.pop("date").endswith("Z")
    assert told.pop("bytes") > 0
    assert told == {
        "program": "hbuf-retire",
        "buffer": "orders",
        "dry_run": bool(dry),
        "segments": 4,
        "messages": 8,
        "first": 1,
        "last": 8,
        "last_id": last["id"],
        "rule": "retention_messages 1",
        "finishes": False,
        "held_back": None,
    }


def test_reason_is_kept_behind_the_rule(run: Run, orders: Path) -> None:
    assert run("hbuf-retire", "--reason", "as agreed", "orders").code == 0
    newest = sorted((orders / "segments").glob("*.http"))[-1].read_bytes()
    assert b"x-hbuf-reason: retention_messages 1: as agreed\r\n" in newest
    done = run("hbuf-retire", "--reason", "two\nlines", "orders")
    assert (done.code, done.out) == (2, b"")


def test_idle_buffer_is_told_and_retired_with_idle(run: Run, make_buffer: MakeBuffer, bodies: Bodies) -> None:
    make_buffer("orders", BODIES, segment_messages="2", retention_age="1ms")
    done = run("hbuf-retire", "orders")
    assert (done.code, done.out) == (0, b"")
    assert done.err.startswith("hbuf-retire: orders: nothing goes by retention_age 0.001s: ")
    assert len(done.err.splitlines()) == 1
    assert bodies("orders") == BODIES
    assert run("hbuf-retire", "--idle", "orders") == (0, b"", "")
    assert bodies("orders") == [b"9"]


def test_each_buffer_is_tried_and_the_worst_counts(
    run: Run, orders: Path, make_buffer: MakeBuffer, bodies: Bodies
) -> None:
    damaged = make_buffer("damaged", BODIES, **EIGHT_GO)
    (damaged / "segments" / f"{3:020d}.http").unlink()
    done = run("hbuf-retire", "missing", "damaged", "orders")
    assert (done.code, done.out) == (65, b"")
    assert [line.split(": ")[:2] for line in done.err.splitlines()] == [
        ["hbuf-retire", "missing"],
        ["hbuf-retire", "damaged"],
        ["hint", "hbuf-verify tells more; nothing was retired"],
    ]
    assert bodies("orders") == [b"9"]
    assert run("hbuf-retire", "missing", "orders").code == 66


def test_paused_and_closed_buffers_are_refused_only_if_something_is_to_go(run: Run, orders: Path) -> None:
    run("hbuf-pause", "orders")
    assert run("hbuf-retire", "--timeout", "0s", "orders").code == 75
    run("hbuf-pause", "--resume", "orders")
    run("hbuf-close", "orders")
    assert run("hbuf-retire", "orders").code == 77
    run("hbuf-close", "--reopen", "orders")
    assert run("hbuf-retire", "orders").code == 0
    run("hbuf-close", "orders")
    assert run("hbuf-retire", "orders") == (0, b"", "")


def test_signed_buffer_is_retired_with_its_key_and_verifies_with_the_first(run: Run, tmp_path: Path) -> None:
    run("hbuf-key", "new", "audit", "--kind", "sign")
    Path("audit.pub").write_bytes(run("hbuf-key", "export", "audit").out)
    settings = [part for name, value in EIGHT_GO.items() for part in ("--set", f"{name}={value}")]
    assert run("hbuf-create", "ledger", "--sign", "audit", *settings).code == 0
    for _ in range(2):
        run("hbuf-append", "--sign", "audit", "ledger", stdin=b"one\n" * 5)
        assert run("hbuf-retire", "ledger").code == 77
        assert run("hbuf-retire", "--sign", "audit", "ledger") == (0, b"", "")
        assert run("hbuf-verify", "-q", "--signer", "audit.pub", "ledger").code == 0
    done = run("hbuf-retire", "--sign", "audit", "ledger", "other")
    assert done.code == 2


# What the others say


def test_tail_from_a_retired_number_says_where_it_goes_on(run: Run, orders: Path) -> None:
    run("hbuf-retire", "orders")
    said = "hbuf-tail: orders: messages up to 8 are retired; the first is 9\n"
    assert run("hbuf-tail", "-o", "5", "orders") == (0, b"9\n", said)
    assert run("hbuf-tail", "-o", "5", "-c", "1", "orders") == (0, b"9\n", said)
    for place in ("first", "-5", "last", "9", "@1d"):
        assert run("hbuf-tail", "-o", place, "orders") == (0, b"9\n", "")


def test_tail_shows_the_last_messages_whatever_was_retired_since(run: Run, orders: Path) -> None:
    run("hbuf-retire", "orders")
    assert run("hbuf-tail", "-n", "1", "orders") == (0, b"9\n", "")


def test_grep_from_a_retired_number_says_where_it_goes_on(run: Run, orders: Path) -> None:
    run("hbuf-retire", "orders")
    said = "hbuf-grep: orders: messages up to 8 are retired; the first is 9\n"
    assert run("hbuf-grep", "-o", "5", "-c", "", "orders") == (0, b"1\n", said)
    assert run("hbuf-grep", "-c", "", "orders") == (0, b"1\n", "")


def test_list_shows_the_first_number_that_is_there(run: Run, orders: Path) -> None:
    run("hbuf-retire", "orders")
    told = json.loads(run("hbuf-ls", "--json", "orders").out)
    assert (told["first"], told["last"], told["segments"]) == (9, 10, 1)


def test_follower_that_is_overtaken_says_so_and_goes_on(
    run: Run, make_buffer: MakeBuffer, wait_until: WaitUntil
) -> None:
    make_buffer("orders", BODIES, **EIGHT_GO)
    with Path("out").open("wb") as out, Path("err").open("wb") as err:
        # It starts at a number that is yet to come, and is stopped until that is retired.
        follower = run.start("hbuf-tail", "-f", "--poll", "-o", "9", "orders", stdout=out, stderr=err)
    wait_until(lambda: Path("out").read_bytes() == b"9\n", "the follower shows what is there")
    os.kill(follower.pid, 19)
    run("hbuf-append", "orders", stdin=b"a\nb\nc\nd\ne\n")
    run("hbuf-retire", "orders")
    os.kill(follower.pid, 18)
    wait_until(lambda: Path("out").read_bytes().endswith(b"e\n"), "the follower goes on")
    if Path("out").read_bytes() == b"9\na\nb\nc\nd\ne\n":
        return  # it was stopped with the segment open, and may read that to its end
    wait_until(lambda: Path("err").read_bytes().endswith(b"the first is 13\n"), "it says that it was overtaken")
    # Where it was stopped while it listed the segments, it finds that out in two steps.
    *earlier, last = Path("err").read_text().splitlines()
    assert last == "hbuf-tail: orders: messages up to 12 are retired; the first is 13"
    assert all(" are retired; the first is " in line for line in earlier)
    assert Path("out").read_bytes() == b"9\nd\ne\n"
