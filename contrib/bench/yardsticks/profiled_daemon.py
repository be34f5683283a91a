"""hbufd under cProfile, in all of its threads. Usage: profiled_daemon.py FILE HBUFD-ARGUMENT...

When it ends, FILE has what took the most time by itself, and what did with all that it called, as text. cProfile
makes small functions look dearer than they are: it is there to say where the time goes, not how much there is.
`get` of a queue, `acquire` of a lock and `run` of the loop are, for the most part, waiting.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import threading
from collections.abc import Callable
from pathlib import Path

_LINES = 60


def main() -> None:
    file = Path(sys.argv[1])
    sys.argv = ["hbufd", *sys.argv[2:]]
    profiles = [cProfile.Profile()]
    _profile_threads(profiles)
    from hbuf.cli.hbufd import main as hbufd

    try:
        profiles[0].runcall(hbufd)
    finally:
        with file.open("w") as out:
            stats = pstats.Stats(*profiles, stream=out)
            for order in ("tottime", "cumulative"):
                stats.sort_stats(order).print_stats(_LINES)


def _profile_threads(profiles: list[cProfile.Profile]) -> None:
    """A profile is of one thread, so each gets one when it begins."""
    run: Callable[[threading.Thread], None] = threading.Thread.run

    def profiled(thread: threading.Thread) -> None:
        profile = cProfile.Profile()
        profiles.append(profile)
        profile.runcall(run, thread)

    threading.Thread.run = profiled  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    main()
