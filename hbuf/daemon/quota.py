"""How much each tenant has, where there is a limit to it: looked up on disk now and then, counted on between."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from hbuf.daemon.config import Config
from hbuf.errors import OverQuota

_LOOK_SECONDS = 60.0


class Quotas:
    """Bytes of all files of a tenant's buffers, by the tenant's name."""

    def __init__(self, measure: Callable[[str], Awaitable[int]]) -> None:
        self._measure = measure
        self._bytes: dict[str, int] = {}
        self._looked: dict[str, float] = {}

    async def require_room(self, config: Config, tenant: str, size: int) -> None:
        most = config.quota_of(tenant).max_bytes
        if most is None:
            return
        if time.monotonic() - self._looked.get(tenant, float("-inf")) > _LOOK_SECONDS:
            self._looked[tenant] = time.monotonic()
            self._bytes[tenant] = await self._measure(tenant)
        if self._bytes.get(tenant, 0) + size > most:
            self._looked[tenant] = min(self._looked[tenant], time.monotonic() - _LOOK_SECONDS + 1)  # soon again
            raise OverQuota(
                f"tenant {tenant} may have {most} bytes, and that is used up", hint="retiring or erasing makes room"
            )

    def add(self, tenant: str, size: int) -> None:
        if tenant in self._bytes:
            self._bytes[tenant] += size

    def known(self) -> dict[str, int]:
        return dict(self._bytes)


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
