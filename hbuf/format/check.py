"""Checking records against the chain: ids, numbers, times, units. It never says yes to what it did not hash.

What one segment cannot tell, whether a message that is gone was erased by rule, is gathered for those who see all.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from hbuf.format.chain import COMMITTED, COPY_LIMIT_BYTES, IDENTIFIED, ZERO_ID, Hasher, commitment
from hbuf.format.deletes import Erasure, Retirement, parse_delete
from hbuf.format.note import head_text, is_signed, put_text
from hbuf.format.record import parse_key
from hbuf.format.scan import Record, own_values
from hbuf.format.sealing import is_encrypted

Verdict = Literal["tampered", "incomplete", "unerased"]


class Fault(NamedTuple):
    """One thing that is wrong, where, and under which heading a verifier reports it."""

    kind: str  # bytes, chain, signatures, completeness, settings, index
    at: int  # byte in the segment
    seq: int | None  # the message's number, where it can be told
    reason: str
    verdict: Verdict = "tampered"


class Gone(NamedTuple):
    """A message that is not there any more: its id, and the commitment that stands for it."""

    id: bytes
    commitment: bytes


class Delete(NamedTuple):
    """A DELETE: where it is, its number, and what it says."""

    at: int
    seq: int
    what: Erasure | Retirement


class Keys(NamedTuple):
    """The public keys that a PUT announces: who signs from there on, and who may start a new line of keys."""

    sign: bytes | None
    recovery: bytes | None


@dataclass(slots=True)
class ChainState:
    """Where a chain stands: what the next record must follow."""

    prev: bytes = ZERO_ID
    next_seq: int = 1
    last_id: bytes = b""  # of the last numbered record
    last_time: bytes = b""
    unit_done: int = 0  # of the atomic unit that is open: how many of its records came
    unit_size: int = 0  # 0 when none is open
    key_waits: bool = False  # a PUT brought a data key, and no message has used it yet
    numbered: int = 0
    uuid: str = ""  # of the newest PUT
    keys: Keys | None = None  # of the newest PUT; None where none was seen yet
    signed_seq: int = 0  # the last number that a signature covers
    signatures: int = 0  # how many were found right
    recoveries: int = 0  # how many PUTs the recovery key signed
    erasable: bool | None = None  # whether every record has a salt; None: not known
    gone: dict[int, Gone] = field(default_factory=dict)
    deletes: list[Delete] = field(default_factory=list)
    encrypted: int = 0

    @property
    def settled(self) -> bool:
        """Whether the chain may end here: no unit is open, no data key waits for its first message, and in a signed
        buffer the last record is signed.
        """
        whole = not self.unit_size and not self.key_waits
        return whole and (not self.is_signed or self.signed_seq >= self.next_seq - 1)

    @property
    def is_signed(self) -> bool:
        return self.keys is not None and self.keys.sign is not None


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
            state.gone[seq] = Gone(record.id, commit)
            if data.count(0, section_end, end - 2) != end - 2 - section_end:
                faults.append(Fault("bytes", base + start, seq, "an erased message still has a body"))
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
                faults.append(Fault("completeness", base + start, seq, reason, "incomplete"))
            next_seq = seq + 1
            state.numbered += 1
            state.last_id = stated
        if own or state.unit_size or record.sig or state.key_waits:
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
    return [Fault("completeness", at, state.next_seq - 1, reason, "incomplete")]


def waiting_key(state: ChainState, at: int) -> list[Fault]:
    """A data key at the end, which came with no message."""
    return [Fault("chain", at, None, "a data key is not followed by a message that uses it")] if state.key_waits else []


def unsigned_tail(state: ChainState, at: int) -> list[Fault]:
    """Messages behind the last signature, which anybody could have written."""
    if not state.is_signed or state.signed_seq >= state.next_seq - 1:
        return []
    reason = f"no signature covers messages {state.signed_seq + 1} to {state.next_seq - 1}"
    return [Fault("signatures", at, state.signed_seq + 1, reason)]


def unit_place(own: bytes) -> tuple[int, int] | None:
    """(i, n) of `x-hbuf-batch: i/n`."""
    if not own.startswith(b"x-hbuf-batch: "):
        return None
    i, n = own[len(b"x-hbuf-batch: ") : own.index(b"\r\n")].split(b"/")
    return int(i), int(n)


def _unusual_faults(record: Record, method: bytes, state: ChainState, base: int) -> list[Fault]:
    faults = []
    at = base + record.start
    if state.key_waits and not is_encrypted(record.own):
        faults.append(Fault("chain", at, record.seq or None, "a data key is not followed by a message that uses it"))
    state.key_waits = False
    place = unit_place(record.own) if method == b"POST" else None
    if not _continues_unit(place, state):
        faults.append(Fault("completeness", at, record.seq or None, "an atomic unit is not whole", "incomplete"))
    state.unit_done, state.unit_size = place if place and place[0] < place[1] else (0, 0)
    reason = _put_reason(record, state) if method == b"PUT" else _signature_reason(record, state)
    if reason:
        faults.append(Fault("signatures", at, record.seq or None, reason))
    if method == b"DELETE":
        delete = Delete(at, record.seq, parse_delete(record.own))
        state.deletes.append(delete)
        if last_deleted(delete.what) >= record.seq:
            faults.append(Fault("chain", at, record.seq, "a DELETE names a message that comes after it"))
    elif is_encrypted(record.own):
        state.encrypted += 1
    return faults


def last_deleted(what: Erasure | Retirement) -> int:
    return what.seq if isinstance(what, Erasure) else what.end


def _put_reason(put: Record, state: ChainState) -> str | None:
    """What is wrong with the keys of a PUT.

    A segment's first PUT is signed with a key of the segment before: who knows that checks it, with `is_put_signed`.
    """
    keys = keys_of(put)
    if keys is None:
        state.key_waits = True
        return "a PUT that only brings a data key is not signed" if put.sig else None
    values = own_values(put.own)
    before, state.keys = state.keys, keys
    state.uuid = values[b"x-hbuf-buffer"].decode()
    state.signed_seq = int(values[b"x-hbuf-first"]) - 1
    if (keys.sign is None) != (put.sig is None):
        return "a PUT announces a key and is not signed" if keys.sign else _NO_KEY
    if before is None:
        return None
    return keys_reason(put, before, state)


def keys_reason(put: Record, before: Keys, state: ChainState) -> str | None:
    """What is wrong with a PUT that follows one which announced the keys `before`."""
    keys = keys_of(put)
    if keys is None or (before.sign is None) != (keys.sign is None):
        return "whether a buffer is signed has changed"
    if keys.recovery != before.recovery:
        return "the recovery key has changed"
    if before.sign is None:
        return None
    if is_put_signed(put, before.sign):
        state.signatures += 1
    elif before.recovery and is_put_signed(put, before.recovery):
        state.recoveries += 1
    else:
        return "the signature of a PUT is not by the key before it"
    return None


def keys_of(put: Record) -> Keys | None:
    """The keys that a full PUT announces."""
    values = own_values(put.own)
    if b"x-hbuf-format" not in values:
        return None
    sign, recovery = values.get(b"x-hbuf-sign-key"), values.get(b"x-hbuf-recovery-key")
    return Keys(parse_key(sign) if sign else None, parse_key(recovery) if recovery else None)


def is_put_signed(put: Record, public: bytes) -> bool:
    values = own_values(put.own)
    text = put_text(values[b"x-hbuf-buffer"].decode(), int(values[b"x-hbuf-first"]), put.id)
    return put.sig is not None and is_signed(public, text, put.sig)


def _signature_reason(record: Record, state: ChainState) -> str | None:
    if not record.sig:
        return None
    if state.keys is None or state.keys.sign is None:
        return _NO_KEY
    if not is_signed(state.keys.sign, head_text(state.uuid, record.seq, record.id), record.sig):
        return "the signature is not by the key that was announced"
    state.signatures += 1
    state.signed_seq = record.seq
    return None


_NO_KEY = "there is a signature, and no key was announced"


def _continues_unit(place: tuple[int, int] | None, state: ChainState) -> bool:
    if state.unit_size:
        return place == (state.unit_done + 1, state.unit_size)
    return place is None or (place[0] == 1 and place[1] >= 1)


def _commitment_of_gone(gone: bytes) -> bytes:
    return base64.urlsafe_b64decode(gone + b"=").hex().encode()
