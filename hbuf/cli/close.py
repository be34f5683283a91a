"""hbuf-close: closes a buffer for writing, or opens it again."""

from __future__ import annotations

from typing import Annotated

import typer

from hbuf.cli.program import Buffer, Timeout, Version, program, run, seconds
from hbuf.ops.close import close, reopen

NAME = "hbuf-close"


def close_command(
    buffer: Buffer,
    open_again: Annotated[bool, typer.Option("--reopen", help="Open it again.")] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; shown to who is refused.")] = "",
    timeout: Timeout = "30s",
    version: Version = False,
) -> None:
    """Close a buffer for writing. Reading goes on."""
    if open_again:
        reopen(buffer, timeout_seconds=seconds(timeout))
    else:
        close(buffer, reason=reason, timeout_seconds=seconds(timeout))


app = program(NAME, close_command, "Example: hbuf-close ./orders-2025 --reason 'the year is over'")


def main() -> None:
    run(app, NAME)
