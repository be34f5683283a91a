"""hbuf-set: shows and changes a buffer's settings."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hbuf.cli.program import Buffer, Timeout, Version, assignments, noticer, program, run, seconds
from hbuf.format.settings import encode_settings
from hbuf.ops.set import read_settings, set_settings

NAME = "hbuf-set"


def set_command(
    buffer: Buffer,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Settings to change.", show_default=False)
    ] = None,
    timeout: Timeout = "30s",
    version: Version = False,
) -> None:
    """Change settings; without any, print them as JSON."""
    if changes:
        set_settings(
            buffer, assignments(changes), timeout_seconds=seconds(timeout), notice=noticer(f"{NAME}: {buffer}")
        )
    else:
        sys.stdout.write(encode_settings(read_settings(buffer)).decode())


app = program(NAME, set_command, "Example: hbuf-set ./orders segment_age=1d max_message_bytes=64MiB")


def main() -> None:
    run(app, NAME)
