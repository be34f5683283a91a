"""What users and operators of a tenant changed: the buffer `_audit`, chained and verifiable like any other.

Ordinary reads and appends are not noted. No token, key or message is ever given to it.
"""

from __future__ import annotations

import os
from pathlib import Path

from hbuf.errors import HbufError
from hbuf.format import names
from hbuf.ops.own_log import OwnLog
from hbuf.store import fsops
from hbuf.store.create import make_directories_like


class AuditTrail:
    """That of one tenant. Taken by several threads; nothing is made before there is something to note."""

    def __init__(self, tenant_directory: Path) -> None:
        self._path = tenant_directory / names.BUFFERS / names.AUDIT
        self._log = OwnLog(self._path)

    def note(self, who: str, what: str, buffer: str | None = None, **details: object) -> None:
        """On disk when it returns. What raises was not noted, and whoever changes something must say so."""
        values: dict[str, object] = {"who": who, "what": what}
        if buffer is not None:
            values["buffer"] = buffer
        tags = {name: str(value) for name, value in values.items()}
        try:
            # Whoever makes the first entry, the daemon can write the next one.
            with fsops.os_errors(self._path):
                if not os.path.isdir(self._path):
                    make_directories_like(self._path)
            self._log.append({**values, **details}, tags)
        except HbufError as error:
            raise type(error)(f"the audit trail cannot be written: {error.message}", hint=error.hint) from error

    def close(self) -> None:
        self._log.close()
