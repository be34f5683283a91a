"""The access log: a line for each request, without bodies and credentials.

Of the query only the names are kept, and the values that can hold no secret.
"""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from hbuf.daemon.credentials import CALLER, TENANT
from hbuf.daemon.logs import said

# A path that is longer than any of ours says no more for being told whole.
_MOST_PATH = 512
_TOLD = frozenset({"from", "to", "max", "wait", "split", "lease_seconds", "dry_run"})


class AccessLog(AbstractAccessLogger):
    @property
    def enabled(self) -> bool:
        return self.logger.isEnabledFor(logging.INFO)

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        caller = request.get(CALLER)
        path, _, query = request.raw_path.partition("?")
        self.logger.info(
            "request",
            extra=said(
                method=request.method[:16],
                path=told(path, query),
                status=response.status,
                bytes=response.body_length,
                ms=round(time * 1000, 3),
                tenant=request.get(TENANT),
                user=getattr(caller, "name", None),
                peer=request.remote or "unix",
            ),
        )


def told(path: str, query: str) -> str:
    """A path and its query as the log has them."""
    short = path[:_MOST_PATH]
    if not query:
        return short
    return f"{short}?{'&'.join(map(_told_parameter, query[:_MOST_PATH].split('&')))}"


def _told_parameter(given: str) -> str:
    name, equals, value = given.partition("=")
    if not equals or not name:
        return "..."  # which is no name of a parameter, and may be anything
    return f"{name}={value if name in _TOLD else '...'}"
