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
from hbuf.daemon.callers import Action, Caller, Callers
from hbuf.daemon.config import Config
from hbuf.daemon.leases import Leases
from hbuf.daemon.metrics import Metrics
from hbuf.daemon.stopping import Stopping
from hbuf.daemon.trails import Trails

LOG = logging.getLogger("hbuf.daemon")


@dataclass(slots=True)
class Serving:
    """What all requests share."""

    config: Config
    buffers: Buffers
    callers: Callers
    ready: Callable[[], bool]
    leases: Leases
    metrics: Metrics
    stopping: Stopping
    trails: Trails
    openapi: bytes = b""
    event_streams: int = 0  # that are open now


@dataclass(slots=True)
class Call:
    request: web.Request
    serving: Serving
    caller: Caller
    tenant: str
    buffer: str  # empty where the route names none
    rest: str  # a message's number or a file's name, where the route has one
    query: str  # as it came
    who_is: Callable[[], Caller]  # asks again, for an answer that goes on: a user may have been revoked

    @property
    def where(self) -> Where:
        return Where(self.tenant, self.buffer)

    @property
    def who(self) -> str:
        """The user, for people; a user of the server is not one of the tenant's of the same name."""
        return f"+{self.caller.name}" if self.caller.everywhere else self.caller.name

    async def note(self, what: str, **details: object) -> None:
        """Into the tenant's audit trail."""
        await self.serving.trails.note(self.tenant, self.who, what, self.buffer or None, **details)


Handler = Callable[[Call], Awaitable[web.StreamResponse]]
# `open`: to anybody. `anything`: whoever may operate some buffer of the tenant. `list`: whoever may see some.
Needs = Action | Literal["open", "anything", "list"]


class Method(NamedTuple):
    needs: Needs
    handler: Handler
