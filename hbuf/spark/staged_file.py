"""One file of staged rows, in Arrow's file format. Its record batches are the pieces that chunks are made of."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hbuf.arrow.outgoing import body_column, fields_of
from hbuf.errors import Damaged, NotFound
from hbuf.format.fields import Fields
from hbuf.store import fsops

_WRITE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PieceLimits:
    """A piece has no more than this, or it is a single message."""

    most_bytes: int
    most_messages: int


@dataclass(frozen=True, slots=True)
class Pieces:
    """Messages and bytes of each piece, and the length of the largest body in any of them."""

    sizes: tuple[tuple[int, int], ...]
    largest_body: int


def write_staged(path: Path, batches: Iterable[pa.RecordBatch], limits: PieceLimits) -> Pieces | None:
    """Writes all rows, and syncs. Refuses those that cannot be messages. Without rows there is no file, and None."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return None
    fd = fsops.create_file(path)
    try:
        around = os.stat(path.parent)
        fsops.own_like(fd, around, mode=around.st_mode & 0o660)  # bodies are for no others, wherever it lies
        pieces = _write_pieces(fd, first.schema, itertools.chain([first], filled), limits)
        fsops.sync_data(fd)
    finally:
        os.close(fd)
    return pieces


def read_staged(path: Path, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Pieces `start` to `end`, without the latter."""
    try:
        with pa.OSFile(str(path), "rb") as file, pa.ipc.open_file(file) as reader:
            for place in range(start, end):
                yield reader.get_batch(place)
    except FileNotFoundError:
        raise NotFound(f"{path}: is gone, and its rows are not all stored") from None
    except pa.ArrowInvalid as error:
        raise Damaged(f"{path}: {error}") from None


def _write_pieces(fd: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch], limits: PieceLimits) -> Pieces:
    pieces: list[tuple[int, int]] = []
    largest, next_row = 0, 1
    with (
        pa.BufferedOutputStream(pa.PythonFile(_Descriptor(fd), "w"), _WRITE_BYTES) as file,
        pa.ipc.new_file(file, schema) as writer,
    ):
        for batch in batches:
            bodies = _body_bytes(batch, next_row)
            sizes = bodies + _fields_bytes(batch, next_row)
            for start, end in _cuts(np.cumsum(sizes), limits):
                writer.write_batch(batch.slice(start, end - start))
                pieces.append((end - start, int(sizes[start:end].sum())))
            largest = max(largest, int(bodies.max()))
            next_row += batch.num_rows
    return Pieces(tuple(pieces), largest)


def _body_bytes(batch: pa.RecordBatch, first_row: int) -> npt.NDArray[np.int64]:
    column = body_column(batch, first_row)
    offsets = np.frombuffer(column.buffers()[1], np.int64, len(column) + 1, column.offset * 8)
    lengths: npt.NDArray[np.int64] = np.diff(offsets)
    return lengths


def _fields_bytes(batch: pa.RecordBatch, first_row: int) -> npt.NDArray[np.int64]:
    fields = fields_of(batch, first_row)
    if isinstance(fields, Fields):
        return np.full(batch.num_rows, len(fields.encoded), np.int64)
    return np.fromiter((len(each.encoded) for each in fields), np.int64, batch.num_rows)


def _cuts(ends: npt.NDArray[np.int64], limits: PieceLimits) -> Iterator[tuple[int, int]]:
    """Where pieces start and end; `ends` are the bytes up to each row's end."""
    start, before = 0, 0
    while start < len(ends):
        fitting = int(np.searchsorted(ends, before + limits.most_bytes, side="right"))
        end = max(min(fitting, start + limits.most_messages), start + 1)
        yield start, end
        start, before = end, int(ends[end - 1])


class _Descriptor:
    """What Arrow writes to: all bytes go through the one function that writes."""

    closed = False

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._length = 0

    def write(self, data: bytes) -> int:
        fsops.write_all_at(self._fd, data, self._length)
        self._length += len(data)
        return len(data)

    def tell(self) -> int:
        return self._length

    def flush(self) -> None:
        """Syncing comes at the end."""

    def close(self) -> None:
        self.closed = True
