"""Exporting as Parquet, from record batches, in this process. Memory holds one row group at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hbuf.arrow.reading import ALL_COLUMNS, ColumnReader, schema_of
from hbuf.arrow.wanted import Wanted
from hbuf.ops.export import Cut, Refusals, Selection, Tally, Watch
from hbuf.ops.export_directory import DAY_US, By, ExportDirectory, NewFile, Partitions
from hbuf.store.opener import Opener
from hbuf.store.reader import Reader

SUFFIX = ".parquet"
# A row group is what a reader takes at once: large enough for columns to pay, small enough to be held.
_GROUP_BYTES = 64 * 1024**2
_GROUP_ROWS = 1_000_000
# Where values come again and again, each is stored once; an id or a body hardly ever does.
_DICTIONARIES = ["tenant", "buffer", "key", "tags.list.element"]
_STATISTICS = ["tenant", "buffer", "seq", "time", "key"]


def columns_in_files(by: By) -> list[str]:
    """As Hive has it: what the directory's name tells is not in its files."""
    return [name for name in ALL_COLUMNS if by == "day" or name not in ("tenant", "buffer")]


class _ParquetFile:
    def __init__(self, file: NewFile, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(
            pa.PythonFile(file, mode="w"),
            schema,
            compression="zstd",
            use_dictionary=_DICTIONARIES,
            write_statistics=[name for name in _STATISTICS if name in schema.names],
        )
        self._pending: list[pa.RecordBatch] = []
        self._bytes = 0
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._pending.append(rows)
        self._bytes += rows.nbytes
        self._rows += rows.num_rows
        if self._bytes >= _GROUP_BYTES or self._rows >= _GROUP_ROWS:
            self._write()

    def finish(self) -> None:
        self._write()
        self._writer.close()

    def _write(self) -> None:
        if self._pending:
            self._writer.write_table(pa.Table.from_batches(self._pending), row_group_size=_GROUP_ROWS)
        self._pending, self._bytes, self._rows = [], 0, 0


def export_parquet(
    cuts: Sequence[Cut], selection: Selection, target: ExportDirectory, by: By, watch: Watch
) -> list[Tally]:
    tallies = []
    names = columns_in_files(by)
    schema = schema_of(names)
    for place, cut in enumerate(cuts):
        tally = Tally(*cut.source)
        parts = Partitions(target, by, SUFFIX, place, cut.source, lambda file: _ParquetFile(file, schema))
        with Reader(cut.directory) as reader, parts:
            refusals = Refusals(reader, skip_damaged=selection.skip_damaged)
            opener = Opener(reader, selection.identities, refusals.notice) if selection.identities else None
            columns = ColumnReader(reader, names, wanted_of(selection), opener)
            for batch in columns.batches(cut.start, cut.end):
                refusals.check()
                for day, rows in _days(batch):
                    parts.add(day, rows, rows.num_rows)
                count(tally, batch)
                watch.reached(cut, batch.column("seq")[-1].as_py() + 1)
            refusals.finish(tally, watch.notice)
        tallies.append(tally)
    return tallies


def wanted_of(selection: Selection) -> Wanted:
    return Wanted(frozenset([selection.key]) if selection.key is not None else None, selection.tag)


def count(tally: Tally, batch: pa.RecordBatch) -> None:
    seqs, erased = batch.column("seq"), batch.column("erased")
    tally.add(batch.num_rows, seqs[0].as_py(), seqs[-1].as_py(), batch.column("id")[-1].as_py())
    tally.erased += pc.sum(erased).as_py()
    tally.encrypted += pc.sum(pc.and_not(batch.column("encrypted"), erased)).as_py()


def _days(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batch cut where a day ends."""
    days = batch.column("time").cast(pa.int64()).to_numpy() // DAY_US
    starts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), batch.num_rows]
    for start, end in pairwise(starts):
        yield int(days[start]), batch.slice(start, end - start)
