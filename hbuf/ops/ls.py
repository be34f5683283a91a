"""Listing buffers: one, or all in a tree, with numbers, sizes, times and state."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hbuf.errors import HbufError, NotFound
from hbuf.store.directory import BufferDirectory
from hbuf.store.markers import read_marker
from hbuf.store.reader import Reader


@dataclass(frozen=True, slots=True)
class Listing:
    path: str
    tenant: str
    name: str
    first: int
    last: int  # first - 1 where there is no message
    messages: int
    bytes: int
    segments: int
    oldest_us: int | None
    newest_us: int | None
    state: str  # open, paused, closed, damaged


def find_buffers(path: str) -> Iterator[BufferDirectory]:
    """The buffer at `path`, or all buffers below it, by name."""
    directory = BufferDirectory(path)
    if directory.exists():
        yield directory
        return
    if not directory.path.is_dir():
        raise NotFound(f"{path}: there is no such buffer")
    for above, folders, _ in os.walk(directory.path):
        for folder in sorted(folders):
            found = BufferDirectory(Path(above) / folder)
            if found.exists():
                yield found
        folders[:] = sorted(f for f in folders if not BufferDirectory(Path(above) / f).exists())


def list_buffer(directory: BufferDirectory) -> Listing:
    state = "open"
    pause = read_marker(directory.paused)
    if pause is not None:
        state = "paused (stale)" if pause.stale else "paused"
    elif read_marker(directory.closed) is not None:
        state = "closed"
    firsts = directory.segment_firsts()
    size = sum(os.stat(directory.segment(first)).st_size for first in firsts)
    first, last, oldest, newest = firsts[0], firsts[-1] - 1, None, None
    try:
        with Reader(directory) as reader:
            last = reader.end_seq - 1
            oldest = reader.time_of(first) if last >= first else None
            newest = reader.time_of(last) if last >= first else None
            if reader.damage:
                state = "damaged"
    except HbufError:
        state = "damaged"
    return Listing(
        str(directory.path),
        directory.tenant,
        directory.name,
        first,
        last,
        last - first + 1,
        size,
        len(firsts),
        oldest,
        newest,
        state,
    )
