"""Writing to a buffer from Spark: tasks stage their rows, the driver appends them, every row once.

The order in the buffer: by batch, then by partition, then as the rows are in their partition.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from hbuf.errors import HbufError, UsageError
from hbuf.format.fields import encode_producer
from hbuf.spark.delivery import MOST_BATCHES
from hbuf.spark.staging import StagedFile
from hbuf.spark.target import Target, target_in_directory, target_of

# Spark tells a task which query and batch it works for in these properties, and in no other way.
QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What a task did: for which sender and batch, and its file if it had rows."""

    sender: str
    batch: int
    partition: int
    file: StagedFile | None


class HbufStreamWriter(DataSourceStreamArrowWriter):
    """The query is the producer, and its batches are numbered by Spark: one that comes again is found in the log."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        query, batch = _task_property(QUERY_PROPERTY), int(_task_property(BATCH_PROPERTY))
        return _stage(self._target, _sender_of(query), batch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = _staged(messages)
        if not staged:
            return  # nothing was there to do
        with self._target.telling():
            sender = _only_sender(staged, batchId)
            with self._target.delivery(sender, encode_producer(sender)) as delivery:
                delivery.deliver(batchId, _files(staged))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _drop(self._target, _staged(messages))


class HbufWriter(DataSourceArrowWriter):
    """A write of its own, or batch `batch` of producer `producer`: then writing it again stores nothing twice."""

    def __init__(self, target: Target, producer: str | None, batch: int) -> None:
        self._target = target
        self._producer = producer
        self._batch = batch
        self._sender = producer if producer is not None else f"write {uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return _stage(self._target, self._sender, self._batch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        producer = encode_producer(self._producer) if self._producer is not None else None
        with self._target.telling(), self._target.delivery(self._sender, producer) as delivery:
            delivery.deliver(self._batch, _files(_staged(messages)), whole=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _drop(self._target, _staged(messages))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> HbufWriter:
    target = target_of(options, schema, overwrite)
    with target.telling():
        producer, number = options.get("producer"), options.get("batch")
        if (producer is None) != (number is None):
            raise UsageError("the options producer and batch come together")
        if producer is None or number is None:
            return HbufWriter(target, None, 0)
        encode_producer(producer)
        if not (number.isascii() and number.isdigit() and int(number) < MOST_BATCHES):
            raise UsageError(f"option batch: '{number}' is not a number from 0 to {MOST_BATCHES - 1}")
        return HbufWriter(target, producer, int(number))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> HbufStreamWriter:
    target = target_of(options, schema, overwrite)
    with target.telling():
        if "producer" in options or "batch" in options:
            raise UsageError("the options producer and batch are not for a stream: it has its own")
    return HbufStreamWriter(target)


def finish_stream(path: str, options: Mapping[str, str], query: str) -> None:
    """What a query had begun to append is stored, for one that nobody will start again."""
    target, sender = target_in_directory(path, options), _sender_of(query)
    producer = encode_producer(sender)
    with target.delivery(sender, producer) as delivery:
        delivery.finish(producer)


def _sender_of(query: str) -> str:
    return f"spark-{query}"


def _stage(target: Target, sender: str, batch: int, batches: Iterator[pa.RecordBatch]) -> Staged:
    partition = _task().partitionId()
    with target.telling(f"partition {partition}: "):
        file = target.staging_of(sender).stage(batch, partition, batches, target.limits)
    return Staged(sender, batch, partition, file)


def _drop(target: Target, staged: Sequence[Staged]) -> None:
    """Removes what nobody will append. What was appended stays, and so does what a manifest names."""
    for each in staged:
        if each.file is not None:
            with target.telling():
                target.staging_of(each.sender).drop(each.batch, each.file.name)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return sorted((each for each in messages if isinstance(each, Staged)), key=lambda staged: staged.partition)


def _files(staged: Sequence[Staged]) -> list[StagedFile]:
    return [each.file for each in staged if each.file is not None]


def _only_sender(staged: Sequence[Staged], batch: int) -> str:
    found = {(each.sender, each.batch) for each in staged}
    if len(found) != 1 or staged[0].batch != batch:
        raise HbufError(f"Spark commits batch {batch}, and its tasks worked for {sorted(found)}")
    return staged[0].sender


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise HbufError("hbuf: a task of Spark writes, and this is none")
    return task


def _task_property(name: str) -> str:
    value = _task().getLocalProperty(name)
    if value is None:
        raise HbufError(f"hbuf: this version of Spark does not tell its tasks {name}: nothing was written")
    return value
