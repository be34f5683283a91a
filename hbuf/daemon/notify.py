"""What the daemon tells systemd: sd_notify(3) in a datagram, without its library.

Without `NOTIFY_SOCKET` nothing is told to anybody, and nothing here fails.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class Notifier:
    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        self._timer: asyncio.TimerHandle | None = None

    def ready(self, status: str) -> None:
        self._tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        # systemd tells an old READY=1 from the one that ends this reload by the time.
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str) -> None:
        self._tell("STOPPING=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        self._tell(f"STATUS={status}")

    def keep_alive(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tells the watchdog, as long as the event loop comes round in time."""
        seconds = _watchdog_seconds()
        if self._address and seconds:
            self._again(loop, lambda: self._tell("WATCHDOG=1"), seconds / 2)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _again(self, loop: asyncio.AbstractEventLoop, work: Callable[[], None], seconds: float) -> None:
        work()
        self._timer = loop.call_later(seconds, self._again, loop, work, seconds)

    def _tell(self, *lines: str) -> None:
        if not self._address.startswith(("/", "@")):
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        message = "\n".join(" ".join(line.split("\n")) for line in lines)
        # Whoever started it may be gone, or slow: that is no reason to stop serving.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(message.encode("utf-8", "replace"), address)


def _watchdog_seconds() -> float:
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    meant = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(microseconds) / 1_000_000 if meant and microseconds.isascii() and microseconds.isdigit() else 0
