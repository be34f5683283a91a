"""How much each tenant has, where there is a limit to it: looked up on disk now and then, counted on between."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from hbuf.daemon.config import Config
from hbuf.errors import OverQuota

_LOOK_SECONDS = 60.0
_SOON_SECONDS = 1.0


class Quotas:
    """Bytes of all files of a tenant's buffers, by the tenant's name."""

    def __init__(self, measure: Callable[[str], Awaitable[int]]) -> None:
        self._measure = measure
        self._bytes: dict[str, int] = {}
        self._look_again: dict[str, float] = {}  # when
        self._looking: dict[str, asyncio.Task[None]] = {}

    async def bytes_of(self, tenant: str) -> int:
        """As of a minute ago at most, and with what was appended since."""
        if time.monotonic() >= self._look_again.get(tenant, float("-inf")):
            looking = self._looking.get(tenant)
            if looking is None:
                looking = self._looking[tenant] = asyncio.get_running_loop().create_task(self._look(tenant))
            await asyncio.shield(looking)
        return self._bytes[tenant]

    async def require_room(self, config: Config, tenant: str, size: int) -> None:
        most = config.quota_of(tenant).max_bytes
        if most is not None and await self.bytes_of(tenant) + size > most:
            # Something may be retired or erased, so it is looked at again soon.
            self._look_again[tenant] = min(self._look_again[tenant], time.monotonic() + _SOON_SECONDS)
            raise OverQuota(
                f"tenant {tenant} may have {most} bytes, and that is used up", hint="retiring or erasing makes room"
            )

    def add(self, tenant: str, size: int) -> None:
        if tenant in self._bytes:
            self._bytes[tenant] += size

    async def _look(self, tenant: str) -> None:
        try:
            self._bytes[tenant] = await self._measure(tenant)
            self._look_again[tenant] = time.monotonic() + _LOOK_SECONDS
        finally:
            del self._looking[tenant]


def bytes_below(folder: Path) -> int:
    """The sizes of all files in a tree. What goes away meanwhile counts as nothing."""
    total = 0
    folders = [os.fspath(folder)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return total
