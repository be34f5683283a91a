"""A server as a process: started, waited for until it serves, stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_START_SECONDS = 60
_STOP_SECONDS = 30


@contextlib.contextmanager
def started(argv: Sequence[str | Path], log: Path, serving: Callable[[], T | None]) -> Iterator[tuple[int, T]]:
    """The process, and what `serving` says once it serves. All that it prints goes to `log`."""
    with log.open("wb") as out:
        # In a session of its own: ^C is for us, who stop it. None of the user's own settings reach it.
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("HBUF_")},
        )
    try:
        yield process.pid, _wait_for(process, log, serving)
    finally:
        _stop(process)


def _wait_for(process: subprocess.Popen[bytes], log: Path, serving: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + _START_SECONDS
    while (found := serving()) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace").strip()
            raise SystemExit(f"bench: {process.args!r} does not serve\n{said}")
        time.sleep(0.02)
    return found


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    """One that was free a moment ago, for servers that cannot choose one themselves."""
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        port: int = any_port.getsockname()[1]
    return port


def answers(port: int) -> bool | None:
    """True when something listens there, None if not yet."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return None


def cpu_seconds(pid: int) -> float:
    """What the process took so far, in user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_megabytes(pid: int) -> float:
    return next(
        int(line.split()[1]) * 1024 / 1e6
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS:")
    )


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
