"""Appending: a stream of many lines, one line at a time, and what the messages take on disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.material import Material
from bench.measure import Ran, in_turns, run_process
from bench.programs import IMPORT_TYPER, hbuf_program, python_code, yardstick
from bench.table import Row, peak_row, rate_row, time_row

_COPY = 'cat "$1" > "$2" && sync "$2"'
_ECHO = 'echo line >> "$1"; sync "$1"'
_PARTS = {"http": "segments,", "idx": "indexes,", "tags": "tags files,"}


def stream_rows(material: Material) -> list[Row]:
    """Whole processes, from a file of lines to all of them durable."""
    rows = _stream_rows(material, material.messages, 100, "large")
    return rows + _stream_rows(material, max(material.messages // 10, 1), 1000, "kilobytes")


def _stream_rows(material: Material, count: int, size: int, name: str) -> list[Row]:
    lines = material.lines(count, size)

    def append() -> Ran:
        return run_process(hbuf_program("hbuf-append", material.fresh(name)), stdin=lines)

    def copy() -> Ran:
        return run_process(["sh", "-c", _COPY, "sh", lines, material.fresh("copy")])

    def minimum() -> Ran:
        return run_process(yardstick("append_minimum", material.fresh("copy")), stdin=lines)

    runs = {"hbuf-append": append, "cat + sync": copy, "Python minimum": minimum}
    if shutil.which("s6-log"):
        runs["s6-log"] = lambda: run_process(
            ["s6-log", "n1000", "s16777215", _empty_directory(material, "s6-log")], stdin=lines
        )
    if shutil.which("svlogd"):
        runs["svlogd"] = lambda: run_process(["svlogd", _svlogd_directory(material)], stdin=lines)
    found = in_turns(runs, material.repeats, quick=["cat + sync", "s6-log"])
    material.fresh("copy")
    ours = found["hbuf-append"]
    what = f"hbuf-append, {count:,} lines of {size} bytes"
    megabytes = count * (size + 1) / 1e6
    rows = [
        rate_row("append a stream", what, ours, beside, found.get(beside), count, "messages/s")
        for beside in ("cat + sync", "Python minimum", "s6-log", "svlogd")
    ]
    rows.append(rate_row("append a stream", what, ours, "cat + sync", found["cat + sync"], megabytes, "MB/s"))
    rows.append(peak_row("append a stream", what, ours))
    return rows


def _empty_directory(material: Material, name: str) -> Path:
    path = material.fresh(name)
    path.mkdir()
    return path


def _svlogd_directory(material: Material) -> Path:
    path = _empty_directory(material, "svlogd")
    (path / "config").write_text("s16777215\nn0\n")
    return path


def single_rows(material: Material) -> list[Row]:
    """One process a line: its start is most of it."""
    line = material.lines(1, 100)
    buffer, file = material.buffer(1), material.directory / "echoed"
    runs = {
        "hbuf-append": lambda: run_process(hbuf_program("hbuf-append", buffer), stdin=line),
        "python -c pass": lambda: run_process(python_code("pass")),
        IMPORT_TYPER: lambda: run_process(python_code("import typer")),
        "sh -c 'echo >> f; sync f'": lambda: run_process(["sh", "-c", _ECHO, "sh", file]),
    }
    found = in_turns(runs, material.short_repeats)
    ours = found.pop("hbuf-append")
    what = "hbuf-append of one line, in a loop"
    return [time_row("append a line", what, ours, name, samples) for name, samples in found.items()]


def disk_rows(material: Material) -> list[Row]:
    """Bytes a message on disk, in a buffer without keys and tags."""
    segments = material.large_buffer() / "segments"
    sizes = {suffix: sum(file.stat().st_size for file in segments.glob(f"*.{suffix}")) for suffix in _PARTS}
    rows = [
        Row("disk", f"{what} a message of 100 bytes", sizes[suffix] / material.messages, "bytes", "its line", 101)
        for suffix, what in _PARTS.items()
    ]
    total = sum(sizes.values()) / material.messages
    return [*rows, Row("disk", "all a message of 100 bytes", total, "bytes", "its line", 101)]
