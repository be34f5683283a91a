"""hbuf-reindex: makes indexes, tags files and the producers file anew."""

from __future__ import annotations

from hbuf.cli.program import Buffers, Timeout, Version, each_buffer, noticer, program, run, seconds
from hbuf.errors import Damaged
from hbuf.ops.reindex import reindex

NAME = "hbuf-reindex"


def reindex_command(buffers: Buffers, timeout: Timeout = "30s", version: Version = False) -> int:
    """Make everything that is rebuildable anew from the segments."""
    timeout_seconds = seconds(timeout)

    def reindex_one(buffer: str) -> int:
        whole = reindex(buffer, timeout_seconds=timeout_seconds, notice=noticer(f"{NAME}: {buffer}"))
        return 0 if whole else Damaged.exit_code

    return each_buffer(NAME, buffers, reindex_one)


app = program(NAME, reindex_command, "Example: hbuf-reindex ./orders")


def main() -> None:
    run(app, NAME)
