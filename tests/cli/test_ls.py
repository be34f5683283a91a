"""hbuf-ls: buffers with their numbers, sizes, times and state; for programs and for a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.conftest import MakeBuffer, Run, Terminal

COLUMNS = ["NAME", "FIRST", "LAST", "BYTES", "SEGMENTS", "NEWEST", "STATE"]


@pytest.fixture
def tree(make_buffer: MakeBuffer) -> None:
    make_buffer("tree/tenants/acme/buffers/orders", [b"one", b"two", b"three"], segment_messages="2")
    make_buffer("tree/tenants/acme/buffers/payments")
    make_buffer("tree/tenants/beta/buffers/orders", [b"one"])
    make_buffer("tree/alone", [b"one"])
    Path("tree/no-buffer").mkdir()
    Path("tree/file").write_bytes(b"")


def test_tab_separated_without_a_heading_when_not_on_a_terminal(run: Run, tree: None) -> None:
    path = "tree/tenants/acme/buffers/orders"
    done = run("hbuf-ls", path)
    size = sum(segment.stat().st_size for segment in Path(path, "segments").glob("*.http"))
    assert (done.code, done.err, len(done.lines)) == (0, "", 1)
    name, first, last_number, length, segments, newest, state = done.lines[0].split("\t")
    assert (name, first, last_number, length, segments, state) == (path, "1", "3", str(size), "2", "open")
    assert newest == json.loads(run("hbuf-tail", "-n", "1", "--json", path).out)["time"][:19] + "Z"


def test_empty_buffer_has_no_times(run: Run, tree: None) -> None:
    row = run("hbuf-ls", "tree/tenants/acme/buffers/payments").lines[0].split("\t")
    assert [row[i] for i in (0, 1, 2, 4, 5, 6)] == [
        "tree/tenants/acme/buffers/payments",
        "1",
        "0",
        "1",
        "-",
        "open",
    ]


def test_tree_is_listed_with_all_buffers_in_it(run: Run, tree: None) -> None:
    done = run("hbuf-ls", "--json", "tree")
    listed = [json.loads(line) for line in done.lines]
    assert (done.code, done.err) == (0, "")
    assert sorted((each["tenant"], each["buffer"], each["messages"]) for each in listed) == [
        ("acme", "orders", 3),
        ("acme", "payments", 0),
        ("beta", "orders", 1),
        ("default", "alone", 1),
    ]


def test_several_paths_are_listed_one_after_the_other(run: Run, tree: None) -> None:
    done = run("hbuf-ls", "tree/alone", "tree/tenants/beta")
    assert [line.split("\t")[0] for line in done.lines] == ["tree/alone", "tree/tenants/beta/buffers/orders"]


def test_without_a_path_it_lists_what_is_here(run: Run, tree: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("tree/tenants/acme")
    assert [line.split("\t")[0] for line in run("hbuf-ls").lines] == ["buffers/orders", "buffers/payments"]
    monkeypatch.chdir("buffers/orders")
    assert len(run("hbuf-ls").lines) == 1


def test_directory_without_buffers_lists_nothing(run: Run, tree: None) -> None:
    assert run("hbuf-ls", "tree/no-buffer") == (0, b"", "")
    assert run("hbuf-ls", "--json", "tree/no-buffer") == (0, b"", "")


def test_json_has_every_field(run: Run, tree: None) -> None:
    path = "tree/tenants/acme/buffers/orders"
    found = json.loads(run("hbuf-ls", "--json", path).out)
    times = [json.loads(line)["time"] for line in run("hbuf-tail", "--json", path).lines]
    assert Path(found.pop("path")).resolve() == Path(path).resolve()
    assert found.pop("bytes") == sum(each.stat().st_size for each in Path(path, "segments").glob("*.http"))
    assert found == {
        "tenant": "acme",
        "buffer": "orders",
        "first": 1,
        "last": 3,
        "messages": 3,
        "segments": 2,
        "oldest": times[0],
        "newest": times[-1],
        "state": "open",
        "stale_pause": False,
    }


def state(run: Run) -> str:
    done = run("hbuf-ls", "--json", "orders")
    assert (done.code, done.err) == (0, "")
    return str(json.loads(done.out)["state"])


@pytest.mark.over_https
def test_state_says_paused_and_closed(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", [b"one"])
    assert state(run) == "open"
    run("hbuf-pause", "orders")
    assert state(run) == "paused"
    run("hbuf-pause", "--resume", "orders")
    run("hbuf-close", "orders")
    assert state(run) == "closed"


def test_damaged_buffer_is_listed_as_damaged(run: Run, make_buffer: MakeBuffer) -> None:
    path = make_buffer("orders", [b"one", b"two"])
    make_buffer("payments", [b"one"])
    segment = path / "segments/00000000000000000001.http"
    segment.write_bytes(b"X" + segment.read_bytes()[1:])
    assert state(run) == "damaged"
    assert [line.split("\t")[-1] for line in run("hbuf-ls").lines] == ["damaged", "open"]


def test_table_with_a_heading_on_a_terminal(run: Run, tree: None, terminal: Terminal) -> None:
    process = run.start("hbuf-ls", "tree", stdout=terminal.theirs)
    heading, *rows = terminal.read_all().splitlines()
    assert process.wait(timeout=30) == 0
    assert heading.split() == COLUMNS
    assert len(rows) == 4
    assert not [row for row in rows if "\t" in row]
    # Columns stand below their headings.
    assert [row[heading.index("STATE") :] for row in rows] == ["open"] * 4


def test_missing_one_of_several_is_66_and_the_others_are_listed(run: Run, tree: None) -> None:
    done = run("hbuf-ls", "missing", "tree/alone")
    assert (done.code, done.err) == (66, "hbuf-ls: missing: there is no such buffer\n")
    assert [line.split("\t")[0] for line in done.lines] == ["tree/alone"]
