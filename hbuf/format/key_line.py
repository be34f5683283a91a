"""The file keys.http: the PUTs that opened segments which were retired, back to back.

What was retired cannot be read any more, but its PUTs announced keys: with them the line of keys goes on from the very
first one to the first segment that is still there. Each is checked as in its segment, but for the id before it, which
is taken from its own x-hbuf-prev where that was the id of a message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hbuf.errors import HbufError
from hbuf.format.chain import HASH_NAMES, ZERO_ID, hasher_named
from hbuf.format.check import ChainState, Fault, Keys, check_records, is_put_signed, keys_of
from hbuf.format.scan import Record, own_values, scan
from hbuf.format.settings import fixed_values, parse_settings


@dataclass(slots=True)
class KeyLine:
    """What was found of the PUTs of retired segments. Without a fault `keys` are those that the next PUT follows."""

    first_seq: int = 0  # of the first PUT
    first_keys: Keys | None = None
    keys: Keys | None = None
    signatures: int = 0
    recoveries: int = 0
    faults: list[Fault] = field(default_factory=list)


def split_key_line(data: bytes) -> tuple[list[tuple[int, Record]], Fault | None]:
    """The PUTs, each with its segment's first number, up to the first place that is none; and what stands there."""
    found = scan(data)
    puts: list[tuple[int, Record]] = []
    for record in found.records:
        values = own_values(record.own)
        if record.method != b"PUT" or b"x-hbuf-format" not in values:
            return puts, Fault("bytes", record.start, None, "the record is no PUT that opens a segment")
        puts.append((int(values[b"x-hbuf-first"]), record))
    unreadable = found.unreadable
    return puts, Fault("bytes", unreadable.at, None, unreadable.reason) if unreadable else None


def check_key_line(data: bytes, puts: list[tuple[int, Record]], fixed: tuple[Any, ...]) -> KeyLine:
    """Checks PUTs of `data`. `fixed` is what the settings of the buffer say that may never change."""
    line = KeyLine()
    state = ChainState()
    before: tuple[int, Record] | None = None
    for first, put in puts:
        at, values = put.start, own_values(put.own)
        settings_reason, state.erasable = _check_settings(data, put, fixed)
        if settings_reason:
            line.faults.append(Fault("settings", at, None, settings_reason))
        if before is not None and first < before[0]:
            line.faults.append(Fault("chain", at, None, f"a PUT of segment {first} follows one of {before[0]}"))
        elif before is not None and first == before[0] and values[b"x-hbuf-prev"] != before[1].id:
            line.faults.append(Fault("chain", at, None, "a PUT does not follow the one before it in its segment"))
        if values[b"x-hbuf-hash"].decode() in HASH_NAMES:
            state.prev = values[b"x-hbuf-prev"]
            line.faults += check_records(hasher_named(values[b"x-hbuf-hash"].decode()), data, [put], state, 0)
        if before is None:
            line.first_seq, line.first_keys = first, keys_of(put)
            line.faults += _check_first(first, put, state)
        before = first, put
    line.keys, line.signatures, line.recoveries = state.keys, state.signatures, state.recoveries
    return line


def _check_first(first: int, put: Record, state: ChainState) -> list[Fault]:
    """The very first PUT of a buffer follows nothing, and is signed by its own key."""
    if first != 1:
        return []
    if own_values(put.own)[b"x-hbuf-prev"] != ZERO_ID:
        return [Fault("completeness", put.start, None, "the first PUT follows something", "incomplete")]
    own = state.keys.sign if state.keys else None
    if own is None:
        return []
    if not is_put_signed(put, own):
        return [Fault("signatures", put.start, None, "the first PUT is not signed by its own key")]
    state.signatures += 1
    return []


def _check_settings(data: bytes, put: Record, fixed: tuple[Any, ...]) -> tuple[str | None, bool | None]:
    """What is wrong with the settings of a PUT; and whether they say that records have salts."""
    values = own_values(put.own)
    try:
        settings = parse_settings(data[put.section_end : put.body_end])
    except HbufError as error:
        return error.message, None
    if values[b"x-hbuf-buffer"].decode() != settings.uuid or values[b"x-hbuf-hash"].decode() != settings.hash:
        return "a PUT is of another buffer, or names another hash, than its settings", settings.erasable
    if fixed and fixed_values(settings) != fixed:
        return "a setting that is fixed for good differs from the segments", settings.erasable
    return None, settings.erasable
