"""A stream in a driver of its own, which is killed at moments drawn from seeds, or one of its Python workers is.

python killed_stream.py FOLDER      is that driver: it copies FOLDER/in to the buffer FOLDER/out, and ends
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pyspark.errors import StreamingQueryException

from hbuf.spark.session import local_session
from hbuf.store.directory import BufferDirectory
from hbuf.store.reader import Reader

_PATIENCE_SECONDS = 120


def kill_and_finish(folder: Path, seeds: Iterable[int], messages: int) -> list[str]:
    """Kills once for each seed, and then lets a driver come to its end. Returns what was killed."""
    killed: list[str] = []
    left = list(seeds)
    while left:
        with _driver(folder) as driver:
            what = "worker"
            while left and what == "worker":  # its driver starts the query again
                what = _kill(folder, driver, random.Random(left[0]), "driver" if left[0] % 2 else "worker", messages)
                killed.append(what)
                del left[0]
    with _driver(folder) as driver:
        assert driver.wait(_PATIENCE_SECONDS) == 0
    return killed


def _kill(folder: Path, driver: subprocess.Popen[bytes], chance: random.Random, what: str, messages: int) -> str:
    wanted = _stored(folder) + chance.randrange(1, messages // 5)
    _wait_for(lambda: _stored(folder) >= wanted)
    time.sleep(chance.random() / 2)
    with contextlib.suppress(ProcessLookupError):
        if what == "driver":
            os.killpg(driver.pid, signal.SIGKILL)
        else:
            os.kill(chance.choice(_workers(driver.pid)), signal.SIGKILL)
    return what


@contextlib.contextmanager
def _driver(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with open(folder / "driver.log", "ab") as log:
        driver = subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield driver
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        _wait_for(lambda: not _workers(driver.pid))


def _stored(folder: Path) -> int:
    with Reader(BufferDirectory(folder / "out")) as reader:
        return reader.end_seq - 1


def _workers(session: int) -> list[int]:
    """The Python workers of a driver: they are in its session, and in a process group of their own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                state, _, group, of_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(of_session) == session and int(group) != session and state != "Z":
                    found.append(int(entry.name))
    return sorted(found)


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "nothing happens any more"
        time.sleep(0.02)


def _be_the_driver(folder: Path) -> None:
    spark = local_session("killed stream", master="local[2]")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
    # What is computed again differs: a batch must be of one computation.
    frame = lines.selectExpr("concat(value, ' ', uuid()) as body")
    for _ in range(5):
        writing = frame.writeStream.format("hbuf").option("checkpointLocation", str(folder / "checkpoint"))
        query = writing.trigger(availableNow=True).start(str(folder / "out"))
        try:
            query.awaitTermination()
            break
        except StreamingQueryException:
            continue
    spark.stop()


if __name__ == "__main__":
    _be_the_driver(Path(sys.argv[1]))
