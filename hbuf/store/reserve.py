"""A file that is there to be given back: on a full disk it makes room for what has to be written to retire segments."""

from __future__ import annotations

import contextlib
import errno
import os

from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.gate import Gate

RESERVE_BYTES = 64 * 1024
_ABOUT = b"hbuf gives this file back when the disk is full, so that hbuf-retire can make room.\n"


def keep_reserve(directory: BufferDirectory) -> None:
    """Makes the reserve, where it is missing or too small and there is room. For who holds the lock."""
    keys = _size(directory.keys)  # which is written anew as a whole
    if _size(directory.reserve) >= RESERVE_BYTES // 2 + keys:
        return
    try:
        # Random bytes take real blocks, also where a file system compresses.
        fsops.replace_durably(directory.reserve, _ABOUT + os.urandom(RESERVE_BYTES + keys - len(_ABOUT)))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        with contextlib.suppress(FileNotFoundError):
            fsops.unlink(directory.reserve.with_name(f".new-{directory.reserve.name}"))


def keep_first_reserve(directory: BufferDirectory, timeout_seconds: float) -> None:
    """Makes the reserve where it is missing, under the lock."""
    if directory.reserve.exists():
        return
    gate = Gate(directory, lambda line: None)
    try:
        gate.enter(timeout_seconds, even_closed=True)
        keep_reserve(directory)
    finally:
        gate.close()


def give_back(directory: BufferDirectory) -> bool:
    """Frees the reserve, on disk. False where there is none."""
    try:
        fsops.unlink(directory.reserve)
    except FileNotFoundError:
        return False
    fsops.sync_directory(directory.path)
    return True


def _size(path: os.PathLike[str]) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
