"""Writing over bytes of a segment: in place where it is plain, frame by frame where it is compressed."""

from __future__ import annotations

import os

from hbuf.format.erasing import Patch
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory


def apply_patches(directory: BufferDirectory, first: int, patches: list[Patch]) -> None:
    """All `patches` are in segment `first`, on disk. Its length stays as it is."""
    if directory.segment_file(first) != directory.segment(first):
        from hbuf.store.compress import replace_ranges

        replace_ranges(directory, first, patches)
        return
    if directory.compressed(first).exists():
        # Compressing was interrupted: the plain file counts, and the other one has what is to go.
        fsops.unlink(directory.compressed(first))
        fsops.sync_directory(directory.segments)
    fd = os.open(directory.segment(first), os.O_RDWR | os.O_CLOEXEC)
    try:
        for offset, data in patches:
            fsops.write_all_at(fd, data, offset)
        fsops.sync_data(fd)
    finally:
        os.close(fd)
