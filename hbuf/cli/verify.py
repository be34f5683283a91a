"""hbuf-verify: proves that nothing in a buffer was changed, or names the place."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated

import typer

from hbuf.cli.key_options import public_of
from hbuf.cli.place import CaCert, Cert, Options, TokenFile, place_of
from hbuf.cli.program import BuffersOrUrls, Version, each_buffer, program, run
from hbuf.cli.progress import progress
from hbuf.cli.streams import counted, printable
from hbuf.errors import Damaged
from hbuf.format.times import encode_time
from hbuf.ops.report import KINDS, PlacedFault, Report
from hbuf.ops.verify import expected_head, parse_expected, verify
from hbuf.version import VERSION

NAME = "hbuf-verify"


def verify_command(
    buffers: BuffersOrUrls,
    start: Annotated[
        str | None, typer.Option("--from", metavar="SEQ:ID", help="The buffer may begin here, with this id.")
    ] = None,
    head: Annotated[
        str | None, typer.Option("--head", metavar="SEQ:ID|FILE", help="A head that must be there: SEQ:ID or a note.")
    ] = None,
    signer: Annotated[
        str | None, typer.Option("--signer", metavar="PUB", help="The public key that must have signed: NAME or file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a buffer, for an auditor's file.")] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="N", min=1, help="Processes; all cores if not said.")
    ] = None,
    cacert: CaCert = None,
    cert: Cert = None,
    token_file: TokenFile = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no report: the exit code tells.")] = False,
    version: Version = False,
) -> int:
    """Check every byte: framing, chain, completeness, settings, index."""
    expected_start = parse_expected(start) if start is not None else None
    wanted_head = expected_head(head) if head is not None else None
    public = public_of(signer, "sign") if signer is not None else None

    def verify_one(buffer: str) -> int:
        place = place_of(NAME, buffer, Options(cacert, cert, token_file))
        with progress(quiet, "bytes") as shown:
            report = verify(place, start=expected_start, head=wanted_head, signer=public, jobs=jobs, progress=shown)
        if as_json:
            sys.stdout.write(_json(report) + "\n")
        elif not quiet:
            sys.stdout.write(_text(report))
        return 0 if report.ok else Damaged.exit_code

    return each_buffer(NAME, buffers, verify_one)


def _text(report: Report) -> str:
    verdict = "intact" if report.ok else "NOT INTACT"
    messages = counted(report.messages, "message", "messages")
    lines = [f"{printable(report.path)}: {verdict}: {messages}, last {report.last_seq} {report.last_id}"]
    said = {
        "bytes": f"{report.bytes_checked} in {counted(report.segments, 'segment', 'segments')}",
        "chain": messages + _also(report.verdicts["chain"], "erased") + _encrypted(report),
        "signatures": _signatures(report),
        "completeness": f"numbers {report.first_seq} to {report.last_seq}"
        + _also(report.verdicts["completeness"], "retired"),
        "settings": "buffer.json and the chain",
        "index": "indexes and tags files",
    }
    for kind in KINDS:
        faults = [fault for fault in report.faults if fault.kind == kind]
        count = report.fault_count(kind)
        lines.append(f"  {kind + ':':14}{said[kind]}: {counted(count, 'fault', 'faults') if count else 'ok'}")
        if faults:
            lines.append(f"    {faults[0]}")
    lines.extend(f"  not checked:  {count} {what}" for what, count in report.not_checked.items())
    lines.extend(f"  note:         {note}" for note in report.notes)
    return "\n".join(lines) + "\n"


def _also(verdicts: dict[str, int], verdict: str) -> str:
    return f", {verdicts[verdict]} {verdict}" if verdicts[verdict] else ""


def _encrypted(report: Report) -> str:
    return f", {report.encrypted} encrypted" if report.encrypted else ""


def _signatures(report: Report) -> str:
    if not report.signed:
        return "none"
    recovered = (
        f", {counted(report.recoveries, 'line', 'lines')} of keys by the recovery key" if report.recoveries else ""
    )
    return f"{report.signatures} right{recovered}"


def _json(report: Report) -> str:
    return json.dumps(
        {
            "program": NAME,
            "version": VERSION,
            "date": encode_time(time.time_ns() // 1000),
            "buffer": report.path,
            "uuid": report.uuid,
            "ok": report.ok,
            "scope": {
                "segments": report.segments,
                "bytes": report.bytes_checked,
                "messages": report.messages,
                "first": report.first_seq,
                "last": report.last_seq,
                "last_id": report.last_id,
                "last_time": report.last_time,
            },
            "faults": {
                kind: {
                    "count": report.fault_count(kind),
                    "places": [_place(fault) for fault in report.faults if fault.kind == kind][:100],
                }
                for kind in KINDS
            },
            "verdicts": report.verdicts,
            "signed": report.signed,
            "signatures": report.signatures,
            "recoveries": report.recoveries,
            "encrypted": report.encrypted,
            "not_checked": report.not_checked,
            "notes": report.notes,
        }
    )


def _place(fault: PlacedFault) -> dict[str, str | int | None]:
    return {
        "file": fault.file,
        "byte": fault.at,
        "seq": fault.seq,
        "reason": fault.reason,
        "verdict": fault.verdict,
    }


app = program(NAME, verify_command, "Example: hbuf-verify ./orders --head 42:14e42292c5a3...")


def main() -> None:
    run(app, NAME)
