"""Checking one segment, every byte of it, against the grammar, the chain and its index. It changes nothing."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hbuf.errors import HbufError
from hbuf.format import index
from hbuf.format.check import (
    ChainState,
    Delete,
    Fault,
    Gone,
    Keys,
    check_records,
    unfinished_unit,
    unsigned_tail,
    waiting_key,
)
from hbuf.format.entries import EntryBuilder
from hbuf.format.scan import Record, own_values
from hbuf.format.settings import fixed_values, parse_settings
from hbuf.format.tags import encode_tags
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import read_index_header
from hbuf.store.seal import terms_of
from hbuf.store.segment import Window, windows
from hbuf.store.segment_file import CompressedSegment, OpenSegment, SegmentFile, opened_segment
from hbuf.store.tail import is_full_put, read_opening

# More are counted, not kept: a segment of garbage has one at every record.
_MOST_FAULTS = 1000


@dataclass(slots=True)
class SegmentAudit:
    """What was found of one segment. Plain values: it comes from another process."""

    first: int
    is_there: bool = True  # False where it was retired meanwhile
    bytes_checked: int = 0
    messages: int = 0  # without those that say what was erased or retired
    prev: str = ""  # the id that the opening PUT follows
    last_id: str = ""  # of the last record: what the next segment follows
    last_message_id: str = ""  # of the last numbered one
    next_seq: int = 0
    last_time: str = ""
    uuid: str = ""
    fixed: tuple[Any, ...] = ()  # what its settings say that may never change
    faults: list[Fault] = field(default_factory=list)
    more_faults: int = 0
    notes: list[str] = field(default_factory=list)
    not_checked: dict[str, int] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)  # of the numbers that were asked for
    put: Record | None = None  # the first: it is signed with a key of the segment before
    first_keys: Keys | None = None  # that it announces
    keys: Keys | None = None  # that the last PUT of the segment announces: they sign its messages
    gone: dict[int, Gone] = field(default_factory=dict)  # messages that were erased
    deletes: list[Delete] = field(default_factory=list)
    encrypted: int = 0
    right_files: int = 0  # of index and tags file, those that agree with the segment
    signatures: int = 0
    recoveries: int = 0

    def add(self, *faults: Fault) -> None:
        room = _MOST_FAULTS - len(self.faults)
        self.faults.extend(faults[:room])
        self.more_faults += max(len(faults) - room, 0)


def audit_segment(path: str, first: int, length: int, newest: bool, asked: Collection[int]) -> SegmentAudit:
    """Checks the first `length` bytes of segment `first` of the buffer at `path`."""
    directory = BufferDirectory(path)
    audit = SegmentAudit(first)
    try:
        with opened_segment(directory, first) as segment:
            _audit(directory, segment, audit, length, newest, asked)
    except FileNotFoundError:
        audit.is_there = False
    return audit


def _audit(
    directory: BufferDirectory,
    segment: OpenSegment,
    audit: SegmentAudit,
    length: int,
    newest: bool,
    asked: Collection[int],
) -> None:
    first = audit.first
    if isinstance(segment, CompressedSegment):
        _audit_compressed(segment, audit, newest)
    elif directory.compressed(first).exists():
        name = directory.compressed(first).name
        audit.notes.append(f"{name}: lies beside the plain segment, which counts; hbuf-compress makes it anew")
    try:
        opening = read_opening(segment, directory.segment_file(first).name)
    except HbufError as error:
        # Without its PUT neither hash nor id before are known: nothing behind it can be said to be right.
        audit.add(Fault("bytes", 0, None, error.message))
        audit.not_checked["records behind a damaged opening"] = 1
        audit.bytes_checked = length
        audit.next_seq = first
        return
    audit.prev, audit.uuid = opening.prev.decode(), opening.settings.uuid
    audit.fixed = fixed_values(opening.settings)
    state = ChainState(opening.prev, first, erasable=opening.settings.erasable)
    builder = EntryBuilder(opening.length)
    entries = bytearray()
    terms: dict[bytes, list[int]] = {}
    if opening.first != first:
        audit.add(
            Fault("completeness", 0, None, f"the segment says that its first number is {opening.first}", "incomplete")
        )
    for window in windows(segment, 0, length, first - 1):
        if window.damage:
            audit.add(Fault("bytes", window.damage.at, state.next_seq, window.damage.reason))
            continue
        before = state.prev
        audit.add(*check_records(opening.hasher, window.data, window.records, state, window.base))
        audit.add(*_put_faults(window, state, before, audit.fixed))
        entries += builder.encode_entries(window.records, window.base)
        _gather(window, terms, asked, audit)
    audit.add(*unfinished_unit(state, length))
    audit.add(*unsigned_tail(state, length))
    audit.add(*waiting_key(state, length))
    audit.put, audit.first_keys, audit.keys = opening.first_put, opening.first_keys, opening.keys
    audit.signatures, audit.recoveries = state.signatures, state.recoveries
    audit.bytes_checked = length
    audit.messages = state.numbered - len(state.deletes)
    audit.last_message_id = state.last_id.decode()
    audit.gone, audit.deletes, audit.encrypted = state.gone, state.deletes, state.encrypted
    audit.last_id, audit.next_seq, audit.last_time = state.prev.decode(), state.next_seq, state.last_time.decode()
    put_id = bytes.fromhex(opening.put_id.decode())
    _compare_index(directory.index(first), audit, bytes(entries), put_id, length, segment, newest)
    tags = encode_tags(first, state.numbered, put_id, terms)
    _compare_tags(directory.tags(first), audit, tags, newest)


def _audit_compressed(segment: CompressedSegment, audit: SegmentAudit, newest: bool) -> None:
    """What is wrong with the file itself. A frame that cannot be decoded is named where its records are read."""
    if segment.table_fault:
        audit.add(Fault("bytes", 0, None, segment.table_fault))
    hole = segment.hole(0)
    if hole:
        audit.add(Fault("bytes", 0, None, hole.reason))
    if newest:
        reason = "the newest segment is never compressed: one is missing behind it"
        audit.add(Fault("completeness", segment.length, None, reason, "incomplete"))


def _put_faults(window: Window, state: ChainState, prev: bytes, fixed: tuple[Any, ...]) -> list[Fault]:
    """What full PUTs say must be so: which record they follow, where they stand, what was fixed for good.

    `state` is how the chain stands behind the window, `prev` the id before it.
    """
    faults = []
    before = state.numbered - sum(1 for record in window.records if record.seq)
    for record in window.records:
        if record.method == b"PUT" and is_full_put(record):
            at = window.base + record.start
            faults += [Fault(kind, at, None, reason) for kind, reason in _put_reasons(window, record, prev, fixed)]
            if before:
                faults.append(Fault("completeness", at, None, "a PUT with settings stands behind a message"))
        before += record.seq > 0
        prev = record.id
    return faults


def _put_reasons(window: Window, put: Record, prev: bytes, fixed: tuple[Any, ...]) -> Iterator[tuple[str, str]]:
    values = own_values(put.own)
    if values[b"x-hbuf-prev"] != prev:
        yield "completeness", "a PUT does not follow the record that it names"
    try:
        settings = parse_settings(window.data[put.section_end : put.body_end])
    except HbufError as error:
        yield "settings", error.message
        return
    if values[b"x-hbuf-buffer"].decode() != settings.uuid:
        yield "settings", "a PUT is of another buffer than its settings"
    if values[b"x-hbuf-hash"].decode() != settings.hash:
        yield "settings", "a PUT names another hash than its settings"
    if fixed_values(settings) != fixed:
        yield "settings", "a setting that is fixed for good has changed"


def _gather(window: Window, terms: dict[bytes, list[int]], asked: Collection[int], audit: SegmentAudit) -> None:
    data = window.data
    for record in window.records:
        if record.seq in asked:
            audit.ids[record.seq] = record.id.decode()
        if record.seq >= audit.first and record.head_end != record.fields_end:
            for term in terms_of(data, record):
                terms.setdefault(term, []).append(record.seq)


def _compare_index(
    path: Path,
    audit: SegmentAudit,
    entries: bytes,
    put_id: bytes,
    length: int,
    segment: SegmentFile,
    newest: bool,
) -> None:
    header = read_index_header(path)
    if not path.exists():
        audit.notes.append(f"{path.name}: missing; hbuf-reindex makes it anew")
        return
    if header is None or header.first != audit.first or header.put_id != put_id:
        audit.add(Fault("index", 0, None, f"{path.name} is not the index of its segment"))
        return
    # A writer may have gone on since the segment was read.
    missing = header.durable_length - segment.length
    if missing > 0:
        reason = f"{path.name} knows of {missing} bytes that are not there"
        audit.add(Fault("completeness", length, audit.next_seq, reason, "incomplete"))
        return
    if header.durable_length < length and not newest:
        audit.notes.append(f"{path.name}: behind its segment; hbuf-reindex makes it anew")
    listed = path.read_bytes()[index.HEADER_BYTES :]
    size = index.ENTRY_BYTES
    # What lies behind the durable length need not be listed yet.
    count = bisect.bisect_right(
        range(len(entries) // size), header.durable_length, key=lambda i: index.parse_entry(entries, i).end
    )
    behind = count * size
    if listed[:behind] != entries[:behind]:
        wrong = next(at for at in range(0, behind, size) if listed[at : at + size] != entries[at : at + size])
        audit.add(Fault("index", 0, audit.first + wrong // size, f"{path.name} differs from its segment"))
    else:
        audit.right_files += 1


def _compare_tags(path: Path, audit: SegmentAudit, expected: bytes, newest: bool) -> None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        if not newest:
            audit.notes.append(f"{path.name}: missing; hbuf-reindex makes it anew")
        return
    if newest:
        return
    if content != expected:
        audit.add(Fault("index", 0, None, f"{path.name} differs from its segment"))
    else:
        audit.right_files += 1
