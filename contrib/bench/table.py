"""What was measured, as rows, and how rows are shown."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.measure import Samples, run_process
from bench.programs import IMPORT_TYPER, python_code
from hbuf.version import VERSION

NOT_INSTALLED = "not installed"


@dataclass(frozen=True, slots=True)
class Row:
    """A figure and its yardstick, in one unit. `beside_value` is None where the yardstick is not installed."""

    group: str
    what: str
    value: float
    unit: str
    beside: str
    beside_value: float | None
    spread: float | None = None
    beside_spread: float | None = None

    @property
    def ratio(self) -> float | None:
        """None for what cannot be compared: a time before a receipt is negative."""
        return self.value / self.beside_value if self.beside_value and self.value > 0 < self.beside_value else None


def rate_row(
    group: str, what: str, samples: Samples, beside: str, yardstick: Samples | None, amount: float, unit: str
) -> Row:
    """How much of `amount` a second, for both."""
    return Row(
        group,
        what,
        amount / samples.seconds,
        unit,
        beside,
        amount / yardstick.seconds if yardstick else None,
        samples.spread,
        yardstick.spread if yardstick else None,
    )


def time_row(group: str, what: str, samples: Samples, beside: str, yardstick: Samples | None) -> Row:
    """Milliseconds, for both."""
    return Row(
        group,
        what,
        samples.seconds * 1e3,
        "ms",
        beside,
        yardstick.seconds * 1e3 if yardstick else None,
        samples.spread,
        yardstick.spread if yardstick else None,
    )


def peak_row(group: str, what: str, samples: Samples) -> Row:
    """The most memory of any run, beside a Python that has only imported typer."""
    typer = run_process(python_code("import typer"))
    peak, beside = samples.peak_bytes / 1e6, typer.peak_bytes / 1e6
    return Row(group, f"{what}, peak memory", peak, "MB", IMPORT_TYPER, beside)


def machine(directory: Path) -> dict[str, str]:
    """What the figures depend on."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return {
        "hbuf": VERSION,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "file system": file_system(directory),
        "load at the start": load,
    }


def file_system(directory: Path) -> str:
    """The type of the file system that `directory` is on, and what is mounted."""
    real = os.path.realpath(directory)
    best, found = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, place, kind = line.split()[:3]
        if len(place) >= len(best) and (real + "/").startswith(place.rstrip("/") + "/"):
            best, found = place, f"{kind} ({device} on {place})"
    return found


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def as_json(about: dict[str, str], rows: Sequence[Row]) -> str:
    return json.dumps({"machine": about, "rows": [asdict(row) | {"ratio": row.ratio} for row in rows]}, indent=2)


def as_text(about: dict[str, str], rows: Sequence[Row]) -> str:
    lines = [f"{name + ':':19}{value}" for name, value in about.items()]
    lines.append(
        "ratio = figure / yardstick; ± is from the 10th to the 90th percentile of all runs, in % of the median"
    )
    cells = [_cells(row) for row in rows]
    widths = [max(len(cell[i]) for cell in cells) for i in range(len(cells[0]))] if cells else []
    group = ""
    for row, cell in zip(rows, cells, strict=True):
        if row.group != group:
            group = row.group
            lines += ["", group]
        what, value, spread, beside, beside_value, beside_spread, ratio = (
            text.ljust(width) if i in (0, 3) else text.rjust(width)
            for i, (text, width) in enumerate(zip(cell, widths, strict=True))
        )
        lines.append(f"  {what}  {value} {spread}  | {beside}  {beside_value} {beside_spread}  | {ratio}".rstrip())
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.what,
        f"{_number(row.value)} {row.unit}",
        _percent(row.spread),
        row.beside,
        NOT_INSTALLED if row.beside_value is None else f"{_number(row.beside_value)} {row.unit}",
        _percent(row.beside_spread),
        "" if row.ratio is None else f"{row.ratio:.3g}" if row.ratio < 100 else f"{row.ratio:.0f}",
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _percent(spread: float | None) -> str:
    return "" if spread is None else f"±{spread * 100:.0f}%"
