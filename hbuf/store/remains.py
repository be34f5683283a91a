"""What is left of messages outside of segments: in bytes that were set aside, and in files that were never finished."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from hbuf.format import names
from hbuf.format.erasing import zeros
from hbuf.format.remains import Erased, Region, Remains
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory


class Quarantined:
    """The files in quarantine/, and what of them is to be overwritten. They are never deleted."""

    def __init__(self, directory: BufferDirectory) -> None:
        folder = directory.quarantine
        files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
        self._remains = [(path, Remains(path.read_bytes())) for path in files if path.suffix != names.INDEX_SUFFIX]
        self._found: dict[Path, set[Region]] = {}

    def look_for(self, erased: Erased) -> None:
        for path, remains in self._remains:
            for region in remains.regions_of(erased):
                self._found.setdefault(path, set()).add(region)

    def overwrite(self) -> None:
        """Zeros over all that was found, on disk when it returns."""
        for path, regions in self._found.items():
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                for region in sorted(regions):
                    for offset, data in zeros(*region):
                        fsops.write_all_at(fd, data, offset)
                fsops.sync_data(fd)
            finally:
                os.close(fd)


def remove_unfinished(directory: BufferDirectory, firsts: Iterable[int]) -> None:
    """Files that a process left which died before it could rename them. For who holds the lock: nobody makes one.

    Of the segments `firsts`, which were changed, a process may be building compressed ones right now: it finds out
    that they were changed, and begins again.
    """
    built = [names.NEW_INDEX, names.NEW_TAGS, *map(names.new_compressed, firsts)]
    left = [name for name in built if (directory.segments / name).exists()]
    for name in left:
        fsops.unlink(directory.segments / name)
    if left:
        fsops.sync_directory(directory.segments)
