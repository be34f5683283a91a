"""Whether a buffer holds what was acknowledged: each message once, in order, byte for byte. Nothing here disturbs.

Each check returns what is wrong, a line each. None of them believes another: a buffer whose chain is right may
still lack its end, and only the receipts tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hbuf
from hbuf.format.message import Message
from soak.bodies import body_of, parse_body

# By the message's place among those that its writer sent: number and id.
Receipts = dict[int, tuple[int, str]]
# Numbers and ids as a reader showed them.
Shown = list[tuple[int, str]]

_MOST_FAULTS = 20


@dataclass(slots=True)
class Writing:
    """What one writer did: its name, how many messages make a unit, and its receipts, life by life."""

    name: str
    unit: int
    lines: bool
    receipts: list[Receipts] = field(default_factory=list)


def check_buffer(path: Path) -> list[str]:
    """hbuf's own verdict."""
    report = hbuf.open(path).verify()
    if report.ok:
        return []
    return [*map(str, report.faults[:_MOST_FAULTS]), *(f"not checked: {what}" for what in report.not_checked)]


def stored_messages(buffer: hbuf.Buffer) -> list[Message]:
    return list(buffer.read("first"))


def check_messages(stored: Sequence[Message], writings: Sequence[Writing]) -> list[str]:
    """Every message is one that was sent, each writer's are all there up to some point, and no receipt is broken."""
    faults = [
        f"message {message.seq} is at place {place}" for place, message in enumerate(stored, 1) if message.seq != place
    ]
    places: dict[str, list[int]] = {writing.name: [] for writing in writings}
    lines = {writing.name: writing.lines for writing in writings}
    names: list[tuple[str, int] | None] = []
    for message in stored:
        name = parse_body(message.body)
        names.append(name)
        if name is None or name[0] not in places or message.body != body_of(*name, lines=lines[name[0]]):
            faults.append(f"message {message.seq} was not sent by anybody: {message.body[:60]!r}")
        else:
            places[name[0]].append(name[1])
    for writing in writings:
        faults += _check_order(writing, places[writing.name])
        for receipts in writing.receipts:
            faults += _check_receipts(writing.name, receipts, stored, names)
    return faults[:_MOST_FAULTS]


def _check_order(writing: Writing, places: list[int]) -> list[str]:
    for expected, k in enumerate(places):
        if k != expected:
            what = "twice or too late" if k < expected else f"before message {expected}"
            return [f"writer {writing.name}: its message {k} comes {what}"]
    if len(places) % writing.unit:
        return [f"writer {writing.name}: {len(places)} messages are stored, and its units have {writing.unit}"]
    return []


def _check_receipts(
    writer: str, receipts: Receipts, stored: Sequence[Message], names: Sequence[tuple[str, int] | None]
) -> list[str]:
    faults = []
    for k, (seq, record_id) in receipts.items():
        if not 0 < seq <= len(stored):
            faults.append(f"writer {writer}: its message {k} was acknowledged as {seq}, and is missing")
        elif names[seq - 1] != (writer, k):
            faults.append(f"writer {writer}: its message {k} was acknowledged as {seq}, and another is there")
        elif stored[seq - 1].id != record_id:
            faults.append(f"writer {writer}: its message {k} was acknowledged with another id")
    return faults


def check_shown(who: str, shown: Shown, stored: Sequence[Message]) -> list[str]:
    """A reader from the first message on showed a beginning of what is stored, and nothing else."""
    for (seq, record_id), message in zip(shown, stored, strict=False):
        if (seq, record_id) != (message.seq, message.id):
            return [f"{who} showed {seq} {record_id} where {message.seq} {message.id} is stored"]
    if len(shown) > len(stored):
        return [f"{who} showed {len(shown)} messages, and {len(stored)} are stored"]
    return []


def last_acknowledged(writings: Sequence[Writing]) -> int:
    """The highest number that any writer has a receipt for."""
    return max((seq for each in writings for life in each.receipts for seq, _ in life.values()), default=0)
