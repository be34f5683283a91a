"""The keys of retired segments, from keys.http: the line of keys up to the first segment that is there."""

from __future__ import annotations

from hbuf.format.check import Fault, Keys
from hbuf.format.key_line import check_key_line, split_key_line
from hbuf.format.scan import Record
from hbuf.ops.report import Report
from hbuf.store.audit import SegmentAudit
from hbuf.store.directory import BufferDirectory
from hbuf.store.sealed import puts_of


def join_retired_keys(
    directory: BufferDirectory, audits: list[SegmentAudit], report: Report, start: int | None
) -> Keys | None:
    """The keys that the first PUT still there follows, where some before it were retired and no fault is in the way.

    `start` is the number that an auditor allows the buffer to begin with: then nobody says what was before.
    """
    first = audits[0]
    signed = first.first_keys is not None and first.first_keys.sign is not None
    report.first_key = first.first_keys.sign if first.first_keys else None
    file = directory.keys.name
    try:
        content = directory.keys.read_bytes()
    except FileNotFoundError:
        if signed and first.first > 1 and start is None:
            report.first_key = None
            report.add(file, Fault("signatures", 0, None, "it is missing, and has the keys of what was retired"))
        return None
    report.bytes_checked += len(content)
    puts, damage = split_key_line(content)
    line = check_key_line(content, [put for put in puts if put[0] < first.first], first.fixed)
    faults = [*line.faults, *([damage] if damage else [])]
    if signed and start is None and first.first > 1 and line.first_seq != 1:
        faults.append(Fault("signatures", 0, None, "it does not begin with the first PUT of the buffer"))
    faults += _differing(directory, content, [put for put in puts if put[0] >= first.first], audits)
    for fault in faults:
        # What it says of keys is all that a signed buffer needs it for.
        kind = "signatures" if signed and fault.kind in ("bytes", "chain") else fault.kind
        report.add(file, fault._replace(kind=kind))
    report.signatures += line.signatures
    report.recoveries += line.recoveries
    if first.first == 1:
        return None
    report.first_key = line.first_keys.sign if line.first_keys and line.first_seq == 1 else None
    return None if damage else line.keys


def _differing(
    directory: BufferDirectory, content: bytes, puts: list[tuple[int, Record]], audits: list[SegmentAudit]
) -> list[Fault]:
    """PUTs of segments that are to go and did not yet (a retirement was interrupted), and that are not theirs."""
    known, listed = {audit.first for audit in audits}, directory.segment_firsts()
    faults = []
    for first in sorted({first for first, _ in puts}):
        kept = b"".join(content[put.start : put.end] for seq, put in puts if seq == first)
        if first in listed and kept != puts_of(directory, first):
            faults.append(Fault("chain", 0, None, f"it has another PUT of segment {first} than the segment"))
        elif first not in listed and first not in known:  # else it was retired meanwhile
            faults.append(Fault("chain", 0, None, f"it has a PUT of a segment {first} that is not there"))
    return faults
