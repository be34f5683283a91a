"""hbuf-create: makes a buffer."""

from __future__ import annotations

from typing import Annotated

import typer

from hbuf.cli.key_options import EncryptTo, SignKey, public_of, recipients_of, signer_of
from hbuf.cli.place import CaCert, Cert, Options, TokenFile, place_of, refuse_for_url
from hbuf.cli.program import Buffer, Version, assignments, program, run
from hbuf.errors import UsageError
from hbuf.ops.create import create, create_remote
from hbuf.remote.buffer import RemoteBuffer

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
    cacert: CaCert = None,
    cert: Cert = None,
    token_file: TokenFile = None,
    version: Version = False,
) -> None:
    """Make a buffer, with the directories above it."""
    refuse_for_url(buffer, "--sign", sign, "--set sign=true makes a buffer that the server signs with its own key")
    place = place_of(NAME, buffer, Options(cacert, cert, token_file))
    if recovery is not None and sign is None and not isinstance(place, RemoteBuffer):
        raise UsageError("--recovery goes with --sign")
    recovery_key = public_of(recovery, "recovery") if recovery is not None else None
    if isinstance(place, RemoteBuffer):
        recipients = recipients_of(encrypt_to)
        create_remote(place, assignments(settings or []), recovery_key=recovery_key, recipients=recipients)
        return
    create(
        place,
        assignments(settings or []),
        signer=signer_of(sign),
        recovery_key=recovery_key,
        recipients=recipients_of(encrypt_to),
    )


app = program(NAME, create_command, "Example: hbuf-create ./orders --set hash=sha256")


def main() -> None:
    run(app, NAME)
