"""hbuf-set: shows settings, changes those that may change, and the chain tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cli.conftest import Bodies, MakeBuffer, Run


def shown(run: Run) -> dict[str, Any]:
    done = run("hbuf-set", "orders")
    assert (done.code, done.err) == (0, "")
    found: dict[str, Any] = json.loads(done.out)
    return found


@pytest.mark.over_https
def test_settings_are_shown_as_json(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", segment_messages="7")
    found = shown(run)
    assert found == json.loads(Path("orders/buffer.json").read_text())
    assert (found["name"], found["segment_messages"], found["hash"]) == ("orders", 7, "blake3")


@pytest.mark.over_https
@pytest.mark.parametrize("messages", [0, 3])
def test_change_is_in_the_file_and_in_the_chain(run: Run, make_buffer: MakeBuffer, messages: int) -> None:
    make_buffer("orders", [b"before"] * messages)
    before = shown(run)
    changes = ["segment_messages=2", "segment_age=1h", "max_message_bytes=64MiB", "segment_bytes=1MiB"]
    assert run("hbuf-set", "orders", *changes) == (0, b"", "")
    changed = {
        "segment_messages": 2,
        "segment_age": 3600,
        "max_message_bytes": 64 * 1024**2,
        "segment_bytes": 1024**2,
    }
    assert shown(run) == before | changed
    assert json.loads(Path("orders/buffer.json").read_text()) == before | changed
    assert run("hbuf-verify", "-q", "orders") == (0, b"", "")
    # The chain has it: a lost file is written anew from it.
    Path("orders/buffer.json").unlink()
    assert run("hbuf-append", "orders", stdin=b"after\n").code == 0
    assert json.loads(Path("orders/buffer.json").read_text()) == before | changed
    assert run("hbuf-verify", "-q", "orders") == (0, b"", "")


def test_change_counts_for_the_next_append(run: Run, make_buffer: MakeBuffer, bodies: Bodies) -> None:
    make_buffer("orders", [b"1", b"2", b"3"], max_message_bytes="10")
    assert run("hbuf-append", "orders", stdin=b"x" * 20).code == 65
    assert run("hbuf-set", "orders", "max_message_bytes=20", "segment_messages=2").code == 0
    assert run("hbuf-append", "orders", stdin=b"x" * 20 + b"\n4\n5\n").code == 0
    assert bodies("orders") == [b"1", b"2", b"3", b"x" * 20, b"4", b"5"]
    assert [path.name for path in sorted(Path("orders/segments").glob("*.http"))] == [
        "00000000000000000001.http",
        "00000000000000000004.http",
        "00000000000000000006.http",
    ]


@pytest.mark.over_https
def test_limit_is_taken_away_with_none(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", segment_messages="7", segment_age="1d")
    assert run("hbuf-set", "orders", "segment_messages=none", "segment_age=none") == (0, b"", "")
    found = shown(run)
    assert (found["segment_messages"], found["segment_age"]) == (None, None)


@pytest.mark.over_https
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("hash=sha256", "'hash' is fixed when a buffer is made"),
        ("erasable=false", "'erasable' is fixed when a buffer is made"),
        ("uuid=1", "'uuid' is fixed when a buffer is made"),
        ("name=other", "'name' is fixed when a buffer is made"),
        ("format=2", "'format' is fixed when a buffer is made"),
        ("created=now", "'created' is fixed when a buffer is made"),
        ("colour=red", "there is no setting 'colour'"),
        ("segment_bytes=4095", "is not between 4096 and"),
        ("segment_bytes=-1", "is not a size"),
        ("segment_messages=0", "is not between 1 and"),
        ("max_message_bytes=1000GiB", "is not between 1 and"),
        ("segment_age=0", "is not between"),
        ("segment_bytes", "is not NAME=VALUE"),
        ("=1", "there is no setting ''"),
    ],
)
def test_refused_change_is_2_and_nothing_of_it_is_done(
    run: Run, make_buffer: MakeBuffer, value: str, said: str
) -> None:
    make_buffer("orders", [b"one"])
    before = shown(run)
    done = run("hbuf-set", "orders", "segment_messages=9", value)
    assert (done.code, done.out) == (2, b"")
    assert said in done.err
    assert shown(run) == before
    assert len(list(Path("orders/segments").glob("*.http"))) == 1


@pytest.mark.over_https
def test_setting_what_is_set_already_changes_no_setting(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", [b"one"], segment_messages="9")
    before = shown(run)
    assert run("hbuf-set", "orders", "segment_messages=9") == (0, b"", "")
    assert shown(run) == before
    assert run("hbuf-verify", "-q", "orders").code == 0


@pytest.mark.over_https
def test_paused_buffer_is_waited_for_then_75(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders")
    run("hbuf-pause", "orders")
    done = run("hbuf-set", "orders", "segment_messages=9", "--timeout", "50ms")
    assert (done.code, done.out) == (75, b"")
    assert done.err.startswith("hbuf-set: orders: is paused by ")
    assert shown(run)["segment_messages"] is None


@pytest.mark.over_https
def test_settings_are_read_from_the_chain_and_not_from_a_changed_file(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", segment_messages="7")
    file = Path("orders/buffer.json")
    file.write_text(file.read_text().replace('"segment_messages": 7', '"segment_messages": 8'))
    assert shown(run)["segment_messages"] == 7
    done = run("hbuf-append", "orders", stdin=b"one\n")
    assert done.code == 65
    assert "buffer.json" in done.err
