"""Opening a buffer and appending one message: it must not matter how long the buffer is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from bench.material import Material, segment_files
from bench.measure import Ran, Samples
from bench.programs import yardstick
from bench.table import Row, time_row


def open_rows(material: Material) -> list[Row]:
    """The library in a process of its own, in turns: a buffer, a longer one, the longest, a plain file."""
    small, middle = material.buffer(1000), material.buffer(max(material.open_messages // 10, 1))
    large = material.grow_large_buffer()
    file = material.directory / "plain"
    found = _open_times(20 * material.repeats, file, [small, middle, large])
    plain, short = found[file], found[small]
    rows = [time_row("open", _described(small, 1000), short, "open, write, fdatasync of a file", plain)]
    for buffer, count in ((middle, material.open_messages // 10), (large, material.messages)):
        rows.append(time_row("open", _described(buffer, count), found[buffer], "the same with 1,000", short))
    return rows


def _described(buffer: Path, count: int) -> str:
    newest = segment_files(buffer)[-1].stat().st_size / 1e6
    return f"open and append to {count:,} (newest segment: {newest:.0f} MB)"


def _open_times(count: int, file: Path, buffers: list[Path]) -> dict[Path, Samples]:
    done = subprocess.run(
        yardstick("open_times", str(count), file, *buffers), stdout=subprocess.PIPE, text=True, check=True
    )
    times: dict[str, list[float]] = json.loads(done.stdout)
    return {Path(name): Samples([Ran(seconds) for seconds in each]) for name, each in times.items()}
