"""Whether a buffer of the daemon's holds what was answered: by whoever sent it, and no matter how often it was killed.

Each check returns what is wrong, a line each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hbuf.format.message import Message
from soak.bodies import body_of, parse_body
from soak.check import Receipts

_MOST_FAULTS = 20


@dataclass(slots=True)
class Sent:
    """What one client did: how many messages it sent, how many make a request, what it was answered."""

    name: str
    unit: int
    lines: bool
    again: bool  # whether it sent each until it was answered
    count: int = 0
    receipts: Receipts = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)  # what it was told is not stored


def check_sent(stored: Sequence[Message], everybody: Sequence[Sent]) -> list[str]:
    """Each message was sent by a client, each client's are there in its order and once, and no answer is broken."""
    by_name = {sent.name: sent for sent in everybody}
    places: dict[str, list[tuple[int, int]]] = {sent.name: [] for sent in everybody}
    faults = []
    for place, message in enumerate(stored, 1):
        name = parse_body(message.body)
        sent = by_name.get(name[0]) if name else None
        if message.seq != place:
            faults.append(f"message {message.seq} is at place {place}")
        if name is None or sent is None or message.body != body_of(*name, lines=sent.lines):
            faults.append(f"message {message.seq} was not sent by anybody: {message.body[:60]!r}")
        else:
            places[name[0]].append((name[1], message.seq))
    for sent in everybody:
        faults += _check_order(sent, places[sent.name])
        faults += _check_requests(sent, places[sent.name])
        faults += _check_answers(sent, stored, dict(places[sent.name]))
    return faults[:_MOST_FAULTS]


def _check_order(sent: Sent, places: list[tuple[int, int]]) -> list[str]:
    found = [k for k, _ in places]
    faults = [
        f"client {sent.name}: its message {k} comes behind {before}, twice or too late"
        for before, k in pairwise(found)
        if k <= before
    ]
    if sent.again and not faults and found != list(range(sent.count)):
        missing = sorted(set(range(sent.count)) - set(found)) or found[sent.count :]
        faults.append(f"client {sent.name}: sent {sent.count} until they were answered, and has not {missing[:5]}")
    return faults


def _check_requests(sent: Sent, places: list[tuple[int, int]]) -> list[str]:
    """All messages of a request are there, one behind the other, or none is."""
    by_request: dict[int, list[tuple[int, int]]] = {}
    for k, seq in places:
        by_request.setdefault(k // sent.unit, []).append((k, seq))
    return [
        f"client {sent.name}: of request {request} there is {found}"
        for request, found in by_request.items()
        if found != [(request * sent.unit + i, found[0][1] + i) for i in range(sent.unit)]
    ]


def _check_answers(sent: Sent, stored: Sequence[Message], seqs: dict[int, int]) -> list[str]:
    faults = []
    for k, (seq, record_id) in sent.receipts.items():
        if seqs.get(k) != seq:
            faults.append(f"client {sent.name}: its message {k} was answered as {seq}, and is at {seqs.get(k)}")
        elif stored[seq - 1].id != record_id:
            faults.append(f"client {sent.name}: its message {k} was answered with another id")
    faults += [
        f"client {sent.name}: its message {k} was refused, and is stored" for k in sorted(sent.refused & seqs.keys())
    ]
    return faults
