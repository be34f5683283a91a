"""hbuf-compress: files get smaller, and every command says what it said before."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hbuf

if TYPE_CHECKING:
    from cli.conftest import Bodies, MakeBuffer, Run

COUNT = 40
READING = [
    ["hbuf-tail", "orders"],
    ["hbuf-tail", "-o", "first", "orders"],
    ["hbuf-tail", "-o", "first", "--http", "orders"],
    ["hbuf-tail", "-o", "first", "--json", "orders"],
    ["hbuf-tail", "-o", "17", "-c", "3", "--json", "orders"],
    ["hbuf-tail", "-o", "first", "--key", "user-3", "orders"],
    ["hbuf-tail", "-o", "first", "--tag", "host=web1", "--http", "orders"],
    ["hbuf-tail", "-o", "first", "-g", "total: 1", "orders"],
    ["hbuf-tail", "-o", "@2000-01-01T00:00:00Z", "-c", "2", "orders"],
    ["hbuf-grep", "total", "orders"],
    ["hbuf-grep", "-c", "total: [12]", "orders"],
    ["hbuf-grep", "--json", "3$", "orders"],
    ["hbuf-verify", "orders"],
    ["hbuf-set", "orders"],
]


@pytest.fixture
def orders(make_buffer: MakeBuffer) -> Path:
    messages = [
        hbuf.draft(b"total: %d" % n, key=f"user-{n % 5}", tags=[f"host=web{n % 3}"], headers=[("x-note", "a b")])
        for n in range(COUNT)
    ]
    return make_buffer("orders", messages, segment_messages="9")


def sealed(path: Path, suffix: str) -> list[Path]:
    return sorted(path.glob(f"segments/*{suffix}"))


def test_every_reading_command_says_the_same_before_and_after(run: Run, orders: Path) -> None:
    before = [run(*command) for command in READING]
    assert {done.code for done in before} == {0}
    assert run("hbuf-compress", "orders") == (0, b"", "")
    assert len(sealed(orders, ".http.zst")) == 4
    assert len(sealed(orders, ".http")) == 1
    assert [run(*command) for command in READING] == before


def test_each_segment_is_printed_with_its_bytes_if_asked(run: Run, orders: Path) -> None:
    plain = {path.name: path.stat().st_size for path in sealed(orders, ".http")[:-1]}
    done = run("hbuf-compress", "-v", "orders")
    assert (done.code, done.err) == (0, "")
    lines = [line.split(" ") for line in done.lines]
    assert {file.removesuffix(".zst"): int(before) for file, before, _ in lines} == plain
    assert all(int(after) == (orders / "segments" / file).stat().st_size for file, _, after in lines)
    assert run("hbuf-compress", "-v", "orders") == (0, b"", "")


def test_listing_tells_the_bytes_on_disk(run: Run, orders: Path) -> None:
    before = json.loads(run("hbuf-ls", "--json", "orders").out)
    run("hbuf-compress", "orders")
    after = json.loads(run("hbuf-ls", "--json", "orders").out)
    on_disk = sum(path.stat().st_size for path in orders.glob("segments/*.http*"))
    assert after == before | {"bytes": on_disk}
    assert on_disk < before["bytes"]


@pytest.mark.parametrize("level", ["1", "9", "19"])
def test_any_level_is_read(run: Run, orders: Path, bodies: Bodies, level: str) -> None:
    assert run("hbuf-compress", "--level", level, "orders") == (0, b"", "")
    assert bodies("orders") == [b"total: %d" % n for n in range(COUNT)]
    assert run("hbuf-verify", "-q", "orders") == (0, b"", "")


@pytest.mark.parametrize("level", ["0", "20", "most"])
def test_level_that_is_none_is_2(run: Run, orders: Path, level: str) -> None:
    done = run("hbuf-compress", "--level", level, "orders")
    assert (done.code, done.out) == (2, b"")
    assert "--level" in done.err
    assert not sealed(orders, ".zst")


def test_appending_reindexing_and_changing_settings_go_on(run: Run, orders: Path, bodies: Bodies) -> None:
    run("hbuf-compress", "orders")
    assert run("hbuf-append", "orders", stdin=b"one\n").code == 0
    for path in [*sealed(orders, ".idx"), *sealed(orders, ".tags")]:
        path.unlink()
    assert run("hbuf-reindex", "orders") == (0, b"", "")
    assert run("hbuf-set", "orders", "segment_messages=5") == (0, b"", "")
    assert run("hbuf-append", "orders", stdin=b"two\n").code == 0
    assert bodies("orders")[COUNT:] == [b"one", b"two"]
    assert run("hbuf-verify", "-q", "orders") == (0, b"", "")


def test_round_trip_into_another_buffer(run: Run, orders: Path, bodies: Bodies) -> None:
    run("hbuf-compress", "orders")
    assert run("hbuf-append", "copy", "--http", stdin=run("hbuf-tail", "-o", "first", "--http", "orders").out).code == 0
    assert bodies("copy") == bodies("orders")


def test_damaged_segment_is_65_and_the_others_are_compressed(run: Run, orders: Path) -> None:
    file = sealed(orders, ".http")[1]
    file.write_bytes(file.read_bytes().replace(b"total: 11", b"total: 99"))
    done = run("hbuf-compress", "orders")
    assert (done.code, done.out) == (65, b"")
    [line] = done.err.splitlines()
    assert line.startswith(f"hbuf-compress: orders: {file.name}: damaged at byte ")
    assert sealed(orders, ".http")[0] == file
    assert len(sealed(orders, ".http.zst")) == 3


def test_damaged_frame_is_named_by_verify_and_stepped_over_by_tail(run: Run, orders: Path) -> None:
    run("hbuf-compress", "orders")
    file = sealed(orders, ".zst")[1]
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    file.write_bytes(data)
    done = run("hbuf-verify", "orders")
    assert done.code == 65
    assert f"{file.name}: byte 0: the frame at byte 0 of the compressed file cannot be decoded" in done.out.decode()
    done = run("hbuf-tail", "-o", "first", "orders")
    assert done.code == 65
    # Messages 10 to 18 are in that frame.
    assert done.lines == [f"total: {n}" for n in range(COUNT) if not 9 <= n < 18]
    assert f"orders: {file.name}: byte 0: " in done.err


def test_several_buffers_and_one_that_is_missing(run: Run, orders: Path, make_buffer: MakeBuffer) -> None:
    make_buffer("small", [b"one"])
    assert run("hbuf-compress", "small", "orders") == (0, b"", "")
    assert len(sealed(orders, ".zst")) == 4
    assert run("hbuf-compress", "missing").code == 66


def test_paused_buffer_is_75_and_closed_one_is_compressed(run: Run, orders: Path) -> None:
    run("hbuf-pause", "orders")
    done = run("hbuf-compress", "--timeout", "0s", "orders")
    assert done.code == 75
    assert "is paused" in done.err
    assert not sealed(orders, ".zst")
    run("hbuf-pause", "--resume", "orders")
    run("hbuf-close", "orders")
    assert run("hbuf-compress", "orders") == (0, b"", "")
    assert len(sealed(orders, ".zst")) == 4


def test_setting_is_chosen_changed_and_shown(run: Run) -> None:
    assert run("hbuf-create", "logs", "--set", "compress=true", "--set", "segment_messages=3").code == 0
    assert json.loads(run("hbuf-set", "logs").out)["compress"] is True
    assert run("hbuf-append", "logs", stdin=b"line\n" * 10).code == 0
    assert len(sealed(Path("logs"), ".http.zst")) == 3
    assert run("hbuf-set", "logs", "compress=false").code == 0
    assert "compress" not in json.loads(run("hbuf-set", "logs").out)
    assert run("hbuf-append", "logs", stdin=b"line\n" * 4).code == 0
    assert len(sealed(Path("logs"), ".http.zst")) == 3
    assert run("hbuf-set", "logs", "compress=perhaps").code == 2
    assert run("hbuf-verify", "-q", "logs") == (0, b"", "")


needs_zstd = pytest.mark.skipif(shutil.which("zstdcat") is None, reason="zstd is not installed")


@needs_zstd
def test_tools_of_zstandard_read_what_was_compressed(run: Run, orders: Path) -> None:
    plain = b"".join(path.read_bytes() for path in sealed(orders, ".http")[:-1])
    run("hbuf-compress", "orders")
    assert run.real("zstdcat", *sealed(orders, ".zst")) == (0, plain, "")
    assert run.real("zstd", "-q", "-t", *sealed(orders, ".zst")).code == 0
    tagged = plain.count(b"\r\nx-hbuf-tag: host=web1\r\n")
    counts = run.shell("zstdgrep -a -c '^x-hbuf-tag: host=web1' orders/segments/*.http.zst").lines
    assert sum(int(line.rpartition(":")[2]) for line in counts) == tagged > 0


@needs_zstd
def test_unpacked_by_hand_it_is_plain_again(run: Run, orders: Path, bodies: Bodies) -> None:
    before = {path.name: path.read_bytes() for path in sealed(orders, ".http")}
    run("hbuf-compress", "orders")
    for path in sealed(orders, ".zst"):
        assert run.real("zstd", "-q", "-d", "--rm", path).code == 0
    assert {path.name: path.read_bytes() for path in sealed(orders, ".http")} == before
    assert run("hbuf-verify", "-q", "orders") == (0, b"", "")
