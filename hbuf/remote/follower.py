"""Waiting for new messages over HTTPS: requests that the server answers when there is something, one after another.

Connections that break and daemons that restart are waited for: what was read goes on with the next number.
"""

from __future__ import annotations

import time

from hbuf.format.tags import Terms
from hbuf.remote.reader import RemoteReader


class RemoteFollower:
    def __init__(self, reader: RemoteReader, terms: Terms | None) -> None:
        self._reader = reader
        self._terms = terms

    def wait(self, end: int, timeout_seconds: float | None = None) -> int:
        """Returns when there are messages from `end` on, or the time is up: one more than the last number."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            found = self._reader.wait(end, left, self._terms)
            if found > end:
                return found
            if deadline is not None and time.monotonic() >= deadline:
                return end

    def close(self) -> None:
        pass
