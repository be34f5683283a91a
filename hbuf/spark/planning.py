"""Ranges of messages for tasks to read: whole segments, several small ones together, large ones in parts."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hbuf.format.places import Place, parse_place
from hbuf.spark.inputs import Input
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import IndexFile, opened_index
from hbuf.store.reader import Reader


class Range(NamedTuple):
    """Messages `start` up to but not `end`, all of one segment."""

    path: str
    loose: bool
    start: int
    end: int
    bytes: int


def place_at(text: str, now_us: int | None = None) -> Place:
    return parse_place(text, time.time_ns() // 1000 if now_us is None else now_us)


def ranges_between(one: Input, reader: Reader, start: int, end: int, split_bytes: int) -> Iterator[Range]:
    """Ranges of the messages `start` up to but not `end` of an input."""
    directory = reader.directory
    firsts = reader.segment_starts()
    for first, following in zip(firsts, [*firsts[1:], max(reader.end_seq, firsts[-1])], strict=True):
        low, high = max(start, first), min(end, following)
        if low >= high or (one.segments is not None and first not in one.segments):
            continue
        for low_part, high_part, length in _split(directory, first, low, high, split_bytes):
            yield Range(one.path, one.loose, low_part, high_part, length)


def _split(
    directory: BufferDirectory, first: int, start: int, end: int, split_bytes: int
) -> Iterator[tuple[int, int, int]]:
    """Parts of a segment of about `split_bytes`, by its index: without one it is read from its first byte anyway."""
    with opened_index(directory.index(first), first) as known:
        if known is None or end - first > known.count:
            yield start, end, _bytes_on_disk(directory, first)
            return
        low = known.entry(start - first).offset
        length = max(known.entry(end - 1 - first).end - low, 0)
        parts = max(min(round(length / split_bytes), end - start), 1)
        between = (_number_at(known, first, low + length * i // parts) for i in range(1, parts))
        # The index may be wrong: parts that lie over each other would give messages twice.
        bounds = sorted(min(max(number, start), end) for number in between)
        for part_start, part_end in itertools.pairwise([start, *bounds, end]):
            if part_start < part_end:
                yield part_start, part_end, length // parts


def _number_at(known: IndexFile, first: int, offset: int) -> int:
    """The first number whose record begins at `offset` or later."""
    low, high = 0, known.count
    while low < high:
        middle = (low + high) // 2
        if known.entry(middle).offset < offset:
            low = middle + 1
        else:
            high = middle
    return first + low


def _bytes_on_disk(directory: BufferDirectory, first: int) -> int:
    try:
        return os.stat(directory.segment_file(first)).st_size
    except FileNotFoundError:
        return 0  # retired meanwhile


def packed(ranges: Iterable[Range], split_bytes: int) -> list[list[Range]]:
    """Ranges for each task. One that is nearly large enough is not made nearly twice as large."""
    tasks: list[list[Range]] = []
    size = split_bytes
    for each in ranges:
        if size + each.bytes // 2 >= split_bytes:
            tasks.append([])
            size = 0
        tasks[-1].append(each)
        size += each.bytes
    return tasks
