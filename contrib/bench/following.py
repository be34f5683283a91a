"""How soon a follower shows a message that another process appended, and what following costs when nothing happens."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.material import Material
from bench.measure import percentile
from bench.programs import hbuf_program, yardstick
from bench.table import Row

_APPENDS_A_REPEAT = 100
_PAUSE_SECONDS = 0.01
_QUIET_SECONDS = 0.3
_IDLE_SECONDS = 1
_DEADLINE_SECONDS = 60


def follow_rows(material: Material) -> list[Row]:
    count = _APPENDS_A_REPEAT * material.repeats
    buffer, file = material.buffer(1000), material.directory / "followed"
    file.touch()
    ours = _Follower(hbuf_program("hbuf-tail", "-f", "-o", "end", buffer), "hbuf", buffer)
    plain = _Follower(["tail", "-f", "-n", "0", file], "file", file)
    try:
        our_times, plain_times = ours.measure(count), plain.measure(count)
        our_idle, plain_idle = _idle_milliseconds(ours.process.pid, plain.process.pid)
    finally:
        ours.stop()
        plain.stop()
    rows = []
    for since, place in (("its receipt", 1), ("before the append", 0)):
        for percent in (50, 95, 99):
            what = f"hbuf-tail -f, p{percent} from {since}"
            values = [percentile([times[place] for times in each], percent) for each in (our_times, plain_times)]
            rows.append(Row("follow", what, values[0], "ms", "tail -f of a file", values[1]))
    rows.append(Row("follow", "hbuf-tail -f, idle, CPU a second", our_idle, "ms", "tail -f of a file", plain_idle))
    return rows


class _Follower:
    """A program that follows, and when each line of it arrived."""

    def __init__(self, argv: Sequence[str | Path], kind: str, path: Path) -> None:
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self._kind, self._path = kind, path
        self._arrived: list[tuple[bytes, int]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def measure(self, count: int) -> list[tuple[float, float]]:
        """For each append, milliseconds from before it and from its receipt to the arrival of its line."""
        self._wait_until_it_follows()
        done = subprocess.run(
            yardstick("timed_appends", self._kind, self._path, str(count), str(_PAUSE_SECONDS)),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        self._wait_for(count)
        found = []
        for line, (body, arrived) in zip(done.stdout.splitlines(), self._arrived, strict=True):
            number, before, receipt = map(int, line.split())
            if int(body) != number:
                raise SystemExit(f"bench: line {number} came as {body!r}")
            found.append(((arrived - before) / 1e6, (arrived - receipt) / 1e6))
        return found

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()

    def _wait_until_it_follows(self) -> None:
        """Appends until the first line arrives, then until none is under way."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not self._arrived:
            if time.monotonic() > deadline:
                raise SystemExit(f"bench: {self._path}: nothing arrives")
            one = yardstick("timed_appends", self._kind, self._path, "1", "0.2")
            subprocess.run(one, check=True, stdout=subprocess.DEVNULL)
        time.sleep(_QUIET_SECONDS)
        self._arrived.clear()

    def _wait_for(self, count: int) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while len(self._arrived) < count:
            if time.monotonic() > deadline:
                raise SystemExit(f"bench: {self._path}: {len(self._arrived)} of {count} lines arrived")
            time.sleep(0.01)

    def _read(self) -> None:
        if self.process.stdout is None:
            return
        for line in self.process.stdout:
            self._arrived.append((line, time.monotonic_ns()))


def _idle_milliseconds(*pids: int) -> list[float]:
    """CPU time of each process while nothing happens, a second."""
    time.sleep(_QUIET_SECONDS)
    before = [_cpu_ticks(pid) for pid in pids]
    time.sleep(_IDLE_SECONDS)
    a_tick = 1000 / os.sysconf("SC_CLK_TCK")
    return [(_cpu_ticks(pid) - then) * a_tick / _IDLE_SECONDS for pid, then in zip(pids, before, strict=True)]


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
