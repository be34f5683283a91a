"""hbuf-reindex: all that is rebuildable is made anew from the segments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hbuf

if TYPE_CHECKING:
    from cli.conftest import Bodies, MakeBuffer, Run

REBUILDABLE = ("*.idx", "*.tags")


@pytest.fixture(autouse=True)
def orders(make_buffer: MakeBuffer) -> Path:
    messages = [hbuf.draft(b"%d" % i, key=f"k{i % 3}", tags=["t"], producer="p", producer_seq=i) for i in range(1, 11)]
    return make_buffer("orders", messages, segment_messages="4")


def rebuildable(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for pattern in REBUILDABLE for each in path.glob(f"segments/{pattern}")}


@pytest.mark.parametrize("fault", ["missing", "damaged", "empty", "none"])
def test_indexes_and_tags_files_are_made_anew_as_they_were(run: Run, orders: Path, fault: str) -> None:
    before = rebuildable(orders)
    assert len(before) == 5
    for name, content in before.items():
        path = orders / "segments" / name
        if fault == "missing":
            path.unlink()
        elif fault == "damaged":
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        elif fault == "empty":
            path.write_bytes(b"")
    done = run("hbuf-reindex", "orders")
    assert (done.code, done.out) == (0, b"")
    assert rebuildable(orders) == before
    assert run("hbuf-verify", "-q", "orders") == (0, b"", "")


def test_success_is_silent(run: Run) -> None:
    assert run("hbuf-reindex", "orders") == (0, b"", "")


def test_producers_are_known_again(run: Run, orders: Path, bodies: Bodies) -> None:
    (orders / "producers").unlink(missing_ok=True)
    assert run("hbuf-reindex", "orders").code == 0
    assert (orders / "producers").exists()
    again = b"".join(b"%d\n" % i for i in range(1, 12))
    assert run("hbuf-append", "orders", "--producer", "p", "--producer-seq", "1", stdin=again).code == 0
    assert bodies("orders") == [b"%d" % i for i in range(1, 12)]


def test_messages_and_settings_are_left_as_they_are(run: Run, orders: Path) -> None:
    kept = [orders / "buffer.json", *orders.glob("segments/*.http")]
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in kept]
    assert run("hbuf-reindex", "orders").code == 0
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in kept] == before


def test_index_that_knew_more_than_its_segment_has_is_kept(run: Run, orders: Path) -> None:
    segment = orders / "segments/00000000000000000009.http"
    content = segment.read_bytes()
    segment.write_bytes(
        content[: content.index(b"x-hbuf-seq: 10\r\n") - len(b"POST /b/orders HTTP/1.1\r\nhost: hbuf\r\n")]
    )
    index = segment.with_suffix(".idx").read_bytes()
    done = run("hbuf-reindex", "orders")
    assert done.code == 0
    assert "knew of more than its segment has" in done.err
    assert [path.read_bytes() for path in orders.glob("quarantine/*.idx")] == [index]
    assert run("hbuf-verify", "-q", "orders").code == 0


def test_damage_is_named(run: Run, orders: Path) -> None:
    segment = orders / "segments/00000000000000000005.http"
    content = segment.read_bytes()
    at = content.index(b"POST ", content.index(b"POST ") + 1)
    segment.write_bytes(content[:at] + b"GARB" + content[at + 4 :])
    done = run("hbuf-reindex", "orders")
    assert done.out == b""
    assert done.err.startswith(f"hbuf-reindex: orders: {segment.name}: ")
    assert f"byte {at}" in done.err
    shown = run("hbuf-grep", "", "orders")
    assert shown.code == 65
    assert shown.out == b"1\n2\n3\n4\n5\n7\n8\n9\n10\n"


def test_segments_with_each_others_names_are_no_crash(run: Run, orders: Path) -> None:
    one, five = (orders / f"segments/{first:020d}.http" for first in (1, 5))
    one.rename("between")
    five.rename(one)
    Path("between").rename(five)
    done = run("hbuf-reindex", "orders")
    assert done.code in (0, 65)
    assert run("hbuf-verify", "-q", "orders").code == 65


def test_several_buffers_and_closed_ones(run: Run, orders: Path, make_buffer: MakeBuffer) -> None:
    other = make_buffer("other", [b"1", b"2"], segment_messages="1")
    for path in (orders, other):
        for pattern in REBUILDABLE:
            for each in path.glob(f"segments/{pattern}"):
                each.unlink()
    run("hbuf-close", "other")
    assert run("hbuf-reindex", "orders", "other").code == 0
    assert (len(rebuildable(orders)), len(rebuildable(other))) == (5, 3)


def test_paused_buffer_is_waited_for_then_75(run: Run, orders: Path) -> None:
    run("hbuf-pause", "orders")
    index = orders / "segments/00000000000000000001.idx"
    index.unlink()
    done = run("hbuf-reindex", "orders", "--timeout", "50ms")
    assert (done.code, done.out) == (75, b"")
    assert done.err.startswith("hbuf-reindex: orders: is paused by ")
    assert not index.exists()
