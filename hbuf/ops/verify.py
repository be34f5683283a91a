"""Verifying a buffer: bytes, chain, completeness, settings, index, each said separately. It never writes.

It says yes only to what it hashed itself; what it could not check is named, and is not a yes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hbuf.errors import HbufError, Locked, UsageError
from hbuf.format.chain import ZERO_ID
from hbuf.format.check import Fault
from hbuf.ops.audits import Task, audits
from hbuf.store.audit import SegmentAudit
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
from hbuf.store.index_file import read_index_header
from hbuf.store.lock import Lock
from hbuf.store.settings_file import settings_file_fault
from hbuf.store.tail import newest_opening

KINDS = ("bytes", "chain", "completeness", "settings", "index")


@dataclass(frozen=True, slots=True)
class Expected:
    """A message that must be there, with its id: `SEQ:ID`."""

    seq: int
    id: str


@dataclass(frozen=True, slots=True)
class PlacedFault:
    kind: str
    file: str
    at: int
    seq: int | None
    reason: str

    def __str__(self) -> str:
        number = f": message {self.seq}" if self.seq is not None else ""
        return f"{self.file}: byte {self.at}{number}: {self.reason}"


@dataclass(slots=True)
class Report:
    """What was checked and what was found. `ok` only if all that it names was checked and is right."""

    path: str
    uuid: str = ""
    segments: int = 0
    bytes_checked: int = 0
    messages: int = 0
    first_seq: int = 0
    last_seq: int = 0
    last_id: str = ""
    last_time: str = ""
    faults: list[PlacedFault] = field(default_factory=list)
    fault_counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    not_checked: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not any(self.fault_counts.values()) and not self.not_checked

    def add(self, file: str, fault: Fault) -> None:
        self.faults.append(PlacedFault(fault.kind, file, fault.at, fault.seq, fault.reason))
        self.fault_counts[fault.kind] += 1


def parse_expected(text: str) -> Expected:
    seq, _, record_id = text.partition(":")
    if not seq.isascii() or not seq.isdecimal() or len(record_id) != 64 or set(record_id) - set("0123456789abcdef"):
        raise UsageError(f"'{text}' is not SEQ:ID", hint="that is a number, a colon, and the 64 digits of an id")
    return Expected(int(seq), record_id)


def verify(
    path: str,
    *,
    start: Expected | None = None,
    head: Expected | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Checks all that is in the buffer now. `progress` is told bytes done, and bytes in all."""
    directory = BufferDirectory(path)
    directory.require()
    report = Report(path)
    with os_errors(directory.shown):
        firsts = directory.segment_firsts()
        lengths = {first: os.stat(directory.segment(first)).st_size for first in firsts}
        newest = firsts[-1]
        lengths[newest] = _length_to_check(directory, newest, report)
        asked = frozenset(expected.seq for expected in (start, head) if expected)
        tasks = [Task(str(directory.path), first, lengths[first], first == newest, asked) for first in firsts]
        total = sum(lengths.values())
        done: dict[int, SegmentAudit] = {}
        for audit in audits(tasks, jobs):
            done[audit.first] = audit
            report.bytes_checked += audit.bytes_checked
            progress(report.bytes_checked, total)
        _join(directory, [done[first] for first in firsts], report, start)
        _check_settings(directory, firsts, report)
    for what, expected in (("--from", start), ("--head", head)):
        if expected:
            _check_expected(report, done.values(), what, expected)
    return report


def _length_to_check(directory: BufferDirectory, newest: int, report: Report) -> int:
    """All of the newest segment when nobody is writing to it, else what is surely on disk."""
    lock = Lock(directory)
    try:
        with contextlib.suppress(FileNotFoundError):  # a copy without its lock: whoever writes makes it first
            lock.acquire(shared=True)
    except Locked:
        header = read_index_header(directory.index(newest))
        size = os.stat(directory.segment(newest)).st_size
        if header is None:
            report.not_checked["a newest segment that is being written and has no index"] = 1
            return size
        return min(header.durable_length, size)
    try:
        return os.stat(directory.segment(newest)).st_size
    finally:
        lock.close()


def _join(directory: BufferDirectory, audits: list[SegmentAudit], report: Report, start: Expected | None) -> None:
    """Puts the segments' findings together, and checks that each follows the one before."""
    before: SegmentAudit | None = None
    for audit in audits:
        file = directory.segment(audit.first).name
        for fault in audit.faults:
            report.add(file, fault)
        if audit.more_faults:
            report.fault_counts["chain"] += audit.more_faults
        report.notes.extend(audit.notes)
        for what, count in audit.not_checked.items():
            report.not_checked[what] = report.not_checked.get(what, 0) + count
        if before is None:
            if audit.first != (start.seq if start else 1):
                reason = f"the buffer begins with message {audit.first}, and nothing says why"
                report.add(file, Fault("completeness", 0, audit.first, reason))
            elif audit.first == 1 and audit.prev and audit.prev != ZERO_ID.decode():
                report.add(file, Fault("completeness", 0, None, "the first PUT follows something"))
        elif audit.first != before.next_seq:
            reason = f"messages {before.next_seq} to {audit.first - 1} are missing"
            if audit.first < before.next_seq:
                reason = f"the segment begins with {audit.first}, but {before.next_seq} must follow"
            report.add(file, Fault("completeness", 0, audit.first, reason))
        elif audit.prev != before.last_id:
            report.add(file, Fault("completeness", 0, audit.first, "the segment does not follow the one before"))
        if before is not None and audit.fixed and before.fixed and audit.fixed != before.fixed:
            report.add(
                file, Fault("settings", 0, None, "a setting that is fixed for good differs from the segment before")
            )
        before = audit
        report.messages += audit.messages
    report.segments = len(audits)
    report.uuid = audits[0].uuid
    report.first_seq = audits[0].first
    last = audits[-1]
    report.last_seq, report.last_id, report.last_time = last.next_seq - 1, last.last_id, last.last_time


def _check_settings(directory: BufferDirectory, firsts: list[int], report: Report) -> None:
    try:
        opening = newest_opening(directory)
    except HbufError:
        report.not_checked["settings"] = 1
        return
    if not directory.settings.exists():
        report.notes.append(f"{directory.settings.name}: missing; the next writer makes it anew from the chain")
        return
    fault = settings_file_fault(directory, opening, firsts)
    if fault:
        report.add(directory.settings.name, Fault("settings", 0, None, fault))


def _check_expected(report: Report, found_in: Iterable[SegmentAudit], what: str, expected: Expected) -> None:
    found = next((audit.ids[expected.seq] for audit in found_in if expected.seq in audit.ids), None)
    if found is None:
        reason = f"{what}: message {expected.seq} is not there"
    elif found != expected.id:
        reason = f"{what}: message {expected.seq} has another id"
    else:
        return
    report.add(report.path, Fault("completeness", 0, expected.seq, reason))
