"""Putting the audits of all segments together: what follows what, what was erased or retired by rule, who signed."""

from __future__ import annotations

from hbuf.format.chain import ZERO_ID
from hbuf.format.check import ChainState, Delete, Fault, Keys, is_put_signed, keys_reason
from hbuf.format.deletes import Erasure, Retirement
from hbuf.ops.report import Report
from hbuf.ops.retired_keys import join_retired_keys
from hbuf.store.audit import SegmentAudit
from hbuf.store.directory import BufferDirectory


def join(directory: BufferDirectory, audits: list[SegmentAudit], report: Report, start: int | None) -> None:
    """All that the audits of all segments say. `start` is the number that an auditor allows it to begin with."""
    for audit in audits:
        _take(directory, audit, report)
    last = audits[-1]
    report.segments = len(audits)
    report.uuid = audits[0].uuid
    report.first_seq = audits[0].first
    report.last_seq, report.last_time = last.next_seq - 1, last.last_time
    report.last_id = next((audit.last_message_id for audit in reversed(audits) if audit.last_message_id), "")
    report.retired = _newest_retirement(audits)
    _join_numbers(directory, audits, report, start, report.retired)
    _join_erasures(directory, audits, report)
    report.retired_keys = join_retired_keys(directory, audits, report, start)
    _join_signatures(directory, audits, report, report.retired_keys)
    _count_right(audits, report)


def _take(directory: BufferDirectory, audit: SegmentAudit, report: Report) -> None:
    file = directory.segment_file(audit.first).name
    for fault in audit.faults:
        report.add(file, fault)
    report.verdicts["chain"]["tampered"] += audit.more_faults
    report.notes.extend(audit.notes)
    for what, count in audit.not_checked.items():
        report.not_checked[what] = report.not_checked.get(what, 0) + count
    report.messages += audit.messages
    report.signatures += audit.signatures
    report.recoveries += audit.recoveries
    report.encrypted += audit.encrypted


def _join_numbers(
    directory: BufferDirectory,
    audits: list[SegmentAudit],
    report: Report,
    start: int | None,
    retired: Retirement | None,
) -> None:
    """Each segment follows the one before, and the first begins where it may."""
    _join_start(directory, audits, report, start, retired)
    before: SegmentAudit | None = None
    for audit in audits:
        file = directory.segment_file(audit.first).name
        if before is not None and audit.first != before.next_seq:
            reason = f"messages {before.next_seq} to {audit.first - 1} are missing"
            if audit.first < before.next_seq:
                reason = f"the segment begins with {audit.first}, but {before.next_seq} must follow"
            report.add(file, Fault("completeness", 0, audit.first, reason, "incomplete"))
        elif before is not None and audit.prev != before.last_id:
            reason = "the segment does not follow the one before"
            report.add(file, Fault("completeness", 0, audit.first, reason, "incomplete"))
        if before is not None and audit.fixed and before.fixed and audit.fixed != before.fixed:
            reason = "a setting that is fixed for good differs from the segment before"
            report.add(file, Fault("settings", 0, None, reason))
        before = audit


def _join_start(
    directory: BufferDirectory,
    audits: list[SegmentAudit],
    report: Report,
    start: int | None,
    retired: Retirement | None,
) -> None:
    first = audits[0]
    file = directory.segment_file(first.first).name
    if first.first == 1:
        if first.prev and first.prev != ZERO_ID.decode():
            report.add(file, Fault("completeness", 0, None, "the first PUT follows something", "incomplete"))
    elif start is None and (retired is None or retired.end < first.first - 1):
        reason = f"the buffer begins with message {first.first}, and nothing says why"
        report.add(file, Fault("completeness", 0, first.first, reason, "incomplete"))
    elif start is not None and start != first.first:
        reason = f"the buffer begins with message {first.first}, and not with {start}"
        report.add(file, Fault("completeness", 0, first.first, reason, "incomplete"))
    elif retired is not None:
        report.verdicts["completeness"]["retired"] = min(retired.end, first.first - 1)
    if retired is None:
        return
    behind = next((audit for audit in audits if audit.first == retired.end + 1), None)
    if behind is None or (behind.prev and behind.prev != retired.id.decode()):
        reason = f"what was retired does not end with message {retired.end} as the DELETE names it"
        report.add(file, Fault("completeness", 0, None, reason, "incomplete"))
    elif first.first <= retired.end:
        report.notes.append(f"messages {first.first} to {retired.end} are to be retired; hbuf-retire finishes that")


