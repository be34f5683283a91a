"""Whether a stream stored what it must: each input message once, with the batch that Spark's own log has it in.

Each check returns what is wrong, a line each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

import hbuf
from hbuf.format.message import Message
from soak.bodies import body_of
from soak.spark_feeder import key_of

_MOST_FAULTS = 20

Source = tuple[str, int]  # a buffer, and the number of a message of it


class Told(NamedTuple):
    """What a stored message tells of itself."""

    batch: int
    partition: int
    row: int
    attempt: str
    source: Source
    body: bytes
    key: str | None


def told_of(message: Message) -> Told:
    head, _, body = message.body.partition(b"\n")
    told = json.loads(head)
    source = (told["buffer"], told["seq"])
    return Told(told["batch"], told["partition"], told["row"], told["attempt"], source, body, message.key)


def check_stream(folder: Path) -> list[str]:
    stored = [told_of(message) for message in hbuf.open(folder / "out").read()]
    inputs = {path.name: _check_input(path) for path in sorted((folder / "in").iterdir())}
    faults = [fault for found in inputs.values() for fault in found[1]]
    wanted = batches_of(folder / "checkpoint")
    faults += check_batches(stored, wanted)
    faults += check_contents(stored)
    for name, (count, _) in inputs.items():
        if wanted and wanted[-1].get(name, 1) != count + 1:
            faults.append(f"buffer {name} has {count} messages, and the stream ended at {wanted[-1].get(name)}")
    return faults[:_MOST_FAULTS]


def batches_of(checkpoint: Path) -> list[dict[str, int]]:
    """For each batch, up to where it read: the next number by buffer."""
    logged = sorted((path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()), key=_number)
    # A version, what Spark notes, and the offset of each source.
    offsets = [json.loads(path.read_text().splitlines()[2]) for path in logged]
    return [{name.rpartition("/")[2]: end for name, end in each.items()} for each in offsets]


def check_batches(stored: Sequence[Told], wanted: Sequence[Mapping[str, int]]) -> list[str]:
    """The order is by batch, partition and row; and a batch has what Spark's log says, of one computation."""
    faults = []
    for one, next_one in pairwise(stored):
        if one[:3] >= next_one[:3]:
            faults.append(f"{next_one[:3]} comes after {one[:3]} (batch, partition, row)")
    for (batch, partition), group in groupby(stored, key=lambda told: told[:2]):
        rows = list(group)
        if [told.row for told in rows] != list(range(len(rows))):
            faults.append(f"batch {batch}, partition {partition}: its rows are not those from 0 on")
        if len({told.attempt for told in rows}) != 1:
            faults.append(f"batch {batch}, partition {partition}: is mixed from more than one computation")
    found: dict[int, list[Source]] = {}
    for told in stored:
        found.setdefault(told.batch, []).append(told.source)
    before: Mapping[str, int] = {}
    for batch, ends in enumerate(wanted):
        faults += _check_batch(batch, sorted(found.pop(batch, [])), sorted(_between(before, ends)))
        before = ends
    return faults + [f"there is no batch {batch}, and messages of it are stored" for batch in found]


def check_contents(stored: Sequence[Told]) -> list[str]:
    """Each is what was sent to that buffer as that message."""
    faults = []
    for told in stored:
        name, seq = told.source
        if told.body != body_of(name, seq - 1, lines=False) or told.key != key_of(seq - 1):
            faults.append(f"message {seq} of {name} is stored as {told.key} {told.body[:60]!r}")
    return faults


def _check_input(path: Path) -> tuple[int, list[str]]:
    """How many messages there are. The feeder is not what is tested: this only says that it did its part."""
    count, faults = 0, []
    for message in hbuf.open(path).read():
        count += 1
        if message.seq != count or message.body != body_of(path.name, count - 1, lines=False):
            faults.append(f"the input {path.name} has another message at {count}")
    return count, faults


def _check_batch(batch: int, found: Sequence[Source], wanted: Sequence[Source]) -> list[str]:
    if found == wanted:
        return []
    twice = [source for source, same in pairwise(found) if source == same]
    missing, more = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    return [f"batch {batch}: missing {missing[:5]}, twice {twice[:5]}, of others {more[:5]}"]


def _between(before: Mapping[str, int], ends: Mapping[str, int]) -> Iterator[Source]:
    for name, end in ends.items():
        yield from ((name, seq) for seq in range(before.get(name, 1), end))


def _number(path: Path) -> int:
    return int(path.name)
