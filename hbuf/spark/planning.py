"""Which messages each task reads: segments are cut and put together so that the tasks are alike in size."""

from __future__ import annotations

import bisect
import itertools
import math
import os
import time
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

from hbuf.format.places import Place, parse_place
from hbuf.spark.inputs import Input
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import IndexFile, opened_index
from hbuf.store.reader import Reader

# Less is not worth a task of its own: it takes as long as Spark takes for a task.
_WORTH_A_TASK_BYTES = 32 * 1024**2


class Range(NamedTuple):
    """Messages `start` up to but not `end`, all of the segment whose first is `first`."""

    path: str
    loose: bool
    first: int
    start: int
    end: int
    bytes: int


def place_at(text: str, now_us: int | None = None) -> Place:
    return parse_place(text, time.time_ns() // 1000 if now_us is None else now_us)


def ranges_between(one: Input, reader: Reader, start: int, end: int) -> Iterator[Range]:
    """The messages `start` up to but not `end` of an input, a range for each segment."""
    firsts = reader.segment_starts()
    for first, following in zip(firsts, [*firsts[1:], max(reader.end_seq, firsts[-1])], strict=True):
        low, high = max(start, first), min(end, following)
        if low < high and (one.segments is None or first in one.segments):
            length = _bytes_between(reader.directory, first, low, high)
            yield Range(one.path, one.loose, first, low, high, length)


def tasks_of(ranges: Iterable[Range], split_bytes: int) -> list[list[Range]]:
    """The ranges of each task, in order. None has much more than `split_bytes`."""
    whole = list(ranges)
    size = task_bytes(sum(each.bytes for each in whole), split_bytes, len(os.sched_getaffinity(0)))
    placed: list[tuple[int, Range]] = []
    before = 0
    for each in whole:
        at = before
        for part in _cut(each, size, before):
            placed.append((int((at + part.bytes / 2) // size), part))
            at += part.bytes
        before += each.bytes
    return [[part for _, part in task] for _, task in itertools.groupby(placed, itemgetter(0))]


def task_bytes(total_bytes: int, split_bytes: int, processors: int) -> float:
    """How much each task reads where all are busy to the end.

    Spark does not tell a source in Python how many can run at once. The processors of the driver's machine are right
    on one machine, and do no harm in a cluster: tasks become smaller, by less than half, and never tiny.
    """
    tasks = math.ceil(total_bytes / split_bytes)
    if tasks > processors:
        tasks = math.ceil(tasks / processors) * processors
    else:
        tasks = max(tasks, min(processors, total_bytes // _WORTH_A_TASK_BYTES), 1)
    return max(total_bytes, 1) / tasks


def _cut(whole: Range, size: float, before: int) -> Iterator[Range]:
    """A range in parts where tasks begin in it, with `before` bytes in ranges before it.

    A task may be a bit larger or smaller, so that a segment is not cut for little. It is cut by its index: without one
    it is read from its first byte anyway.
    """
    slack = size / 8
    low, high = math.ceil((before + slack) / size), math.ceil((before + whole.bytes - slack) / size)
    places = [round(i * size) - before for i in range(low, high)]
    if places:
        with opened_index(Input(whole.path, whole.loose).directory().index(whole.first), whole.first) as known:
            if known is not None and whole.end - whole.first <= known.count:
                yield from _parts(whole, places, known)
                return
    yield whole


def _parts(whole: Range, places: list[int], known: IndexFile) -> Iterator[Range]:
    offset = known.entry(whole.start - whole.first).offset
    numbers = (_number_at(known, whole.first, offset + place) for place in places)
    # The index may be wrong: parts that lie over each other would give messages twice.
    bounds = sorted(min(max(number, whole.start), whole.end) for number in numbers)
    lengths = itertools.pairwise([0, *places, whole.bytes])
    for (start, end), (low, high) in zip(itertools.pairwise([whole.start, *bounds, whole.end]), lengths, strict=True):
        if start < end:
            yield whole._replace(start=start, end=end, bytes=high - low)


def _bytes_between(directory: BufferDirectory, first: int, start: int, end: int) -> int:
    """By the index of the segment; all that is on disk without one."""
    with opened_index(directory.index(first), first) as known:
        if known is not None and end - first <= known.count:
            return max(known.entry(end - 1 - first).end - known.entry(start - first).offset, 0)
    try:
        return os.stat(directory.segment_file(first)).st_size
    except FileNotFoundError:
        return 0  # retired meanwhile


def _number_at(known: IndexFile, first: int, offset: int) -> int:
    """The first number whose record begins at `offset` or later."""
    return first + bisect.bisect_left(range(known.count), offset, key=lambda i: known.entry(i).offset)
