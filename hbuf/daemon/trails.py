"""The audit trail of each tenant, opened when something is first noted there."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hbuf.format import names
from hbuf.ops.audit_trail import AuditTrail

# Of their own: a disk that stops holds up nothing but notes.
_THREADS = 8


class Trails:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._trails: dict[str, AuditTrail] = {}
        self._opening = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, "audit")

    async def note(self, tenant: str, who: str, what: str, buffer: str | None, **details: object) -> None:
        """On disk when it returns."""
        await asyncio.get_running_loop().run_in_executor(self._threads, self._note, tenant, who, what, buffer, details)

    def _note(self, tenant: str, who: str, what: str, buffer: str | None, details: dict[str, object]) -> None:
        with self._opening:
            trail = self._trails.get(tenant)
            if trail is None:
                trail = self._trails[tenant] = AuditTrail(self._root / names.TENANTS / tenant)
        trail.note(who, what, buffer, **details)

    def close(self) -> None:
        self._threads.shutdown()
        for trail in self._trails.values():
            trail.close()
