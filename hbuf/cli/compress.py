"""hbuf-compress: compresses the sealed segments of buffers."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hbuf.cli.program import Buffers, Timeout, Version, each_buffer, noticer, program, run, seconds
from hbuf.errors import Damaged
from hbuf.ops.compress import Compressed, compress

NAME = "hbuf-compress"


def compress_command(
    buffers: Buffers,
    level: Annotated[int, typer.Option("--level", metavar="N", min=1, max=19, help="1 is fast, 19 saves most.")] = 3,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print each segment, its bytes before and after.")
    ] = False,
    timeout: Timeout = "30s",
    version: Version = False,
) -> int:
    """Compress all segments but the newest. Everything is read as before."""

    def show(compressed: Compressed) -> None:
        sys.stdout.write(f"{compressed.file} {compressed.plain_bytes} {compressed.bytes}\n")
        sys.stdout.flush()

    timeout_seconds = seconds(timeout)

    def compress_one(buffer: str) -> int:
        whole = compress(
            buffer,
            level=level,
            timeout_seconds=timeout_seconds,
            notice=noticer(f"{NAME}: {buffer}"),
            done=show if verbose else lambda compressed: None,
        )
        return 0 if whole else Damaged.exit_code

    return each_buffer(NAME, buffers, compress_one)


app = program(NAME, compress_command, "Example: hbuf-compress -v ./orders")


def main() -> None:
    run(app, NAME)
