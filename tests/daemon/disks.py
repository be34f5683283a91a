"""Real disks of a test: one that is small and fills up, and one that can be stopped. Mounting them needs root."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

# FIFREEZE and FITHAW of ioctl_fs(2): whoever writes waits, whoever reads does not.
_FREEZE, _THAW = 0xC0045877, 0xC0045878


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[None]:
    """`folder` is a disk of this size."""
    _mount("-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "none", folder)
    try:
        yield
    finally:
        _unmount(folder)


class Disk:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Meanwhile nothing is written to it."""
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _FREEZE, 0)
            try:
                yield
            finally:
                fcntl.ioctl(fd, _THAW, 0)
        finally:
            os.close(fd)


@contextlib.contextmanager
def disk_that_stops(folder: Path) -> Iterator[Disk]:
    image = folder.with_name(f"{folder.name}.img")
    with open(image, "wb") as file:
        file.truncate(16 * 1024**2)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", image], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a file system cannot be made: {error}")
    _mount("-o", "loop,noatime", image, folder)
    try:
        yield Disk(folder)
    finally:
        _unmount(folder)


def _mount(*words: str | Path) -> None:
    if os.geteuid():
        pytest.skip("mounting a disk needs root")
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a disk cannot be mounted here: {done.stderr.strip()}")


def _unmount(folder: Path) -> None:
    """At once, even while somebody still has files open on it."""
    subprocess.run(["umount", "--lazy", folder], check=True, capture_output=True)
