"""hbuf-create: makes a buffer."""

from __future__ import annotations

from typing import Annotated

import typer

from hbuf.cli.key_options import EncryptTo, SignKey, public_of, recipients_of, signer_of
from hbuf.cli.program import Buffer, Version, assignments, program, run
from hbuf.errors import UsageError
from hbuf.ops.create import create

NAME = "hbuf-create"


def create_command(
    buffer: Buffer,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting, like segment_bytes=16MiB.")
    ] = None,
    sign: SignKey = None,
    recovery: Annotated[
        str | None,
        typer.Option("--recovery", metavar="PUB", help="A public key that may replace a lost one: a NAME or a file."),
    ] = None,
    encrypt_to: EncryptTo = None,
    version: Version = False,
) -> None:
    """Make a buffer, with the directories above it."""
    if recovery is not None and sign is None:
        raise UsageError("--recovery goes with --sign")
    recovery_key = public_of(recovery, "recovery") if recovery is not None else None
    create(
        buffer,
        assignments(settings or []),
        signer=signer_of(sign),
        recovery_key=recovery_key,
        recipients=recipients_of(encrypt_to),
    )


app = program(NAME, create_command, "Example: hbuf-create ./orders --set hash=sha256")


def main() -> None:
    run(app, NAME)
