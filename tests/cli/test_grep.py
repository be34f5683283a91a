"""hbuf-grep: exit codes and options as grep has them, over bodies and fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hbuf

if TYPE_CHECKING:
    from cli.conftest import MakeBuffer, Ran, Run


@pytest.fixture(autouse=True)
def buffers(make_buffer: MakeBuffer) -> None:
    orders = [
        hbuf.draft(b"tea", key="user-1", tags=["shop=north"]),
        hbuf.draft(b"Milk and tea\nsugar", key="user-2", headers=[("content-type", "text/plain")]),
        hbuf.draft(b"a.c", tags=["shop=south"]),
        hbuf.draft(b"abc\xff", key="user-1"),
        hbuf.draft(b""),
    ]
    make_buffer("orders", orders, segment_messages="2")
    make_buffer("payments", [b"1 tea", b"2 milk"])
    make_buffer("empty")


def grep(run: Run, *arguments: str) -> Ran:
    done = run("hbuf-grep", *arguments)
    assert done.err == ""
    return done


@pytest.mark.over_https
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tea", "orders"], b"tea\nMilk and tea\nsugar\n"),
        (["^tea$", "orders"], b"tea\n"),
        (["^sugar", "orders"], b"Milk and tea\nsugar\n"),
        (["milk", "-i", "orders"], b"Milk and tea\nsugar\n"),
        (["--ignore-case", "TEXT/PLAIN", "orders"], b"Milk and tea\nsugar\n"),
        (["a.c", "orders"], b"a.c\nabc\xff\n"),
        (["-F", "a.c", "orders"], b"a.c\n"),
        (["--fixed-strings", "c", "-v", "orders"], b"tea\n\n"),
        (["-v", "tea|c", "orders"], b"\n"),
        (["--invert-match", "nothing like this", "payments"], b"1 tea\n2 milk\n"),
        (["-c", "tea", "orders"], b"2\n"),
        (["--count", "-v", "tea", "orders"], b"3\n"),
        (["-n", "tea", "orders"], b"1:tea\n2:Milk and tea\nsugar\n"),
        (["--number", "abc", "orders"], b"4:abc\xff\n"),
        (["-0", "tea|abc", "orders"], b"tea\0Milk and tea\nsugar\0abc\xff\0"),
        (["--null", "-n", "^tea", "orders"], b"1:tea\0"),
        (["user-1", "orders"], b"tea\nabc\xff\n"),
        (["^x-hbuf-tag: shop=", "orders"], b"tea\na.c\n"),
        (["^content-type: text/plain$", "orders"], b"Milk and tea\nsugar\n"),
        ([".", "--key", "user-1", "orders"], b"tea\nabc\xff\n"),
        (["a", "--key", "user-2", "orders"], b"Milk and tea\nsugar\n"),
        ([".", "--tag", "shop=south", "orders"], b"a.c\n"),
        (["-v", "tea", "--key", "user-1", "orders"], b"abc\xff\n"),
        (["-o", "2", "tea", "orders"], b"Milk and tea\nsugar\n"),
        (["--from", "-2", "", "orders"], b"abc\xff\n\n"),
        (["-o", "last", "", "orders"], b"\n"),
        (["-l", "tea", "orders", "payments", "empty"], b"orders\npayments\n"),
        (["--list", "sugar", "orders", "payments"], b"orders\n"),
        (["tea", "orders", "payments"], b"orders:tea\norders:Milk and tea\nsugar\npayments:1 tea\n"),
        (["-n", "milk", "orders", "payments"], b"payments:2:2 milk\n"),
        (["-c", "tea", "orders", "payments", "empty"], b"orders:2\npayments:1\nempty:0\n"),
    ],
    ids=repr,
)
def test_what_matches_is_printed_with_exit_code_0(run: Run, arguments: list[str], expected: bytes) -> None:
    assert grep(run, *arguments) == (0, expected, "")


@pytest.mark.over_https
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["coffee", "orders"], b""),
        (["tea", "empty"], b""),
        (["-l", "coffee", "orders", "payments"], b""),
        (["-c", "coffee", "orders"], b"0\n"),
        (["-v", "", "orders"], b""),
        (["tea", "-o", "end", "orders"], b""),
        (["x-hbuf-seq", "orders"], b""),
        (["tea", "--key", "nobody", "orders"], b""),
    ],
    ids=repr,
)
def test_nothing_matches_is_exit_code_1(run: Run, arguments: list[str], expected: bytes) -> None:
    assert grep(run, *arguments) == (1, expected, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["(", "orders"], "is not a regular expression"),
        (["tea"], "BUF"),
        (["tea", "orders", "-o", "nowhere"], "is not a place"),
        (["tea", "orders", "--http", "--json"], "choose one of --http and --json"),
    ],
    ids=repr,
)
def test_what_cannot_be_searched_for_is_exit_code_2(run: Run, arguments: list[str], said: str) -> None:
    done = run("hbuf-grep", *arguments)
    assert (done.code, done.out) == (2, b"")
    assert said in done.err


def test_pattern_that_begins_with_a_dash_comes_behind_two_dashes(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("options", [b"-v is an option"])
    assert grep(run, "--", "-v", "options") == (0, b"-v is an option\n", "")


def test_bytes_that_are_not_utf_8_are_found(run: Run) -> None:
    assert grep(run, "-F", b"\xff".decode(errors="surrogateescape"), "orders") == (0, b"abc\xff\n", "")


def test_json_lines_are_those_of_tail(run: Run) -> None:
    done = grep(run, "--json", "tea", "orders", "payments")
    assert [(each["buffer"], each["seq"]) for each in map(json.loads, done.lines)] == [
        ("orders", 1),
        ("orders", 2),
        ("payments", 1),
    ]
    assert done.lines[0] == run("hbuf-tail", "--json", "-o", "first", "-c", "1", "orders").lines[0]


def test_http_is_the_stored_records(run: Run) -> None:
    done = grep(run, "--http", "^tea", "orders")
    assert done.out == run("hbuf-tail", "--http", "-o", "1", "-c", "1", "orders").out
    assert done.out.startswith(b"POST /b/orders HTTP/1.1\r\n")


@pytest.mark.parametrize("index", ["there", "missing"])
def test_damage_is_named_with_65_while_the_rest_is_shown(run: Run, index: str) -> None:
    segment = Path("orders/segments/00000000000000000003.http")
    content = segment.read_bytes()
    at = content.index(b"POST ")
    segment.write_bytes(content.replace(b"POST ", b"GARB ", 1))
    if index == "missing":
        segment.with_suffix(".idx").unlink()
    done = run("hbuf-grep", "-n", "", "orders", "payments")
    assert done.code == 65
    assert done.out == (
        b"orders:1:tea\norders:2:Milk and tea\nsugar\norders:4:abc\xff\norders:5:\n"
        b"payments:1:1 tea\npayments:2:2 milk\n"
    )
    assert done.err.startswith(f"hbuf-grep: orders: {segment.name}: byte {at}: ")
    assert len(done.err.splitlines()) == 1


def test_missing_buffer_among_several_is_66(run: Run) -> None:
    done = run("hbuf-grep", "tea", "orders", "missing")
    assert done.code == 66
    assert done.err == "hbuf-grep: missing: there is no such buffer\n"
