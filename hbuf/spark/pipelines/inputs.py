"""The buffers that an input means now, and how far they reach. It reads their indexes, and no message."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from hbuf.errors import HbufError, NotFound
from hbuf.format.places import parse_place
from hbuf.spark.inputs import find_inputs
from hbuf.spark.pipelines.model import StageInput
from hbuf.store.directory import BufferDirectory
from hbuf.store.reader import Reader


@dataclass(frozen=True, slots=True)
class Extent:
    """The numbers of a buffer: the first that is there, and one more than the last."""

    first: int
    end: int


def found_buffers(one: StageInput) -> list[BufferDirectory]:
    """What there is of an input now, found as the source finds it."""
    try:
        return [found.directory() for found in find_inputs([one.path])]
    except NotFound:
        return []


def name_of(directory: BufferDirectory) -> str:
    """As the source's offsets name it."""
    return f"{directory.tenant}/{directory.name}"


def extents(inputs: Iterable[StageInput]) -> dict[str, Extent]:
    """The extent of every buffer of some inputs. One that goes or comes meanwhile is there the next time."""
    found = {}
    for one in inputs:
        for directory in found_buffers(one):
            try:
                with Reader(directory) as reader:
                    found[name_of(directory)] = Extent(reader.first_seq, reader.end_seq)
            except HbufError:
                continue  # the stage that reads it says what is the matter
    return found


def settled(inputs: Iterable[StageInput], place: str) -> dict[str, int]:
    """What a place means now in every buffer of some inputs: a number that stays the same from then on."""
    parsed = parse_place(place, time.time_ns() // 1000)
    numbers = {}
    for one in inputs:
        for directory in found_buffers(one):
            with Reader(directory) as reader:
                numbers[name_of(directory)] = min(max(reader.resolve(parsed), reader.first_seq), reader.end_seq)
    return numbers
