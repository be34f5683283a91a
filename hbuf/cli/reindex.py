"""hbuf-reindex: makes indexes, tags files and the producers file anew."""

from __future__ import annotations

from hbuf.cli.program import Buffers, Timeout, Version, noticer, program, run, seconds
from hbuf.ops.reindex import reindex

NAME = "hbuf-reindex"


def reindex_command(buffers: Buffers, timeout: Timeout = "30s", version: Version = False) -> None:
    """Make everything that is rebuildable anew from the segments."""
    for buffer in buffers:
        reindex(buffer, timeout_seconds=seconds(timeout), notice=noticer(f"{NAME}: {buffer}"))


app = program(NAME, reindex_command, "Example: hbuf-reindex ./orders")


def main() -> None:
    run(app, NAME)
