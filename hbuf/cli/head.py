"""hbuf-head: prints the newest head of a signed buffer, to be kept elsewhere."""

from __future__ import annotations

import sys

from hbuf.cli.program import Buffer, Version, program, run
from hbuf.ops.head import head

NAME = "hbuf-head"


def head_command(buffer: Buffer, version: Version = False) -> None:
    """Print the newest head of a signed buffer, as a signed note."""
    sys.stdout.write(head(buffer))


app = program(NAME, head_command, "Example: hbuf-head ./orders | ssh vault 'cat > orders.note'")


def main() -> None:
    run(app, NAME)
