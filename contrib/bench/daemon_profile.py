"""Where the daemon's time goes under 32 clients: cProfile in all of its threads."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.loading import append_load
from bench.serving.hbufd import HTTPS, make_buffers, serve_hbufd

_CLIENTS, _MOST = 32, 10_000_000


def profile_daemon(directory: Path, file: Path, seconds: float) -> None:
    """One message a request, over HTTPS, to one buffer. The file is written when the daemon has ended."""
    with serve_hbufd(directory, profile=file.absolute()) as servers:
        make_buffers(servers[HTTPS], "profiled")
        done = append_load(servers[HTTPS], ["profiled"], clients=_CLIENTS, batch=1, seconds=seconds, most=_MOST)
    said = f"{done.messages / done.seconds:,.0f} messages/s under the profile, which slows it down: see {file}"
    print(f"bench: {said}", file=sys.stderr)
