"""Importing Parquet: that of an export, and anyone's. Memory holds one batch at a time."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hbuf.arrow.outgoing import check_columns, outgoing_of
from hbuf.errors import BadInput, HbufError
from hbuf.ops.import_files import ImportFile, Source
from hbuf.ops.import_messages import Columns, Piece
from hbuf.store.outgoing import Outgoing

_BATCH_ROWS = 10_000
_BATCH_BYTES = 8 * 1024**2
_TAKEN = ("tags", "headers")
_OF_EXPORT = ("tenant", "buffer", "seq", "erased", "encrypted")


def import_parquet(file: ImportFile, columns: Columns, progress: Callable[[int], None]) -> Iterator[Piece]:
    """`progress` is told how many bytes were read, as far as rows tell that."""
    try:
        with pq.ParquetFile(file.shown) as opened:
            names = _names(opened.schema_arrow, columns, file)
            rows, done = max(opened.metadata.num_rows, 1), 0
            for batch in opened.iter_batches(_rows_at_once(opened.metadata), columns=names):
                yield from _pieces(batch, done, columns, file)
                done += batch.num_rows
                progress(file.size * done // rows)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise BadInput(f"{file.shown}: cannot be read as Parquet: {reason}") from None


def _rows_at_once(metadata: pq.FileMetaData) -> int:
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    largest = max((group.total_byte_size / max(group.num_rows, 1) for group in groups), default=1)
    return max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / max(largest, 1))))


def _names(schema: pa.Schema, columns: Columns, file: ImportFile) -> list[str] | None:
    """The columns to read; None: all."""
    if columns.as_json:
        return None
    if columns.body not in schema.names:
        raise BadInput(
            f"{file.shown}: has no column '{columns.body}'", hint="--body COLUMN names another, --json takes whole rows"
        )
    wanted = {columns.body, columns.key, *_TAKEN, *_OF_EXPORT}
    return [name for name in schema.names if name in wanted]


def _pieces(batch: pa.RecordBatch, before: int, columns: Columns, file: ImportFile) -> Iterator[Piece]:
    first_row = before + 1
    if columns.as_json:
        bodies = pa.array([_json(row) for row in batch.to_pylist()], pa.binary())
        places = range(first_row, first_row + batch.num_rows)
        yield Piece(None, places, _outgoing(batch, bodies, columns, file, first_row))
        return
    erased, bodies = _flags(batch, "erased"), batch.column(columns.body)
    closed = pc.and_(bodies.is_null(), pc.and_not(_flags(batch, "encrypted"), erased))
    if pc.any(closed).as_py():
        row = first_row + pc.index(closed, True).as_py()
        hint = "hbuf-export --identity decrypts it"
        raise BadInput(f"{file.shown}: row {row}: the message is encrypted", hint=hint)
    # With empty bodies, so that the others can be told by their rows; they are left out below.
    bodies = pc.if_else(erased, pa.scalar(b"").cast(bodies.type), bodies) if pc.any(erased).as_py() else bodies
    outgoing = _outgoing(batch, bodies, columns, file, first_row)
    kept = np.flatnonzero(~np.asarray(erased))
    for start, end, source in _runs(batch, file):
        rows = kept[np.searchsorted(kept, start) : np.searchsorted(kept, end)]
        numbers = np.asarray(batch.column("seq").cast(pa.int64()))[rows] if source is not None else rows + first_row
        part = outgoing if len(rows) == batch.num_rows else outgoing.only(rows.tolist())
        yield Piece(source, numbers.tolist(), part, end - start - len(rows))


def _outgoing(batch: pa.RecordBatch, bodies: pa.Array, columns: Columns, file: ImportFile, first_row: int) -> Outgoing:
    names = batch.schema.names
    made = {"body": bodies}
    if columns.key in names:
        key = batch.column(columns.key)
        made["key"] = key.cast(pa.string()) if pa.types.is_integer(key.type) else key
    if not columns.as_json:
        made |= {name: batch.column(name) for name in _TAKEN if name in names}
    messages = pa.RecordBatch.from_pydict(made)
    try:
        check_columns(messages.schema)
        return outgoing_of(messages, first_row=first_row)
    except HbufError as error:
        raise BadInput(f"{file.shown}: {error.message}", hint=error.hint) from None


def _flags(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name in batch.schema.names and pa.types.is_boolean(batch.schema.field(name).type):
        return batch.column(name).fill_null(False)
    return pa.array(np.zeros(batch.num_rows, bool))


def _runs(batch: pa.RecordBatch, file: ImportFile) -> Iterator[tuple[int, int, Source | None]]:
    """Rows that follow each other and were in the same buffer."""
    names, count = batch.schema.names, batch.num_rows
    if "seq" not in names or not pa.types.is_integer(batch.schema.field("seq").type) or batch.column("seq").null_count:
        yield 0, count, None
    elif "tenant" in names and "buffer" in names:
        sources = list(zip(batch.column("tenant").to_pylist(), batch.column("buffer").to_pylist(), strict=True))
        starts = [i for i in range(count) if i == 0 or sources[i] != sources[i - 1]]
        for start, end in zip(starts, [*starts[1:], count], strict=True):
            tenant, buffer = sources[start]
            yield start, end, (tenant, buffer) if isinstance(tenant, str) and isinstance(buffer, str) else None
    else:
        yield 0, count, file.source


def _json(row: dict[str, Any]) -> bytes:
    try:
        return _encoded(row)
    except ValueError:
        return _encoded(_finite(row))


def _encoded(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False).encode()


def _finite(value: Any) -> Any:
    """The same without the numbers that JSON does not have, which are null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def _plain(value: Any) -> Any:
    """What JSON has no word for: bytes as text or in base64, times as RFC 3339 has them, other things as text."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
