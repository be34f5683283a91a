"""Durable primitives, named by what they guarantee. Every change to a buffer's files goes through here.

Nothing here knows what the bytes mean. Tests replace these functions one by one: to fail, to stop the process,
or to forget what was not synced. So callers say `fsops.name(…)`, and never import the names.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from hbuf.errors import DiskFull, HbufError, NotAllowed, NotFound, StorageFailed


def create_file(path: Path, mode: int | None = None) -> int:
    """A new, empty file open for reading and writing, owned like its directory. An old one is emptied.

    Without `mode` it has that of its directory. A link is not followed: root may make files where others can put
    one. The name is durable only after `sync_directory`.
    """
    around = os.stat(path.parent)
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, around.st_mode & 0o666 if mode is None else mode)
    try:
        own_like(fd, around, mode)
    except BaseException:
        os.close(fd)
        raise
    return fd


def make_directory(path: Path, *, most_mode: int = 0o7777) -> None:
    """A new directory with the owner, group and mode of the one around it, the mode not beyond `most_mode`.

    Durable after `sync_directory`.
    """
    around = os.stat(path.parent)
    os.mkdir(path, around.st_mode & most_mode & 0o777)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        own_like(fd, around, mode=around.st_mode & most_mode)
    finally:
        os.close(fd)


def make_outer_directory(path: Path) -> None:
    """A new directory with the mode of the user's umask: for a buffer itself and what is above it.

    What root makes belongs to the owner of the directory around it.
    """
    os.mkdir(path)
    around = os.stat(path.parent)
    if os.geteuid() == 0 and (around.st_uid, around.st_gid) != (0, 0):
        os.chown(path, around.st_uid, around.st_gid, follow_symlinks=False)


def write_all_at(fd: int, data: bytes, offset: int) -> None:
    """All of `data` is in the file's cache, however short the single writes were."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        offset += written
        view = view[written:]


def sync_data(fd: int) -> None:
    """The file's bytes and length are on disk. After a failure nothing is known, and trying again proves nothing."""
    os.fdatasync(fd)


def truncate(fd: int, length: int) -> None:
    """The file ends at `length`; on disk after `sync_data`."""
    os.ftruncate(fd, length)


def rename(source: Path, target: Path) -> None:
    """`target` is the old file or the new one, never half of each; durable after `sync_directory`."""
    os.rename(source, target)


def link(source: Path, target: Path) -> None:
    """`target` is the same file, whole. FileExistsError where there is one already. Durable after `sync_directory`."""
    os.link(source, target)


def unlink(path: Path) -> None:
    """The name is gone; durable after `sync_directory`."""
    os.unlink(path)


def sync_directory(path: Path) -> None:
    """The names in the directory are on disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_durably(path: Path, data: bytes, temporary: str | None = None, mode: int | None = None) -> None:
    """`path` holds `data`, on disk, and at no time holds anything but what it held before or `data`."""
    beside = path.with_name(temporary or f".new-{path.name}")
    fd = create_file(beside) if mode is None else create_file(beside, mode)
    try:
        write_all_at(fd, data, 0)
        sync_data(fd)
    finally:
        os.close(fd)
    rename(beside, path)
    sync_directory(path.parent)


def create_durably(path: Path, data: bytes, temporary: str) -> None:
    """`path` is on disk, and holds `data`, or what somebody else put there first: that is never replaced.

    `temporary` is a name that nobody else uses.
    """
    beside = path.with_name(temporary)
    fd = create_file(beside)
    try:
        write_all_at(fd, data, 0)
        sync_data(fd)
    finally:
        os.close(fd)
    try:
        with contextlib.suppress(FileExistsError):
            link(beside, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            unlink(beside)
    sync_directory(path.parent)


@contextlib.contextmanager
def os_errors(path: Path | str) -> Iterator[None]:
    """Turns what the operating system refuses into hbuf's errors, naming `path` where it names no file."""
    try:
        yield
    except OSError as error:
        raise translated(error, path) from error


def translated(error: OSError, path: Path | str) -> HbufError:
    place = error.filename if error.filename is not None else path
    if isinstance(place, bytes):
        place = os.fsdecode(place)
    what = f"{place}: {os.strerror(error.errno) if error.errno else error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{path}: the disk is full" if error.errno == errno.ENOSPC else f"{path}: the quota is used up")
    if error.errno in (errno.EACCES, errno.EPERM):
        return NotAllowed(what)
    if error.errno == errno.EROFS:
        return NotAllowed(what, hint="the file system is mounted read-only")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return NotFound(what)
    return StorageFailed(what)


def own_like(fd: int, around: os.stat_result, mode: int | None = None) -> None:
    """cron runs as root; the daemon must still be able to write what it made."""
    os.fchmod(fd, around.st_mode & 0o666 if mode is None else mode)
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) == (around.st_uid, around.st_gid):
        return
    owner = around.st_uid if os.geteuid() == 0 else -1
    # A user outside the directory's group cannot give a file to it, and may go on without.
    with contextlib.suppress(PermissionError):
        os.fchown(fd, owner, around.st_gid)
