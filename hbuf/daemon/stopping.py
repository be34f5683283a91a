"""The end of the daemon: whoever waits for messages is woken, and answers with what there is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


class Stopping:
    def __init__(self) -> None:
        self.asked = False
        self._waiting: set[asyncio.Future[bool]] = set()

    async def wait(self, for_messages: Awaitable[bool]) -> bool:
        """What the wait says; False at once where the daemon stops."""
        waiting = asyncio.ensure_future(for_messages)
        if self.asked:
            waiting.cancel()
        self._waiting.add(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if self.asked and waiting.cancelled():
                return False
            raise
        finally:
            self._waiting.discard(waiting)

    def stop(self) -> None:
        self.asked = True
        for waiting in list(self._waiting):
            waiting.cancel()

    @property
    def waiting(self) -> int:
        return len(self._waiting)
