"""hbuf-retire: removes the oldest segments of buffers, as their settings say."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated

import typer

from hbuf.cli.key_options import SignKey, signer_of
from hbuf.cli.program import Buffers, Timeout, Version, each_buffer, noticer, program, run, seconds
from hbuf.cli.streams import counted, printable
from hbuf.errors import UsageError
from hbuf.format.times import encode_time
from hbuf.ops.retire import retire
from hbuf.store.retention import Plan

NAME = "hbuf-retire"


def retire_command(
    buffers: Buffers,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only tell what would go, and why.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Tell what goes, one JSON object a buffer.")] = False,
    idle: Annotated[
        bool, typer.Option("--idle", help="Retire by age also what no message followed for that long.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept beside the rule.")] = "",
    sign: SignKey = None,
    timeout: Timeout = "30s",
    version: Version = False,
) -> int:
    """Remove the oldest segments, as retention_age, retention_bytes and retention_messages say."""
    if sign is not None and len(buffers) > 1:
        raise UsageError("a key serves one buffer: --sign goes with one BUF")
    timeout_seconds, signer = seconds(timeout), signer_of(sign)

    def retire_one(buffer: str) -> int:
        plan = retire(
            buffer,
            dry_run=dry_run,
            idle=idle,
            reason=reason,
            timeout_seconds=timeout_seconds,
            notice=noticer(f"{NAME}: {buffer}"),
            signer=signer,
        )
        if as_json:
            sys.stdout.write(_json(buffer, plan, dry_run) + "\n")
        elif dry_run:
            sys.stdout.write(f"{printable(buffer)}: {_text(plan)}\n")
        return 0

    return each_buffer(NAME, buffers, retire_one)


def _text(plan: Plan) -> str:
    if not plan.segments:
        return "nothing"
    segments = counted(len(plan.segments), "segment", "segments")
    why = plan.reason or "a retirement that was interrupted"
    return f"messages {plan.first} to {plan.end}, {plan.bytes} bytes in {segments}: {why}"


def _json(buffer: str, plan: Plan, dry_run: bool) -> str:
    goes = bool(plan.segments)
    return json.dumps(
        {
            "program": NAME,
            "date": encode_time(time.time_ns() // 1000),
            "buffer": buffer,
            "dry_run": dry_run,
            "segments": len(plan.segments),
            "bytes": plan.bytes,
            "messages": plan.messages,
            "first": plan.first if goes else None,
            "last": plan.end if goes else None,
            "last_id": plan.end_id.decode() if goes else None,
            "rule": plan.reason or None,
            "finishes": goes and not plan.reason,
            "held_back": plan.held_back or None,
        }
    )


app = program(NAME, retire_command, "Example: hbuf-retire /var/lib/hbuf/tenants/*/buffers/*")


def main() -> None:
    run(app, NAME)
