"""Wakes whoever waits when something is written into one of some folders: inotify through watchdog."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class Watch:
    """Raises OSError where the system has no watch left to give."""

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        from watchdog.events import (
            FileCreatedEvent,
            FileModifiedEvent,
            FileMovedEvent,
            FileSystemEvent,
            FileSystemEventHandler,
        )
        from watchdog.observers import Observer

        # It logs what is no news, such as an event that came while it was being stopped.
        logging.getLogger("watchdog").addHandler(logging.NullHandler())
        self._woken = woken = threading.Event()

        class Wake(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                woken.set()

        self._wake = Wake()
        # Not opening and closing: our own reading would wake us.
        self._wanted: list[type[FileSystemEvent]] = [FileCreatedEvent, FileModifiedEvent, FileMovedEvent]
        self._watched: dict[Path, Any] = {}
        self._observer = Observer()
        self._observer.daemon = True
        self.only(folders)
        self._observer.start()

    def only(self, folders: Iterable[Path]) -> None:
        """Watches these folders and no others."""
        wanted = set(folders)
        for gone in self._watched.keys() - wanted:
            self._observer.unschedule(self._watched.pop(gone))
        for new in wanted - self._watched.keys():
            self._watched[new] = self._observer.schedule(self._wake, str(new), event_filter=self._wanted)

    def clear(self) -> None:
        """What happens from here on wakes."""
        self._woken.clear()

    def wake(self) -> None:
        self._woken.set()

    def wait(self, timeout_seconds: float | None = None) -> None:
        self._woken.wait(timeout_seconds)

    def close(self) -> None:
        self._observer.stop()
