"""One run of a pipeline at a time: flock(2) on the file `lock` of its state directory.

The lock goes with the process that holds it, and its Java process lives a moment longer: it may still be finishing a
batch. So the file also names that process, and the next run waits until it is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

from hbuf.errors import Locked
from hbuf.spark.pipelines.state import make_state_directory
from hbuf.store import fsops

_POLL_SECONDS = 0.05
# A status that looks at the lock has it for a moment.
_PATIENCE_SECONDS = 1.0
_JAVA_PATIENCE_SECONDS = 60.0


class RunLock:
    def __init__(self, state: Path, shown: str) -> None:
        self._path = state / "lock"
        self._shown = shown
        self._fd = -1

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Takes the lock, or raises Locked with the process that has it."""
        with fsops.os_errors(self._shown):
            make_state_directory(self._path.parent)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not _try(self._fd, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                owner = _content(self._fd).get("pid", "unknown")
                self.release()
                raise Locked(f"{self._shown}: is being run by process {owner}")
            time.sleep(_POLL_SECONDS)
        self._wait_for_java()
        self._write({"pid": os.getpid()})

    def name_java(self, pid: int) -> None:
        self._write({"pid": os.getpid(), "java": pid, "java_start": _start_of(pid)})

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _wait_for_java(self) -> None:
        before = _content(self._fd)
        pid, start = before.get("java"), before.get("java_start")
        deadline = time.monotonic() + _JAVA_PATIENCE_SECONDS
        while isinstance(pid, int) and start is not None and _start_of(pid) == start:
            if time.monotonic() >= deadline:
                self.release()
                raise Locked(f"{self._shown}: process {pid} of the run before does not end")
            time.sleep(_POLL_SECONDS)

    def _write(self, values: dict[str, Any]) -> None:
        # For people and for the next run. Nothing depends on its being on disk: with the power, all processes go.
        data = json.dumps(values).encode() + b"\n"
        fsops.truncate(self._fd, 0)
        fsops.write_all_at(self._fd, data, 0)


def runs_now(state: Path) -> bool:
    """Whether a run is under way."""
    try:
        fd = os.open(state / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def _try(fd: int, operation: int) -> bool:
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _content(fd: int) -> dict[str, Any]:
    try:
        values = json.loads(os.pread(fd, 4096, 0))
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _start_of(pid: int) -> str | None:
    """When a process started, in the kernel's ticks: a number that is given again does not start at the same tick."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if state == "Z" else rest[18]  # one that has ended, and that nobody has asked about, does nothing more
