"""Verifying a buffer: bytes, chain, completeness, settings, index, each said separately. It never writes.

It says yes only to what it hashed itself; what it could not check is named, and is not a yes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from hbuf.errors import BadInput, HbufError, Locked, NotFound, UsageError
from hbuf.format.check import Fault
from hbuf.format.deletes import Retirement
from hbuf.format.note import Head, head_text, key_hash, parse_note, verifies
from hbuf.ops.audits import Task, audits
from hbuf.ops.joining import join
from hbuf.ops.report import Report
from hbuf.store.audit import SegmentAudit
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
from hbuf.store.index_file import read_index_header
from hbuf.store.lock import Lock
from hbuf.store.segment_file import opened_segment
from hbuf.store.settings_file import settings_file_fault
from hbuf.store.tail import newest_opening


@dataclass(frozen=True, slots=True)
class Expected:
    """A message that must be there, with its id: `SEQ:ID`, or a signed note of it."""

    seq: int
    id: str
    note: Head | None = None


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
    path: str,
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
    directory = BufferDirectory(path)
    directory.require()
    while True:
        before = directory.segment_firsts()
        try:
            with os_errors(directory.shown):
                return _verify(directory, start, head, signer, jobs, progress)
        except NotFound:
            if directory.segment_firsts() == before:
                raise  # otherwise a segment was retired meanwhile, and what says so is to be read


def _verify(
    directory: BufferDirectory,
    start: Expected | None,
    head: Expected | None,
    signer: bytes | None,
    jobs: int | None,
    progress: Callable[[int, int], None],
) -> Report:
    report = Report(directory.shown)
    firsts = directory.segment_firsts()
    lengths = {first: _length(directory, first) for first in firsts}
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
    found = [done[first] for first in firsts]
    gone = next((audit.first for audit in found if not audit.is_there), None)
    if gone is not None:
        raise NotFound(f"{directory.segment_shown(gone)}: is not there any more")
    join(directory, found, report, start.seq if start else None)
    _check_signer(found[0], report, directory, signer)
    _check_settings(directory, firsts, report)
    for what, expected in (("--from", start), ("--head", head)):
        if expected:
            _check_expected(report, list(done.values()), what, expected)
    return report


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
    elif expected.note is not None and not _is_note_of(expected.note, audit):
        report.add(report.path, Fault("signatures", 0, expected.seq, f"{what}: the note is not signed by this buffer"))
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


def _is_note_of(note: Head, audit: SegmentAudit) -> bool:
    key = audit.keys.sign if audit.keys else None
    if key is None or note.uuid != audit.uuid or note.key_hash != key_hash(f"hbuf/{note.uuid}", key):
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
