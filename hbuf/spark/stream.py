"""Reading a stream: offsets are the next number of each buffer, `{"tenant/buffer": 42}`.

A buffer that appears later joins with its first message. One place decides each thing once: what is asked of it twice,
as Spark does with the first offset, it answers twice the same.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from hbuf.errors import TryLater, UsageError
from hbuf.spark.inputs import Input, find_inputs
from hbuf.spark.options import ReadOptions
from hbuf.spark.planning import Range, place_at, ranges_between, tasks_of
from hbuf.spark.task import DataLoss, read_ranges
from hbuf.spark.telling import telling
from hbuf.spark.worker import spare_waiting
from hbuf.store.reader import Reader

Offsets = dict[str, int]


@dataclass
class Part(InputPartition):
    ranges: Sequence[Range]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, columns: Sequence[str], options: ReadOptions) -> None:
        if options.end is not None:
            raise UsageError("a stream has no end", hint="leave out the option 'to', or use spark.read")
        self._columns = columns
        self._options = options
        self._readers: dict[str, tuple[Input, Reader]] = {}  # by the buffer's name in offsets
        self._first: Offsets | None = None
        self._target: Offsets | None = None  # of Trigger.AvailableNow: nothing beyond is read

    def __getstate__(self) -> dict[str, object]:
        """Tasks get the columns and the options. What is open here stays here."""
        return {"_columns": self._columns, "_options": self._options, "_readers": {}, "_first": None, "_target": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        """On a worker, for a task."""
        self.__dict__.update(state)
        spare_waiting()

    # What Spark asks on the driver

    @telling()
    def initialOffset(self) -> Offsets:  # noqa: N802  # Spark's name, as those below
        if self._first is None:
            self._first = self._starts(self._look())
        return self._first

    @telling()
    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> Offsets:  # noqa: N802
        self._look()
        ends = self._ends(start)
        if self._target is not None:
            ends = {name: min(end, self._target.get(name, start.get(name, 0))) for name, end in ends.items()}
            ends = {name: end for name, end in ends.items() if name in start or end}
        if not isinstance(limit, ReadMaxRows):
            return ends
        starts = {name: self._start(name, start.get(name, 1)) for name in ends}
        return shared_fairly(starts, ends, limit.max_rows)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @telling()
    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        return {name: reader.end_seq for name, (_, reader) in self._look().items()}

    @telling()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self.reportLatestOffset()

    @telling()
    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        self._look()
        ranges = (each for name in sorted(end) for each in self._ranges(name, start.get(name), end[name]))
        return [Part(task) for task in tasks_of(ranges, self._options.split_bytes)]

    def commit(self, end: Mapping[str, int]) -> None:
        """Nothing is kept here for a batch that was read."""

    def stop(self) -> None:
        for _, reader in self._readers.values():
            reader.close()
        self._readers.clear()

    # What it asks on a worker

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Part):
            with telling():
                yield from read_ranges(partition.ranges, self._columns, self._options)

    # Buffers

    def _starts(self, buffers: Mapping[str, tuple[Input, Reader]]) -> Offsets:
        """Where reading begins: at a place of each buffer, or at the numbers that are given as in an offset."""
        if not self._options.start.startswith("{"):
            place = place_at(self._options.start)
            return {name: reader.resolve(place) for name, (_, reader) in buffers.items()}
        numbers = parse_offsets(self._options.start)
        return {name: numbers.get(name, reader.first_seq) for name, (_, reader) in buffers.items()}

    def _look(self) -> Mapping[str, tuple[Input, Reader]]:
        """The buffers that there are now, each with what it has now."""
        found: dict[str, tuple[Input, Reader]] = {}
        for one in find_inputs(self._options.paths):
            one = replace(one, segments=None)  # a stream goes on in segments that come later, compressed or not
            directory = one.directory()
            name = f"{directory.tenant}/{directory.name}"
            if name in found and found[name][0].path != one.path:
                raise UsageError(
                    f"{one.path} and {found[name][0].path} are both called {name}",
                    hint="read each in a stream of its own, and unite them",
                )
            found[name] = (one, self._reader(name, one))
        for name in self._readers.keys() - found.keys():
            self._readers[name][1].close()
        self._readers = found
        return found

    def _reader(self, name: str, one: Input) -> Reader:
        known = self._readers.get(name)
        if known is None or known[0] != one:
            if known is not None:
                known[1].close()
            return Reader(one.directory())
        with contextlib.suppress(TryLater):  # it is being written: what was seen before is what there is
            known[1].refresh()
        return known[1]

    def _start(self, name: str, number: int) -> int:
        """`number`, or the first message that is left."""
        return max(number, self._readers[name][1].first_seq) if name in self._readers else number

    def _ends(self, start: Mapping[str, int]) -> Offsets:
        ends = {name: reader.end_seq for name, (_, reader) in self._readers.items()}
        for name, number in start.items():
            if name not in ends:
                self._lost(f"{name}: is not there any more; its next message was {number}")
                ends[name] = number
            elif ends[name] < number:
                self._lost(f"{name}: ends before message {number}, which was to be read next")
        return ends

    def _ranges(self, name: str, start: int | None, end: int) -> Iterator[Range]:
        if name not in self._readers:
            return  # it is gone, and nobody minds
        one, reader = self._readers[name]
        first = reader.first_seq
        if reader.end_seq < end:  # after a restart: what was planned before is read again
            self._lost(f"{name}: messages {max(reader.end_seq, start or first)} to {end - 1} are not there any more")
        if start is not None and start < min(first, end):
            self._lost(f"{name}: messages {start} to {min(first, end) - 1} were retired before they were read")
        yield from ranges_between(one, reader, max(start or first, first), end)

    def _lost(self, line: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(line, hint="failOnDataLoss=false goes on with what there is")


def parse_offsets(text: str) -> Offsets:
    """`from` as `{"tenant/buffer": 42}` instead of a place. Buffers that it does not name begin at their first."""
    try:
        numbers = json.loads(text)
    except ValueError:
        raise UsageError(f"from: '{text}' is not JSON") from None
    if not all(type(number) is int and number > 0 for number in numbers.values()):
        raise UsageError(f"from: '{text}' is not an object of numbers from 1 on")
    return dict(numbers)


def shared_fairly(starts: Mapping[str, int], ends: Mapping[str, int], most: int) -> Offsets:
    """Ends for `most` messages in all. Those who have less than their share leave the rest of it to the others.

    What cannot be divided goes to one after the other, batch by batch: so everybody's turn comes.
    """
    chosen: Offsets = {}
    left = most
    waiting = sorted(ends, key=lambda name: ends[name] - starts[name])
    while waiting and ends[waiting[0]] - starts[waiting[0]] <= left // len(waiting):
        name = waiting.pop(0)
        chosen[name] = ends[name]
        left -= max(ends[name] - starts[name], 0)
    if waiting:
        share, rest = divmod(left, len(waiting))
        turn = sum(starts.values()) % len(waiting)
        waiting.sort()
        for i, name in enumerate(waiting[turn:] + waiting[:turn]):
            chosen[name] = starts[name] + share + (i < rest)
    return chosen
