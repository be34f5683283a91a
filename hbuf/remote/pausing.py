"""A pause over HTTPS. One that lasts as long as a command does is a lease: a thread renews it, and without it it ends.

So a machine that dies, or a network that is cut, holds no buffer still for longer than a lease.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from hbuf.errors import HbufError, PauseLost, Unavailable
from hbuf.remote.buffer import RemoteBuffer

_LEASE_SECONDS = 30
_RENEW_SECONDS = 8.0
_JSON = {"content-type": "application/json"}


class RemoteHold:
    """A pause that is ours, renewed until it is released."""

    fds: tuple[int, ...] = ()  # the command needs no file of ours: without us the lease runs out

    def __init__(self, buffer: RemoteBuffer, why: str, lease: str) -> None:
        self.shown = buffer.shown
        self._buffer = buffer
        self._body = json.dumps({"why": why, "lease_seconds": _LEASE_SECONDS, "lease": lease}).encode()
        self._lease = lease
        self._lost = False
        self._done = threading.Event()
        self._renewing = threading.Thread(target=self._renew, daemon=True)
        self._renewing.start()

    def release(self) -> bool:
        """Ends the pause. False where it did not hold all the time."""
        self._done.set()
        self._renewing.join()
        with self._buffer.connect() as connection:
            try:
                connection.request("DELETE", "/paused", {"lease": self._lease})
            except PauseLost:
                return False
        return not self._lost

    def keep(self) -> None:
        self._done.set()

    def _renew(self) -> None:
        with self._buffer.connect() as connection:
            while not self._done.wait(_RENEW_SECONDS):
                try:
                    connection.request("PUT", "/paused", headers=_JSON, body=self._body)
                except PauseLost:
                    self._lost = True
                    return
                except HbufError:
                    continue  # the lease is longer than this takes to be tried again


def pause(buffer: RemoteBuffer, *, why: str, timeout_seconds: float, lease: bool) -> RemoteHold | None:
    """Pauses. None where it stays paused until somebody resumes it: without `lease`, or where it was so before."""
    values: dict[str, Any] = {"why": why}
    if lease:
        values["lease_seconds"] = _LEASE_SECONDS
    with buffer.connect(timeout_seconds) as connection:
        answer = connection.request("PUT", "/paused", headers=_JSON, body=json.dumps(values).encode())
    found = answer.json()
    if answer.status != 201:
        if not answer.again or lease:
            buffer.notice(f"is paused already {_described(found.get('paused'))}")
        return None
    if not lease:
        return None
    if not isinstance(found.get("lease"), str):
        raise Unavailable(f"{buffer.shown}: the server's answer names no lease")
    return RemoteHold(buffer, why, found["lease"])


def _described(marker: Any) -> str:
    if not isinstance(marker, dict):
        return "by somebody"
    reason = f": {marker['why']}" if marker.get("why") else ""
    return f"by {marker.get('who')} at {marker.get('when')} on {marker.get('host')}{reason}"


def resume(buffer: RemoteBuffer, timeout_seconds: float) -> None:
    """Ends a pause, whoever set it."""
    with buffer.connect(timeout_seconds) as connection:
        connection.request("DELETE", "/paused")
