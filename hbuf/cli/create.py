"""hbuf-create: makes a buffer."""

from __future__ import annotations

from typing import Annotated

import typer

from hbuf.cli.program import Buffer, Version, assignments, program, run
from hbuf.ops.create import create

NAME = "hbuf-create"


def create_command(
    buffer: Buffer,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting, like segment_bytes=16MiB.")
    ] = None,
    version: Version = False,
) -> None:
    """Make a buffer, with the directories above it."""
    create(buffer, assignments(settings or []))


app = program(NAME, create_command, "Example: hbuf-create ./orders --set hash=sha256")


def main() -> None:
    run(app, NAME)
