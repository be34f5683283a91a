"""One request as a route sees it: who asks, which tenant and buffer, and what the daemon has to answer with.

It knows of HTTP only what every route needs. A route turns it into plain values and calls what is below.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from aiohttp import web

from hbuf.daemon.buffers import Buffers, Where
from hbuf.daemon.callers import Caller, Callers
from hbuf.daemon.config import Config
from hbuf.daemon.leases import Leases
from hbuf.daemon.metrics import Metrics
from hbuf.daemon.stopping import Stopping
from hbuf.daemon.trails import Trails
from hbuf.format.users import Action

LOG = logging.getLogger("hbuf.daemon")


@dataclass(slots=True)
class Serving:
    """What all requests share."""

    buffers: Buffers
    callers: Callers
    ready: Callable[[], bool]
    leases: Leases
    metrics: Metrics
    stopping: Stopping
    trails: Trails
    openapi: bytes = b""
    event_streams: int = 0  # that are open now

    @property
    def config(self) -> Config:
        """As it is now: limits may change while the daemon runs."""
        return self.buffers.config


@dataclass(slots=True)
class Call:
    request: web.BaseRequest
    serving: Serving
    caller: Caller
    tenant: str
    buffer: str  # empty where the route names none
    rest: str  # a message's number or a file's name, where the route has one
    query: str  # as it came

    @property
    def where(self) -> Where:
        return Where(self.tenant, self.buffer)

    async def note(self, what: str, **details: object) -> None:
        """Into the tenant's audit trail."""
        await self.serving.trails.note(self.tenant, self.caller.who, what, self.buffer or None, **details)


Handler = Callable[[Call], Awaitable[web.StreamResponse]]
# `open`: to anybody. `anything`: whoever may operate some buffer of the tenant. `list`: whoever may see some.
Needs = Action | Literal["open", "anything", "list"]


class Method(NamedTuple):
    needs: Needs
    handler: Handler
