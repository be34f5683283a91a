"""Verifying a buffer: bytes, chain, completeness, settings, index, each said separately. It never writes.

It says yes only to what it hashed itself; what it could not check is named, and is not a yes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hbuf.errors import BadInput, HbufError, Locked, NotFound, UsageError
from hbuf.format.check import Fault, Keys
from hbuf.format.deletes import Retirement
from hbuf.format.note import Head, head_text, key_hash, parse_note, verifies
from hbuf.ops.audits import Task, audits
from hbuf.ops.joining import join
from hbuf.ops.report import Report
from hbuf.remote.buffer import RemoteBuffer
from hbuf.store.audit import SegmentAudit, audit_segment
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
from hbuf.store.index_file import read_index_header
from hbuf.store.lock import Lock
from hbuf.store.segment_file import opened_segment
from hbuf.store.settings_file import settings_file_fault
from hbuf.store.tail import newest_opening

_WAIT_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Expected:
    """A message that must be there, with its id: `SEQ:ID`, or a signed note of it."""

    seq: int
    id: str
    note: Head | None = None


class Wanted(NamedTuple):
    """What an auditor asks for."""

    start: Expected | None
    head: Expected | None
    signer: bytes | None

    @property
    def asked(self) -> frozenset[int]:
        return frozenset(expected.seq for expected in (self.start, self.head) if expected)


def parse_expected(text: str) -> Expected:
    seq, _, record_id = text.partition(":")
    if not seq.isascii() or not seq.isdecimal() or len(record_id) != 64 or set(record_id) - set("0123456789abcdef"):
        raise UsageError(
            f"'{text}' is not SEQ:ID", hint="that is a number, a colon, and the 64 digits of an id; or a note's file"
        )
    return Expected(int(seq), record_id)


def expected_head(text: str) -> Expected:
    """A head as a user gives it: `SEQ:ID`, or the file of a note."""
    if not os.path.exists(text):
        return parse_expected(text)
    with os_errors(text), open(text, "rb") as file:
        data = file.read(65_537)
    try:
        head = parse_note(data)
    except BadInput as error:
        raise BadInput(f"{text}: {error.message}") from None
    return Expected(head.seq, head.id.decode(), head)


def verify(
    path: str | RemoteBuffer,
    *,
    start: Expected | None = None,
    head: Expected | None = None,
    signer: bytes | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Checks all that is in the buffer now. `progress` is told bytes done, and bytes in all.

    `signer` is the public key that must have signed the first record, and so all that follows.
    """
    wanted = Wanted(start, head, signer)
    if isinstance(path, RemoteBuffer):
        from hbuf.ops.verify_remote import verify_remote

        return verify_remote(path, wanted, jobs, progress)
    directory = BufferDirectory(path)
    directory.require()
    while True:
        before = directory.segment_firsts()
        try:
            with os_errors(directory.shown):
                return _verify(directory, wanted, jobs, progress)
        except NotFound:
            if directory.segment_firsts() == before:
                raise  # otherwise a segment was retired meanwhile, and what says so is to be read


def _verify(
    directory: BufferDirectory, wanted: Wanted, jobs: int | None, progress: Callable[[int, int], None]
) -> Report:
    report = Report(directory.shown)
    tasks = _tasks(directory, wanted.asked, report)
    counters = {first: _erase_counter(directory, first) for first in tasks}
    total = sum(task.length for task in tasks.values())
    done: dict[int, SegmentAudit] = {}
    checked = 0
    for audit in audits(list(tasks.values()), jobs):
        done[audit.first] = audit
        checked += audit.bytes_checked
        progress(checked, total)
    judge(directory, done, report, wanted)
    if report.faults:
        report = _look_again(directory, done, counters, report, wanted)
    return report


def _tasks(directory: BufferDirectory, asked: frozenset[int], report: Report) -> dict[int, Task]:
    """What is to be checked of each segment, by its first number."""
    firsts = directory.segment_firsts()
    newest = firsts[-1]
    lengths = {first: _length(directory, first) for first in firsts[:-1]}
    lengths[newest] = _length_to_check(directory, newest, report)
    return {first: Task(str(directory.path), first, lengths[first], first == newest, asked) for first in firsts}


def _erase_counter(directory: BufferDirectory, first: int) -> int | None:
    header = read_index_header(directory.index(first))
    return header.erase_counter if header else None


