"""What one task reads: ranges of messages, as Arrow batches. It runs on the workers.

Plain segments are read without pynacl and blake3: they are imported where something is decrypted or hashed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from hbuf.arrow.columns import SCHEMA
from hbuf.arrow.reading import ColumnReader
from hbuf.errors import Damaged, HbufError, NotFound, TryLater
from hbuf.format.keys import parse_key_file
from hbuf.spark.inputs import Input
from hbuf.spark.options import CORRUPT, ReadOptions
from hbuf.spark.planning import Range
from hbuf.store.data_keys import Identity
from hbuf.store.opener import Opener
from hbuf.store.reader import Reader


class DataLoss(NotFound):
    """Messages that were to be read are gone: retired, or lost with a part of the buffer."""


def read_ranges(ranges: Sequence[Range], columns: Sequence[str], options: ReadOptions) -> Iterator[pa.RecordBatch]:
    reader: Reader | None = None
    try:
        for each in ranges:
            if reader is None or str(reader.directory.path) != each.path:
                if reader is not None:
                    reader.close()
                reader = Reader(Input(each.path, each.loose).directory())
            yield from _Task(reader, columns, options).batches(each)
    finally:
        if reader is not None:
            reader.close()


class _Task:
    def __init__(self, reader: Reader, columns: Sequence[str], options: ReadOptions) -> None:
        self._reader = reader
        self._columns = columns
        self._options = options
        self._unopened: list[HbufError] = []

    def batches(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        reader, options = self._reader, self._options
        if reader.end_seq < wanted.end:
            raise TryLater(
                f"{reader.directory.shown}: message {wanted.end - 1} cannot be seen here yet; the last is "
                f"{reader.end_seq - 1}",
                hint="a network file system may be behind, or the buffer was cut back",
            )
        names = [name for name in self._columns if name != CORRUPT]
        # Where all columns are of what is damaged, rows are counted by another.
        source = ColumnReader(reader, names or ["seq"], options.wanted, self._opener())
        for batch in source.batches(wanted.start, wanted.end):
            self._check(wanted)
            yield self._complete(batch)
        self._check(wanted)
        if options.mode == "PERMISSIVE":
            yield from self._corrupt_rows(wanted)

    def _opener(self) -> Opener | None:
        if self._options.identity is None:
            return None
        return Opener(self._reader, [identity_at(self._options.identity)], self._unopened.append)

    def _check(self, wanted: Range) -> None:
        """Raises what is not to be passed over."""
        reader, options = self._reader, self._options
        if options.fail_on_data_loss and reader.retired_seq >= wanted.start:
            raise DataLoss(
                f"{reader.directory.shown}: messages {wanted.start} to {reader.retired_seq} were retired before they "
                "were read",
                hint="failOnDataLoss=false passes over them",
            )
        if options.mode != "FAILFAST":
            return
        for _, reason in self._damage(wanted):
            raise Damaged(reason, hint="mode=PERMISSIVE or DROPMALFORMED reads the rest")
        if self._unopened:
            raise self._unopened[0]

    def _damage(self, wanted: Range) -> list[tuple[int | None, str]]:
        """What is damaged in a range: its number where that is known, and its place with the reason.

        What has no number is where the one behind the message before it would be: one range tells of it.
        """
        reader = self._reader
        view = reader.view(reader.segment_of(wanted.start))
        shown = reader.directory.segment_shown(view.first)
        found: list[tuple[int | None, str]] = []
        for (first, at), reason in sorted(reader.damage.items()):
            seq = reader.damaged_seqs.get((first, at))
            place = view.number_at(at) if seq is None else seq
            if first == view.first and wanted.start <= place < wanted.end:
                found.append((seq, f"{shown}: byte {at}: {reason}"))
        missing = max(view.end_seq, wanted.start)
        if missing < wanted.end and not found and not wanted.loose:  # loose segments need not follow each other
            found.append((missing, f"{shown}: messages {missing} to {wanted.end - 1} should follow, and are not there"))
        return found

    def _corrupt_rows(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        rows = self._damage(wanted)
        rows += [(error.seq, error.message) for error in self._unopened]
        if not rows:
            return
        directory = self._reader.directory
        values: dict[str, list[object]] = {
            "tenant": [directory.tenant] * len(rows),
            "buffer": [directory.name] * len(rows),
            "seq": [seq for seq, _ in rows],
            CORRUPT: [reason for _, reason in rows],
        }
        nothing: list[object] = [None] * len(rows)
        yield pa.RecordBatch.from_arrays(
            [pa.array(values.get(name, nothing), _type(name)) for name in self._columns], schema=schema(self._columns)
        )

    def _complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if CORRUPT not in self._columns:
            return batch
        columns = [
            pa.nulls(batch.num_rows, pa.string()) if name == CORRUPT else batch.column(name) for name in self._columns
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema(self._columns))


def schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, _type(name)) for name in columns])


def _type(name: str) -> pa.DataType:
    return pa.string() if name == CORRUPT else SCHEMA.field(name).type


def identity_at(path: str) -> Identity:
    """A key file on this machine, or one that was sent to the workers with `SparkContext.addFile`.

    Spark keeps what was sent in a directory of its own that nobody else can enter, and does not keep its mode.
    """
    if Path(path).exists():
        return Identity(Path(path))
    from pyspark import SparkFiles

    sent = Path(SparkFiles.get(path))
    if not sent.exists():
        raise NotFound(f"{path}: there is no such key on this worker, and no such Spark file")
    return Identity(sent, parse_key_file(sent.read_bytes()))
