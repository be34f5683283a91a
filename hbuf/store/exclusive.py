"""One process at a time: an flock(2) on a file beside what it guards. A dead holder leaves no lock behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from hbuf.errors import Locked
from hbuf.store import fsops

_POLL_SECONDS = 0.005


@contextlib.contextmanager
def exclusively(path: Path, timeout_seconds: float = 30) -> Iterator[None]:
    """Holds the lock file at `path`, which is made where it is missing, and is never removed."""
    with fsops.os_errors(path):
        # Not fsops.create_file: two may both come here, and must end up with one file.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with fsops.os_errors(path):
            around = os.stat(path.parent)
            if os.fstat(fd).st_uid == os.geteuid():
                fsops.own_like(fd, around, mode=0o600)
            _take(fd, path, time.monotonic() + timeout_seconds)
        yield
    finally:
        os.close(fd)


def _take(fd: int, path: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Locked(f"{path}: is locked by another program") from None
            time.sleep(_POLL_SECONDS)
            continue
        return
