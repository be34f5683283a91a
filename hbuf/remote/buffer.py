"""A buffer on a server, as a command names it: where it is, and how to get in. Opening it is what costs time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hbuf.remote.access import Access
from hbuf.remote.location import Location

if TYPE_CHECKING:
    from hbuf.remote.connection import Connection

_PATIENCE_SECONDS = 10.0


def _nobody(line: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class RemoteBuffer:
    location: Location
    access: Access
    notice: Callable[[str], None] = _nobody  # what there is to say beside a result

    @property
    def shown(self) -> str:
        return self.location.shown

    @property
    def name(self) -> str:
        return self.location.buffer or ""

    def connect(self, patience_seconds: float = _PATIENCE_SECONDS) -> Connection:
        from hbuf.remote.connection import Connection

        return Connection(self.location, self.access, patience_seconds=patience_seconds, notice=self.notice)
