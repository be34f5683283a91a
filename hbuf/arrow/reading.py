"""Messages of a buffer as Arrow record batches: by index in whole columns, and one by one where that cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from hbuf.arrow.block import Block, cut_block
from hbuf.arrow.columns import SCHEMA, columns_of
from hbuf.arrow.layout import lay_out
from hbuf.arrow.opened import opened_bodies
from hbuf.arrow.spans import Differs
from hbuf.arrow.wanted import EVERYTHING, Wanted
from hbuf.format.message import Message, message_of
from hbuf.store.opener import Opener
from hbuf.store.reader import Reader
from hbuf.store.view import Chunk

ALL_COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)


def schema_of(names: Sequence[str]) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in names])


class ColumnReader:
    """Reads with a `Reader`, whose `damage` and `retired_seq` tell what could not be had.

    Without `opener` the body of an encrypted message is null. With it what cannot be opened is told to the opener's
    `notice`, and left out.
    """

    def __init__(
        self,
        reader: Reader,
        names: Sequence[str] = ALL_COLUMNS,
        wanted: Wanted = EVERYTHING,
        opener: Opener | None = None,
    ) -> None:
        self._reader = reader
        self._names = names
        self._schema = schema_of(names)
        self._wanted = wanted
        self._opener = opener

    def batches(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Messages `start` up to but not `end`, in order. No batch is empty."""
        terms = self._wanted.numbers if self._wanted.by_terms else None
        for piece in self._reader.pieces(start, end, cut_block, terms):
            batch = self._in_columns(piece) if isinstance(piece, Block) else None
            if batch is None:
                batch = self._one_by_one(piece.chunk() if isinstance(piece, Block) else piece)
            if batch.num_rows:
                yield batch

    def _in_columns(self, block: Block) -> pa.RecordBatch | None:
        layout, opened = lay_out(block), None
        if layout is None:
            return None
        directory = self._reader.directory
        try:
            rows = self._wanted.rows(block, layout)
            if self._opener is not None and np.any(layout.encrypted):
                opened = opened_bodies(block, layout, rows, self._opener)
                if opened is None:
                    return None
            columns = columns_of(block, layout, rows, self._names, directory.tenant, directory.name, opened)
        except (Differs, pa.ArrowInvalid):
            return None  # a key, a tag, a header or an id is none: its message is damaged
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _one_by_one(self, chunk: Chunk) -> pa.RecordBatch:
        rows = [_row(message) for message in self._messages(chunk) if self._wanted.wants(message)]
        columns = [
            pa.array([row[ALL_COLUMNS.index(name)] for row in rows], SCHEMA.field(name).type) for name in self._names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _messages(self, chunk: Chunk) -> Iterator[Message]:
        places: Sequence[int] = [i for i in range(len(chunk.entries)) if not chunk.is_delete(i)]
        if self._opener is not None and self._opener.concerns(chunk):
            chunk, places = self._opener.open(chunk, places)
        for i in places:
            record = chunk.parse(i)
            if record is None:
                self._reader.note_damage(chunk, i)
            else:
                yield message_of(chunk.data, record, self._reader.directory.tenant, self._reader.directory.name)


def _row(message: Message) -> tuple[object, ...]:
    readable = not (message.erased or message.encrypted)
    headers = [{"name": name, "value": value} for name, value in message.headers]
    return (
        message.tenant,
        message.buffer,
        message.seq,
        message.time_us,
        message.id,
        message.key,
        message.tags,
        headers,
        message.body if readable else None,
        message.erased,
        message.encrypted,
    )
