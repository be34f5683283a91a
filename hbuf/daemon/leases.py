"""Pauses that end by themselves: the daemon holds each as a command would, until its lease runs out.

When the daemon dies nobody holds its pauses any more, and the next writer takes them for stale.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from hbuf.daemon.buffers import Buffers, Where
from hbuf.errors import HbufError, PauseLost
from hbuf.ops.pause import Hold
from hbuf.store.markers import is_same_marker


@dataclass(slots=True)
class _Lease:
    where: Where
    hold: Hold
    timer: asyncio.TimerHandle


class Leases:
    """On the event loop."""

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        self._leases: dict[str, _Lease] = {}
        self._ending: set[asyncio.Task[bool]] = set()

    def grant(self, where: Where, hold: Hold, seconds: float) -> str:
        """Keeps a pause for so long. Returns the name of the lease, which only its holder knows."""
        name = secrets.token_urlsafe(16)
        self._leases[name] = _Lease(where, hold, self._timer(name, seconds))
        return name

    async def renew(self, where: Where, name: str, seconds: float) -> None:
        lease = self._leases.get(name)
        if lease is None or lease.where != where:
            raise _lost(where)
        lease.timer.cancel()
        lease.timer = self._timer(name, seconds)
        held = await asyncio.to_thread(is_same_marker, lease.hold.fd, lease.hold.directory.paused)
        if not held:
            await self._end(name)
            raise _lost(where)

    async def release(self, where: Where, name: str) -> None:
        lease = self._leases.get(name)
        if lease is None or lease.where != where or not await self._end(name):
            raise _lost(where)

    async def close(self) -> None:
        await asyncio.gather(*self._ending, *(self._end(name) for name in list(self._leases)))

    def _timer(self, name: str, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self._run_out, name)

    def _run_out(self, name: str) -> None:
        task = asyncio.get_running_loop().create_task(self._end(name))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, name: str) -> bool:
        """Ends a pause. False where it had not held all the time."""
        lease = self._leases.pop(name, None)
        if lease is None:
            return False
        lease.timer.cancel()
        try:
            return await asyncio.to_thread(lease.hold.release)
        except HbufError:
            return False  # its file is closed, so that it holds no longer


def _lost(where: Where) -> PauseLost:
    return PauseLost(f"{where.buffer}: the pause did not hold all the time", hint="what was done meanwhile may be torn")
