"""Checking records against the chain: ids, numbers, times, units. It never says yes to what it did not hash."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import NamedTuple

from hbuf.format.chain import COMMITTED, COPY_LIMIT_BYTES, IDENTIFIED, ZERO_ID, Hasher, commitment
from hbuf.format.scan import Record, own_values


class Fault(NamedTuple):
    """One thing that is wrong, where, and under which heading a verifier reports it."""

    kind: str  # bytes, chain, completeness, settings, index
    at: int  # byte in the segment
    seq: int | None  # the message's number, where it can be told
    reason: str


@dataclass(slots=True)
class ChainState:
    """Where a chain stands: what the next record must follow."""

    prev: bytes = ZERO_ID
    next_seq: int = 1
    last_time: bytes = b""
    unit_done: int = 0  # of the atomic unit that is open: how many of its records came
    unit_size: int = 0  # 0 when none is open
    numbered: int = 0
    signed: bool = False  # whether a PUT announced a key
    erasable: bool | None = None  # whether every record has a salt; None: not known
    not_checked: dict[str, int] = field(default_factory=dict)


def check_records(hasher: Hasher, data: bytes, records: list[Record], state: ChainState, base: int) -> list[Fault]:
    """Checks `records` of the window `data`, which begins at `base` of its segment, and moves `state` on.

    After a mismatch it goes on from the id that the record states, so that one fault is one fault.
    """
    faults: list[Fault] = []
    view = memoryview(data)
    prev = state.prev
    next_seq = state.next_seq
    last_time = state.last_time
    erasable = state.erasable
    for record in records:
        start, head_end, fields_end, section_end, end, method, seq, time, own = record[:9]
        if record.salted == b"gone":
            commit = _commitment_of_gone(record.salt)
            _count(state, "erased messages")
        elif end - section_end <= COPY_LIMIT_BYTES:
            covered = COMMITTED % (record.salt, data[head_end:fields_end], data[section_end : end - 2])
            commit = hasher(covered).hexdigest().encode()
        else:
            commit = commitment(hasher, record.salt, data[head_end:fields_end], view[section_end : end - 2])
        stated = record.id
        if hasher(IDENTIFIED % (prev, commit, data[start:head_end])).hexdigest().encode() != stated:
            faults.append(Fault("chain", base + start, seq or None, "the id does not match what it covers"))
        prev = stated
        if erasable is not None and (record.salted is not None) != erasable:
            reason = "there is no salt" if erasable else "there is a salt, and nothing can be erased here"
            faults.append(Fault("chain", base + start, seq or None, reason))
        if time < last_time:
            faults.append(Fault("chain", base + start, seq or None, "the time is earlier than the one before"))
        else:
            last_time = time
        if seq:
            if seq != next_seq:
                reason = f"the number is {seq} where {next_seq} must follow"
                faults.append(Fault("completeness", base + start, seq, reason))
            next_seq = seq + 1
            state.numbered += 1
        if own or state.unit_size or record.sig:
            faults.extend(_unusual_faults(record, method, state, base))
    state.prev = prev
    state.next_seq = next_seq
    state.last_time = last_time
    return faults


def unfinished_unit(state: ChainState, at: int) -> list[Fault]:
    """A unit that the segment ends in the middle of."""
    if not state.unit_size:
        return []
    reason = f"an atomic unit ends after {state.unit_done} of its {state.unit_size} messages"
    return [Fault("completeness", at, state.next_seq - 1, reason)]


def unit_place(own: bytes) -> tuple[int, int] | None:
    """(i, n) of `x-hbuf-batch: i/n`."""
    if not own.startswith(b"x-hbuf-batch: "):
        return None
    i, n = own[len(b"x-hbuf-batch: ") : own.index(b"\r\n")].split(b"/")
    return int(i), int(n)


def _unusual_faults(record: Record, method: bytes, state: ChainState, base: int) -> list[Fault]:
    faults = []
    at = base + record.start
    place = unit_place(record.own) if method == b"POST" else None
    if not _continues_unit(place, state):
        faults.append(Fault("completeness", at, record.seq or None, "an atomic unit is not whole"))
    state.unit_done, state.unit_size = place if place and place[0] < place[1] else (0, 0)
    if method == b"PUT" and b"x-hbuf-sign-key: " in record.own:
        state.signed = True
    if record.sig and not state.signed:
        faults.append(Fault("chain", at, record.seq or None, "there is a signature, and no key was announced"))
    elif record.sig:
        _count(state, "signatures")
    if method == b"DELETE":
        _count(state, "erasures and retirements")
    if record.own and (b"x-hbuf-data-key" in own_values(record.own)):
        _count(state, "encrypted bodies")
    return faults


def _continues_unit(place: tuple[int, int] | None, state: ChainState) -> bool:
    if state.unit_size:
        return place == (state.unit_done + 1, state.unit_size)
    return place is None or (place[0] == 1 and place[1] >= 1)


def _count(state: ChainState, what: str) -> None:
    state.not_checked[what] = state.not_checked.get(what, 0) + 1


def _commitment_of_gone(gone: bytes) -> bytes:
    return base64.urlsafe_b64decode(gone + b"=").hex().encode()