def _look_again(
    directory: BufferDirectory,
    done: dict[int, SegmentAudit],
    counters: dict[int, int | None],
    before: Report,
    wanted: Wanted,
) -> Report:
    """What looked wrong may have been erased meanwhile: once more under the shared lock, which keeps erases out.

    Only the segments that it can concern: with a fault, with another erase counter than at first, or the newest.
    """
    lock = Lock(directory)
    try:
        with contextlib.suppress(FileNotFoundError):  # a copy without its lock: whoever writes makes it first
            lock.acquire(shared=True, deadline=time.monotonic() + _WAIT_SECONDS)
        report = Report(before.path)
        tasks = _tasks(directory, wanted.asked, report)
        for first, task in tasks.items():
            audit = done.get(first)
            counter = _erase_counter(directory, first)
            moved = counter is None or counter != counters.get(first)
            if audit is None or audit.faults or moved or first >= max(counters):
                done[first] = audit_segment(*task)
    except Locked:
        # Neither a yes nor a fault: what looks wrong may be an erase that takes long.
        raise Locked(
            f"{directory.shown}: something looks wrong, and it is being written: that may be an erase under way",
            hint="verify it again, or while it is paused",
        ) from None
    finally:
        lock.close()
    judge(directory, {first: done[first] for first in tasks}, report, wanted)
    if directory.erasing.exists():
        report.notes.append(f"{directory.erasing.name}: an erase was interrupted; the next writer finishes it")
    return report


def judge(directory: BufferDirectory, done: dict[int, SegmentAudit], report: Report, wanted: Wanted) -> None:
    """What all audits say together."""
    start, head, signer = wanted
    firsts = sorted(done)
    found = [done[first] for first in firsts]
    gone = next((audit.first for audit in found if not audit.is_there), None)
    if gone is not None:
        raise NotFound(f"{directory.segment_shown(gone)}: is not there any more")
    report.bytes_checked = sum(audit.bytes_checked for audit in found)
    join(directory, found, report, start.seq if start else None)
    _check_signer(found[0], report, directory, signer)
    _check_settings(directory, firsts, report)
    for what, expected in (("--from", start), ("--head", head)):
        if expected:
            _check_expected(report, found, what, expected)


def _length_to_check(directory: BufferDirectory, newest: int, report: Report) -> int:
    """All of the newest segment when nobody is writing to it, else what is surely on disk."""
    lock = Lock(directory)
    try:
        with contextlib.suppress(FileNotFoundError):  # a copy without its lock: whoever writes makes it first
            lock.acquire(shared=True)
    except Locked:
        header = read_index_header(directory.index(newest))
        size = _length(directory, newest)
        if header is None:
            report.not_checked["a newest segment that is being written and has no index"] = 1
            return size
        return min(header.durable_length, size)
    try:
        return _length(directory, newest)
    finally:
        lock.close()


def _length(directory: BufferDirectory, first: int) -> int:
    with opened_segment(directory, first) as segment:
        return segment.length


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
    else:
        report.verdicts["settings"]["intact"] = 1


def _check_expected(report: Report, found_in: list[SegmentAudit], what: str, expected: Expected) -> None:
    audit = next((audit for audit in found_in if expected.seq in audit.ids), None)
    if audit is None and report.retired is not None and expected.seq < report.first_seq:
        _check_retired_head(report, what, expected, report.retired)
        return
    if audit is None:
        reason = f"{what}: message {expected.seq} is not there"
    elif audit.ids[expected.seq] != expected.id:
        reason = f"{what}: message {expected.seq} has another id"
    elif expected.note is not None and not _is_note_of(expected.note, audit.uuid, audit.keys):
        _add_foreign_note(report, what, expected)
        return
    else:
        return
    report.add(report.path, Fault("completeness", 0, expected.seq, reason, "incomplete"))


def _check_retired_head(report: Report, what: str, expected: Expected, retired: Retirement) -> None:
    """Of what was retired only the last id is known."""
    if expected.seq != retired.end:
        report.not_checked["head of a message that is retired"] = 1
    elif expected.id != retired.id.decode():
        reason = f"{what}: message {expected.seq}, which is retired, had another id"
        report.add(report.path, Fault("completeness", 0, expected.seq, reason, "incomplete"))
    elif expected.note is not None and not _is_note_of(expected.note, report.uuid, report.retired_keys):
        _add_foreign_note(report, what, expected)


def _add_foreign_note(report: Report, what: str, expected: Expected) -> None:
    report.add(report.path, Fault("signatures", 0, expected.seq, f"{what}: the note is not signed by this buffer"))


def _is_note_of(note: Head, uuid: str, keys: Keys | None) -> bool:
    key = keys.sign if keys else None
    if key is None or note.uuid != uuid or note.key_hash != key_hash(f"hbuf/{note.uuid}", key):
        return False
    return verifies(key, head_text(note.uuid, note.seq, note.id), note.signature)


def _check_signer(first: SegmentAudit, report: Report, directory: BufferDirectory, signer: bytes | None) -> None:
    own = report.first_key
    report.signed = first.first_keys is not None and first.first_keys.sign is not None
    if signer is None:
        if report.signed:
            report.notes.append("who signed was not checked; --signer tells whose key it must be")
        return
    if own != signer and not (report.signed and own is None):  # else its first key is not known, which is a fault
        reason = "it is signed by another key" if report.signed else "it is not signed"
        report.add(directory.segment_file(first.first).name, Fault("signatures", 0, None, reason))
