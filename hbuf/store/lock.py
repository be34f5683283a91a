"""The lock of a buffer: flock(2) on the file `lock`. One writer at a time, for one batch at a time.

A dead holder leaves no lock behind: the kernel drops it. It protects nothing by itself; writers and markers do.
"""

from __future__ import annotations

import fcntl
import os
import time

from hbuf.errors import Locked
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory

_POLL_SECONDS = 0.001


class Lock:
    """Not for two threads at once: each has a `Lock` of its own."""

    def __init__(self, directory: BufferDirectory) -> None:
        self._directory = directory
        self._path = directory.lock
        self._fd = -1

    def acquire(self, *, shared: bool = False, deadline: float | None = None) -> None:
        """Takes the lock, waiting until `deadline` (of time.monotonic; None: not at all), else raises Locked."""
        self._open(shared)
        operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        while True:
            try:
                fcntl.flock(self._fd, operation)
            except BlockingIOError:
                if deadline is None or time.monotonic() >= deadline:
                    raise Locked(
                        f"{self._directory.shown}: is locked by another writer", hint="a longer --timeout waits for it"
                    ) from None
                time.sleep(_POLL_SECONDS)
                continue
            if self._is_current():
                return
            # The buffer was moved away or restored over: the file that was locked is no longer its lock.
            self.close()
            self._open(shared)

    def release(self) -> None:
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self, shared: bool) -> None:
        if self._fd >= 0:
            return
        try:
            # Readers may have no right to write, and flock(2) needs none.
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if shared:
                raise
            # Not fsops.create_file: two writers may both come here, and must end up with one file.
            around = os.stat(self._path.parent)
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, around.st_mode & 0o666)
            fsops.own_like(self._fd, around)

    def _is_current(self) -> bool:
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        mine = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
