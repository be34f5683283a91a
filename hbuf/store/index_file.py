"""Reading an index file: its header, and the entries below its durable length, without reading all of it.

It says what the file says. Whether that is right only the segment can tell.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hbuf.errors import Damaged
from hbuf.format import index

# An index is synced whenever its entries pass a multiple of this, and not with every batch: a power cut can leave
# holes in its last stretch alone, and a writer that opens it has no more than that to look through.
SYNC_EVERY = 4096

_HOLE = bytes(index.ENTRY_BYTES)


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index that hangs together. `count` entries lie below its durable length."""

    fd: int
    header: index.Header
    count: int

    def entry(self, i: int) -> index.Entry:
        return _entry(self.fd, i)

    @property
    def last(self) -> index.Entry | None:
        return self.entry(self.count - 1) if self.count else None

    def has_holes(self) -> bool:
        """Whether a page of it never got to disk: it reads as zeros, and no entry is that."""
        return _HOLE in self.entries(self.count // SYNC_EVERY * SYNC_EVERY)

    def entries(self, start: int = 0) -> bytearray:
        """The entries from `start` on, as they are stored. There may be megabytes: they are read to where they stay."""
        size = index.ENTRY_BYTES
        data = bytearray((self.count - start) * size)
        del data[_pread_into(self.fd, data, index.HEADER_BYTES + start * size) :]
        return data


@contextlib.contextmanager
def opened_index(path: Path, first: int) -> Iterator[IndexFile | None]:
    """None for an index that is missing, or wrong in a way that shows without reading the segment."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        header = _header(fd)
        if header is None or header.first != first:
            yield None
            return
        count = _count_listed(fd, header.durable_length)
        hangs_together = count == 0 or _entry(fd, count - 1).end == header.durable_length
        yield IndexFile(fd, header, count) if hangs_together else None
    finally:
        os.close(fd)


def read_index_header(path: Path) -> index.Header | None:
    """None for an index that is missing, short, or of another kind."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return _header(fd)
    finally:
        os.close(fd)


def pread_all(fd: int, length: int, offset: int) -> bytes:
    """`length` bytes at `offset`, or fewer where the file ends."""
    data = os.pread(fd, length, offset)
    if len(data) == length:
        return data
    parts = [data]
    got = len(data)
    while data and got < length:
        data = os.pread(fd, length - got, offset + got)
        parts.append(data)
        got += len(data)
    return b"".join(parts)


def _pread_into(fd: int, data: bytearray, offset: int) -> int:
    """Fills `data` with what is at `offset`. Returns how much there was: less where the file ends."""
    got = 0
    with memoryview(data) as view:
        while got < len(data) and (count := os.preadv(fd, [view[got:]], offset + got)):
            got += count
    return got


def _header(fd: int) -> index.Header | None:
    try:
        return index.parse_header(os.pread(fd, index.HEADER_BYTES, 0))
    except Damaged:
        return None


def _count_listed(fd: int, durable_length: int) -> int:
    """How many entries end at or below the durable length.

    Those behind it belong to a batch that is being written, or was not finished; most of the time there are none.
    """
    low, high = 0, (os.fstat(fd).st_size - index.HEADER_BYTES) // index.ENTRY_BYTES
    if high > 0 and _entry(fd, high - 1).end <= durable_length:
        return high
    while low < high:
        middle = (low + high) // 2
        if _entry(fd, middle).end <= durable_length:
            low = middle + 1
        else:
            high = middle
    return low


def _entry(fd: int, i: int) -> index.Entry:
    data = os.pread(fd, index.ENTRY_BYTES, index.HEADER_BYTES + i * index.ENTRY_BYTES)
    if len(data) < index.ENTRY_BYTES:
        return index.Entry(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)  # the file was cut meanwhile: no entry ends there
    return index.Entry._make(index.ENTRY.unpack(data))
