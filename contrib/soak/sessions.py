"""All processes of a session: whatever a program that leads one has started, and what these have started."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    pid: int
    command: tuple[str, ...]
    parent: int


def processes_of(session: int) -> list[Process]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it ends just now
                # pid (program) state parent group session ...: a program's name may have blanks and brackets
                state, parent, _, of_session = (entry / "stat").read_text().rpartition(") ")[2].split()[:4]
                if int(of_session) == session and state not in "ZX":
                    words = os.fsdecode((entry / "cmdline").read_bytes()).split("\0")
                    found.append(Process(int(entry.name), tuple(words[:-1]), int(parent)))
    return sorted(found)


def kill_session(session: int) -> None:
    """None of its processes is left. One that starts others meanwhile is killed with them."""
    while processes := processes_of(session):
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.01)


def left_after(session: int, seconds: float) -> list[Process]:
    """What has not ended by itself after so long."""
    deadline = time.monotonic() + seconds
    while (processes := processes_of(session)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return processes
