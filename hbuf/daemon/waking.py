"""Wakes readers that wait for messages: at once by the daemon's own appends, and through watchdog by others'.

It lives on the event loop. A folder is watched while somebody waits for it. Each watched folder costs a thread, and
the system has only so many watches: beyond that, others' appends are looked for now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MOST_WATCHES = 256
_POLL_SECONDS = 0.25
# How long a folder stays watched when nobody waits any more: a reader that polls comes back at once.
_KEEP_SECONDS = 10.0


class Waiter:
    """One that waits. Armed before it looks, it misses nothing that comes after."""

    def __init__(self, poll: bool) -> None:
        self._woken = asyncio.Event()
        self._poll = poll

    def arm(self) -> None:
        """What happens from here on wakes."""
        self._woken.clear()

    def wake(self) -> None:
        self._woken.set()

    async def wait(self, seconds: float) -> bool:
        """Whether it is worth looking: something happened, or it is time to look."""
        try:
            async with asyncio.timeout(min(seconds, _POLL_SECONDS) if self._poll else seconds):
                await self._woken.wait()
        except TimeoutError:
            return self._poll and seconds > _POLL_SECONDS
        return True


class Waking:
    def __init__(self) -> None:
        self._waiters: dict[Path, set[Waiter]] = {}
        self._watches: dict[Path, Any] = {}
        self._observer: Any = None
        self._handlers: dict[Path, asyncio.TimerHandle] = {}  # that end a watch nobody needs any more

    @property
    def count(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiters.values()))

    @contextlib.contextmanager
    def waiting(self, folder: Path) -> Iterator[Waiter]:
        waiter = Waiter(poll=not self._watch(folder))
        self._waiters.setdefault(folder, set()).add(waiter)
        try:
            yield waiter
        finally:
            left = self._waiters[folder]
            left.discard(waiter)
            if not left:
                del self._waiters[folder]
                if folder in self._watches:
                    loop = asyncio.get_running_loop()
                    self._handlers[folder] = loop.call_later(_KEEP_SECONDS, self._unwatch, folder)

    def wake(self, folder: Path) -> None:
        for waiter in self._waiters.get(folder, ()):
            waiter.wake()

    def wake_all(self) -> None:
        for folder in self._waiters:
            self.wake(folder)

    def close(self) -> None:
        for handle in self._handlers.values():
            handle.cancel()
        if self._observer is not None:
            self._observer.stop()

    def _watch(self, folder: Path) -> bool:
        """Whether the system tells of changes in `folder`."""
        handle = self._handlers.pop(folder, None)
        if handle is not None:
            handle.cancel()
        if folder in self._watches:
            return True
        if len(self._watches) >= _MOST_WATCHES:
            return False
        with contextlib.suppress(OSError):  # no watch left, or no such folder
            self._watches[folder] = self._schedule(folder)
            return True
        return False

    def _unwatch(self, folder: Path) -> None:
        self._handlers.pop(folder, None)
        if folder not in self._waiters and folder in self._watches:
            with contextlib.suppress(KeyError, OSError):  # the folder is gone, and its watch with it
                self._observer.unschedule(self._watches.pop(folder))

    def _schedule(self, folder: Path) -> Any:
        from watchdog.events import (
            FileCreatedEvent,
            FileModifiedEvent,
            FileMovedEvent,
            FileSystemEvent,
            FileSystemEventHandler,
        )
        from watchdog.observers import Observer

        loop, wake = asyncio.get_running_loop(), self.wake

        class Wake(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(wake, folder)

        if self._observer is None:
            # It logs what is no news, such as an event that came while it was being stopped.
            logging.getLogger("watchdog").addHandler(logging.NullHandler())
            self._observer = Observer()
            self._observer.daemon = True
            self._observer.start()
        # Not opening and closing: our own reading would wake.
        wanted: list[type[FileSystemEvent]] = [FileCreatedEvent, FileModifiedEvent, FileMovedEvent]
        return self._observer.schedule(Wake(), str(folder), event_filter=wanted)
