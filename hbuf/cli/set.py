"""hbuf-set: shows and changes a buffer's settings."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hbuf.cli.key_options import EncryptTo, SignKey, recipients_of, recovery_of, signer_of
from hbuf.cli.place import CaCert, Cert, Options, TokenFile, place_of, refuse_for_url
from hbuf.cli.program import Buffer, Timeout, Version, assignments, noticer, program, run, seconds
from hbuf.errors import UsageError
from hbuf.format.settings import encode_settings
from hbuf.ops.set import read_settings, set_settings

NAME = "hbuf-set"


def set_command(
    buffer: Buffer,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Settings to change.", show_default=False)
    ] = None,
    sign: SignKey = None,
    recovery: Annotated[
        str | None,
        typer.Option("--recovery", metavar="KEY", help="The recovery key: --sign's key is new, and takes over."),
    ] = None,
    encrypt_to: EncryptTo = None,
    not_to: Annotated[
        list[str] | None,
        typer.Option("--not-to", metavar="PUB", help="Encrypt to this key no longer: a NAME or a file."),
    ] = None,
    timeout: Timeout = "30s",
    cacert: CaCert = None,
    cert: Cert = None,
    token_file: TokenFile = None,
    version: Version = False,
) -> None:
    """Change settings; without any, print them as JSON."""
    if recovery is not None and sign is None:
        raise UsageError("--recovery goes with --sign")
    refuse_for_url(buffer, "--sign", sign, "the server signs with its own key")
    place = place_of(NAME, buffer, Options(cacert, cert, token_file))
    added, removed = recipients_of(encrypt_to), recipients_of(not_to)
    if changes or recovery is not None or added or removed:
        set_settings(
            place,
            assignments(changes or []),
            timeout_seconds=seconds(timeout),
            notice=noticer(f"{NAME}: {buffer}"),
            signer=signer_of(sign),
            recovery=recovery_of(recovery),
            added=added,
            removed=removed,
        )
    else:
        sys.stdout.write(encode_settings(read_settings(place)).decode())


app = program(NAME, set_command, "Example: hbuf-set ./orders segment_age=1d max_message_bytes=64MiB")


def main() -> None:
    run(app, NAME)