def _newest_retirement(audits: list[SegmentAudit]) -> Retirement | None:
    """The last one: each covers all that were before it."""
    found = [delete.what for audit in audits for delete in audit.deletes if isinstance(delete.what, Retirement)]
    return found[-1] if found else None


def _join_erasures(directory: BufferDirectory, audits: list[SegmentAudit], report: Report) -> None:
    """A message is gone only where a DELETE says so, and with a DELETE it is gone."""
    erased: dict[int, tuple[str, Delete, Erasure]] = {}
    for audit in audits:
        for delete in audit.deletes:
            if isinstance(delete.what, Erasure):
                erased[delete.what.seq] = (directory.segment_file(audit.first).name, delete, delete.what)
    gone = {seq: (audit, found) for audit in audits for seq, found in audit.gone.items()}
    for seq, (audit, found) in gone.items():
        erasure = erased[seq][2] if seq in erased else None
        if erasure is None:
            reason = "the message is gone, and nothing says that it was erased"
        elif (erasure.id, erasure.commitment) != found:
            reason = "the message that is gone is not the one that was erased"
        else:
            report.verdicts["chain"]["erased"] += 1
            continue
        report.add(directory.segment_file(audit.first).name, Fault("chain", 0, seq, reason))
    for seq, (file, delete, _) in erased.items():
        if seq not in gone and seq >= audits[0].first:
            reason = f"message {delete.seq} says that it was erased, and it is there"
            report.add(file, Fault("chain", delete.at, seq, reason, "unerased"))


def _join_signatures(directory: BufferDirectory, audits: list[SegmentAudit], report: Report, keys: Keys | None) -> None:
    """Follows the line of keys from the first PUT on: each is signed by a key that the one before announced.

    `keys` are those that the first segment follows, where there were others before it.
    """
    state = ChainState()
    for audit in audits:
        if audit.put is None or audit.first_keys is None:
            keys = None  # its opening is damaged, which is a fault of its own
            continue
        reason = None
        if keys is not None:
            reason = keys_reason(audit.put, keys, state)
        elif audit.first == 1 and audit.first_keys.sign is not None:
            state.signatures += 1
            if not is_put_signed(audit.put, audit.first_keys.sign):
                reason = "the first PUT is not signed by its own key"
        elif audit.first_keys.sign is not None:
            report.not_checked["segments whose key nobody announced"] = 1
        if reason:
            report.add(directory.segment_file(audit.first).name, Fault("signatures", 0, None, reason))
        keys = audit.keys
    report.signatures += state.signatures
    report.recoveries += state.recoveries


def _count_right(audits: list[SegmentAudit], report: Report) -> None:
    """How much is intact, kind by kind."""
    wrong = {fault.seq for fault in report.faults if fault.kind in ("bytes", "chain") and fault.seq is not None}
    verdicts = report.verdicts
    verdicts["bytes"]["intact"] = sum(1 for audit in audits if not any(fault.kind == "bytes" for fault in audit.faults))
    verdicts["chain"]["intact"] = max(report.messages - verdicts["chain"]["erased"] - len(wrong), 0)
    verdicts["signatures"]["intact"] = report.signatures
    verdicts["completeness"]["intact"] = sum(audit.messages + len(audit.deletes) for audit in audits)
    verdicts["index"]["intact"] = sum(audit.right_files for audit in audits)
