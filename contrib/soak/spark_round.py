"""A round with Spark: buffers that are appended to, a stream that reads them, a stage, and the exactly-once sink.

Driver, its Java process and its workers are killed while they work, and started again from the checkpoint. Then the
output must have each message of the inputs once, in the stated order.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import hbuf
from hbuf.store.directory import BufferDirectory
from soak.check import check_buffer
from soak.sessions import Process, kill_session, left_after, processes_of
from soak.spark_check import check_stream
from soak.spark_feeder import make_input
from soak.spark_plan import FATAL, VICTIMS, Kill, SparkPlan

_END_SECONDS = 180
_CONTRIB = Path(__file__).resolve().parents[1]
_FEEDER = "import sys; sys.path.insert(0, sys.argv.pop(1)); from soak.spark_feeder import main; sys.exit(main())"
_DRIVER = Path(__file__).with_name("spark_driver.py")


@dataclass(slots=True)
class SparkRound:
    plan: SparkPlan
    folder: Path
    faults: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    _driver: subprocess.Popen[bytes] | None = None
    _sessions: list[int] = field(default_factory=list)

    def run(self) -> None:
        inputs = self.folder / "in"
        for folder in (inputs, self.folder / "spark"):
            folder.mkdir()
        for name in self.plan.inputs[:-1]:
            make_input(inputs, name, self.plan).close()
        hbuf.create(self.folder / "out", segment_messages=str(self.plan.output_segment_messages)).close()
        try:
            with self._feeder():
                self._disturb()
            (self.folder / "fed").touch()
            self._finish()
            self._check_processes()
        finally:
            for session in self._sessions:
                kill_session(session)
        if not self.faults:
            self._check()

    @contextlib.contextmanager
    def _feeder(self) -> Iterator[None]:
        """It feeds while the block runs, and has ended after it."""
        words = [str(_CONTRIB), str(self.folder), str(self.plan.seed)]
        feeder = subprocess.Popen([sys.executable, "-P", "-c", _FEEDER, *words], stdin=subprocess.DEVNULL)
        try:
            yield
            (self.folder / "enough").touch()
            if code := feeder.wait(_END_SECONDS):
                self.faults.append(f"the feeder ended with {code}")
        finally:
            feeder.kill()
            feeder.wait()

    # The driver

    def _disturb(self) -> None:
        numbers = random.Random(self.plan.seed)
        for kill in self.plan.kills:
            driver = self._running()
            self._wait_for_batches(kill.batches, driver)
            if kill.in_commit:
                self._wait_for(self._is_committing, driver, look_seconds=0.001)
            time.sleep(kill.seconds)
            self._kill(kill, driver, numbers)
            if kill.victim in FATAL:
                self._wait(driver)
                self._driver = None

    def _running(self) -> subprocess.Popen[bytes]:
        """A driver whose stream has started."""
        if self._driver is None:
            words = [str(self.folder), str(self.plan.rows), str(self.plan.partitions)]
            with self._log.open("ab") as log:
                self._driver = subprocess.Popen(
                    [sys.executable, "-P", str(_DRIVER), *words],
                    env=os.environ | {"TMPDIR": str(self.folder / "spark")},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self._sessions.append(self._driver.pid)
            self._count("starts")
        started = self.folder / f"started-{self._driver.pid}"
        self._wait_for(started.exists, self._driver)
        return self._driver

    def _kill(self, kill: Kill, driver: subprocess.Popen[bytes], numbers: random.Random) -> None:
        def killed() -> bool:
            found = _victims(kill, driver.pid)
            if not found:
                return False
            try:
                os.kill(numbers.choice(found).pid, signal.SIGKILL)
            except ProcessLookupError:  # workers come and go
                return False
            return True

        self._wait_for(killed, driver)
        self._count(f"{kill.victim} kills")
        if self._is_committing():
            self._count("commits cut short")

    def _is_committing(self) -> bool:
        """A manifest is there from before the first chunk of a batch is appended until after the last."""
        try:
            return any(name.endswith(".manifest") for name in os.listdir(BufferDirectory(self.folder / "out").staging))
        except FileNotFoundError:
            return False  # nothing was staged yet

    def _wait_for_batches(self, count: int, driver: subprocess.Popen[bytes]) -> None:
        due = self._batches() + count
        self._wait_for(lambda: self._batches() >= due, driver)

    def _wait_for(
        self, condition: Callable[[], bool], driver: subprocess.Popen[bytes], look_seconds: float = 0.02
    ) -> None:
        deadline = time.monotonic() + _END_SECONDS
        while not condition():
            if driver.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the driver does not go on: {self._log.read_text()[-2000:]}")
            time.sleep(look_seconds)

    def _finish(self) -> None:
        code = self._wait(self._running())
        if code:
            self.faults.append(f"the driver ended with {code}: {self._log.read_text()[-2000:]}")
        self.counts["query restarts"] = self._log.read_text().count("the query failed:")

    def _wait(self, driver: subprocess.Popen[bytes]) -> int | None:
        try:
            return driver.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.faults.append(f"the driver does not end: {self._log.read_text()[-2000:]}")
            kill_session(driver.pid)
            return None

    # The end

    def _check_processes(self) -> None:
        """What lost its driver, or its Java process, ends by itself."""
        for session in self._sessions:
            for process in left_after(session, _END_SECONDS / 6):
                words = " ".join(process.command)[:200]
                self.faults.append(f"process {process.pid} is left of a driver that ended: {words}")

    def _check(self) -> None:
        out = self.folder / "out"
        self.faults += check_buffer(out)
        self.faults += check_stream(self.folder)
        self.faults += [f"{path.name} is left in staging" for path in BufferDirectory(out).staging.iterdir()]
        self.counts["batches"] = self._batches()
        self.counts["messages"] = sum(1 for _ in hbuf.open(out).read())

    def _batches(self) -> int:
        """How many Spark has noted as done."""
        return sum(1 for _ in (self.folder / "checkpoint" / "commits").glob("[0-9]*"))

    @property
    def _log(self) -> Path:
        return self.folder / "driver.log"

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


def _victims(kill: Kill, session: int) -> list[Process]:
    word = VICTIMS[kill.victim]
    found = [each for each in processes_of(session) if word in {Path(part).name for part in each.command}]
    if not kill.in_commit:
        return found
    # Of two processes of one command the first only starts the others: what works is killed.
    those = {each.pid for each in found}
    return [each for each in found if each.parent in those] or found
