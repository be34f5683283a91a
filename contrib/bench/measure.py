"""Timing processes and functions: in turns, several times, the median counts.

It must stay small in memory. Linux counts the memory of the process that starts another into the peak of the
one that is started, so no peak can be told that lies below ours.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Ran:
    """One run, from start to end."""

    seconds: float
    peak_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Samples:
    """All runs of one thing."""

    runs: Sequence[Ran]

    @property
    def seconds(self) -> float:
        return statistics.median(run.seconds for run in self.runs)

    @property
    def spread(self) -> float:
        """From the 10th to the 90th percentile, as a part of the median: how noisy it was.

        Of a few runs that is nearly all of their range: quartiles would hide half of it.
        """
        if len(self.runs) < 2:
            return 0.0
        tenths = statistics.quantiles((run.seconds for run in self.runs), n=10, method="inclusive")
        return (tenths[-1] - tenths[0]) / self.seconds

    @property
    def peak_bytes(self) -> int:
        return max(run.peak_bytes for run in self.runs)


def run_process(
    argv: Sequence[str | Path],
    *,
    stdin: Path | None = None,
    stdout: Path | None = None,
    env: dict[str, str] | None = None,
) -> Ran:
    """Runs a program to its end. Standard input and output are files, or nothing."""
    with contextlib.ExitStack() as files:
        source = files.enter_context(stdin.open("rb")) if stdin else subprocess.DEVNULL
        target = files.enter_context(stdout.open("wb")) if stdout else subprocess.DEVNULL
        environment = os.environ | env if env else None
        start = time.perf_counter()
        process = subprocess.Popen(argv, stdin=source, stdout=target, env=environment)
        # Not Popen.wait(): only wait4 tells the peak of this one process.
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"bench: {' '.join(map(str, argv))}: exit code {process.returncode}")
    return Ran(seconds, usage.ru_maxrss * 1024)


def in_turns(
    runs: Mapping[str, Callable[[], Ran]], repeats: int, *, quick: Collection[str] = (), warm_ups: int = 1
) -> dict[str, Samples]:
    """Runs each in turn, `repeats` times, so that whatever else the machine does meets all of them alike.

    More turns come first, to warm up. What is `quick` runs several times a turn: a copy of 100 MB with its
    sync took 60 ms once and 300 ms the next time.
    """
    found: dict[str, list[Ran]] = {name: [] for name in runs}
    for turn in range(-warm_ups, repeats):
        for name, run in runs.items():
            times = repeats if name in quick and turn >= 0 else 1
            ran = [run() for _ in range(times)]
            if turn >= 0:
                found[name] += ran
    return {name: Samples(each) for name, each in found.items()}


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that `percent` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
