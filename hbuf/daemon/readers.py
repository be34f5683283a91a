"""Readers that are kept for the next request. Each is used by one thread at a time, and refreshed before.

A reader holds open files and the index of what it has read: only so many are kept, those that were used last. One that
has found damage is not kept, so that the next request is told of it, too.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from hbuf.store.directory import BufferDirectory
from hbuf.store.reader import Reader

_MOST_KEPT = 64
_MOST_KEPT_BYTES = 256 * 1024**2  # of indexes


_Folder = tuple[Path, int, int]  # a buffer that was put in the place of another is not read by what knew the other


def _identity(folder: Path) -> _Folder:
    try:
        found = os.stat(folder)
    except OSError:
        return folder, 0, 0  # whoever opens it says what is wrong
    return folder, found.st_dev, found.st_ino


class Readers:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, tuple[_Folder, Reader, int]] = (
            OrderedDict()
        )  # by the order in which they were used
        self._next = 0
        self._bytes = 0

    @contextlib.contextmanager
    def borrowed(self, directory: BufferDirectory) -> Iterator[Reader]:
        folder = _identity(directory.segments)
        reader = self._take(folder)
        try:
            if reader is None:
                reader = Reader(directory)
            else:
                reader.refresh()
            yield reader
            reader.let_go_of_old()
        except BaseException:
            if reader is not None:
                reader.close()
            raise
        if reader.damage:
            reader.close()
            return
        reader.retired_seq = 0
        self._keep(folder, reader)

    def close(self) -> None:
        with self._lock:
            for _, reader, _ in self._kept.values():
                reader.close()
            self._kept.clear()

    def _take(self, folder: _Folder) -> Reader | None:
        with self._lock:
            for number in reversed(self._kept):
                if self._kept[number][0] == folder:
                    _, reader, size = self._kept.pop(number)
                    self._bytes -= size
                    return reader
        return None

    def _keep(self, folder: _Folder, reader: Reader) -> None:
        dropped = []
        with self._lock:
            size = reader.index_bytes
            self._next += 1
            self._kept[self._next] = (folder, reader, size)
            self._bytes += size
            while len(self._kept) > _MOST_KEPT or (self._bytes > _MOST_KEPT_BYTES and len(self._kept) > 1):
                _, (_, old, old_size) = self._kept.popitem(last=False)
                self._bytes -= old_size
                dropped.append(old)
        for old in dropped:
            old.close()
