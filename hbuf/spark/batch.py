"""Reading a DataFrame: what there is when the query is planned, once."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from hbuf.arrow.wanted import Wanted
from hbuf.spark.inputs import Input, find_inputs
from hbuf.spark.options import ReadOptions
from hbuf.spark.planning import Range, place_at, ranges_between, tasks_of
from hbuf.spark.pushdown import Bounds, bounds_of
from hbuf.spark.task import read_ranges
from hbuf.spark.telling import telling
from hbuf.spark.worker import spare_waiting
from hbuf.store.reader import Reader


@dataclass
class Part(InputPartition):
    """What one task reads, and of what: pushed filters may have narrowed it."""

    ranges: Sequence[Range]
    wanted: Wanted


class BatchReader(DataSourceReader):
    def __init__(self, columns: Sequence[str], options: ReadOptions) -> None:
        self._columns = columns
        self._options = options
        self._bounds = Bounds()

    def __setstate__(self, state: dict[str, object]) -> None:
        """On a worker, for a task."""
        self.__dict__.update(state)
        spare_waiting()

    @telling()
    def partitions(self) -> list[InputPartition]:
        wanted = self._wanted()
        ranges = (each for one in find_inputs(self._options.paths) for each in self._ranges(one))
        return [Part(task, wanted) for task in tasks_of(ranges, self._options.split_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark asks for one partition without a value where there is none.
        if isinstance(partition, Part):
            options = replace(self._options, wanted=partition.wanted)
            with telling():
                yield from read_ranges(partition.ranges, self._columns, options)

    def _wanted(self) -> Wanted:
        given, pushed = self._options.wanted, self._bounds.keys
        if pushed is None:
            return given
        return replace(given, keys=pushed if given.keys is None else given.keys & pushed)

    def _ranges(self, one: Input) -> Iterator[Range]:
        bounds, options = self._bounds, self._options
        directory = one.directory()
        if bounds.buffers is not None and directory.name not in bounds.buffers:
            return
        if bounds.tenants is not None and directory.tenant not in bounds.tenants:
            return
        with Reader(directory) as reader:
            start = reader.resolve(place_at(options.start))
            end = reader.end_seq if options.end is None else min(reader.resolve(place_at(options.end)), reader.end_seq)
            if bounds.first_seq is not None:
                start = max(start, bounds.first_seq)
            if bounds.last_seq is not None:
                end = min(end, bounds.last_seq + 1)
            if bounds.first_us is not None:
                start = max(start, reader.first_at(bounds.first_us))
            if bounds.last_us is not None:
                end = min(end, reader.first_at(bounds.last_us + 1))
            yield from ranges_between(one, reader, start, end)


class PushdownReader(BatchReader):
    """For where Spark pushes filters down: it refuses any reader that could take some while that is switched off.

    Only where the user asks for it with `pushdown`, too: Spark 4.3 keeps what one query of a DataFrame pushed, and
    reads no more than that for the next query, or for another branch of the same one.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        self._bounds = bounds_of(filters)
        return filters


def reader_class(options: ReadOptions) -> type[BatchReader]:
    """Which of the two is asked for. Only the worker that pushes filters down has loaded the module that does it."""
    pushes = "pyspark.sql.worker.data_source_pushdown_filters"
    asked = pushes in sys.modules or getattr(sys.modules["__main__"].__spec__, "name", None) == pushes
    return PushdownReader if asked and options.pushdown else BatchReader
