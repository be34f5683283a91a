"""hbuf-head: prints the newest head of a signed buffer, to be kept elsewhere."""

from __future__ import annotations

import sys

from hbuf.cli.place import CaCert, Cert, Options, TokenFile, place_of
from hbuf.cli.program import Buffer, Version, program, run
from hbuf.ops.head import head

NAME = "hbuf-head"


def head_command(
    buffer: Buffer,
    cacert: CaCert = None,
    cert: Cert = None,
    token_file: TokenFile = None,
    version: Version = False,
) -> None:
    """Print the newest head of a signed buffer, as a signed note."""
    sys.stdout.write(head(place_of(NAME, buffer, Options(cacert, cert, token_file))))


app = program(NAME, head_command, "Example: hbuf-head ./orders | ssh vault 'cat > orders.note'")


def main() -> None:
    run(app, NAME)
