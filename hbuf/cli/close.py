"""hbuf-close: closes a buffer for writing, or opens it again."""

from __future__ import annotations

from typing import Annotated

import typer

from hbuf.cli.place import CaCert, Cert, Options, TokenFile, place_of
from hbuf.cli.program import Buffer, Timeout, Version, program, run, seconds
from hbuf.ops.close import close, reopen

NAME = "hbuf-close"


def close_command(
    buffer: Buffer,
    open_again: Annotated[bool, typer.Option("--reopen", help="Open it again.")] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; shown to who is refused.")] = "",
    timeout: Timeout = "30s",
    cacert: CaCert = None,
    cert: Cert = None,
    token_file: TokenFile = None,
    version: Version = False,
) -> None:
    """Close a buffer for writing. Reading goes on."""
    place = place_of(NAME, buffer, Options(cacert, cert, token_file))
    if open_again:
        reopen(place, timeout_seconds=seconds(timeout))
    else:
        close(place, reason=reason, timeout_seconds=seconds(timeout))


app = program(NAME, close_command, "Example: hbuf-close ./orders-2025 --reason 'the year is over'")


def main() -> None:
    run(app, NAME)
