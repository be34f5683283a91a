"""The audit trail of each tenant, opened when something is first noted there."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from hbuf.format import names
from hbuf.ops.audit_trail import AuditTrail


class Trails:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._trails: dict[str, AuditTrail] = {}
        self._opening = threading.Lock()

    async def note(self, tenant: str, who: str, what: str, buffer: str | None, **details: object) -> None:
        """On disk when it returns."""
        await asyncio.to_thread(self._note, tenant, who, what, buffer, details)

    def _note(self, tenant: str, who: str, what: str, buffer: str | None, details: dict[str, object]) -> None:
        with self._opening:
            trail = self._trails.get(tenant)
            if trail is None:
                trail = self._trails[tenant] = AuditTrail(self._root / names.TENANTS / tenant)
        trail.note(who, what, buffer, **details)

    def close(self) -> None:
        for trail in self._trails.values():
            trail.close()
