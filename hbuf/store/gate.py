"""The way in for whoever changes a buffer: the lock, and the markers that say that nobody may."""

from __future__ import annotations

import time
from collections.abc import Callable

from hbuf.errors import Closed, Locked, Paused
from hbuf.store.directory import BufferDirectory
from hbuf.store.lock import Lock
from hbuf.store.markers import Marker, read_marker, remove_marker

_POLL_SECONDS = 0.02
# A stream of batches leaves the lock alone for a moment now and then, longer than others take to look again.
_HOG_SECONDS = 0.5
_YIELD_SECONDS = 0.005


class Gate:
    """Not for two threads at once."""

    def __init__(self, directory: BufferDirectory, notice: Callable[[str], None]) -> None:
        self._directory = directory
        self._notice = notice
        self._lock = Lock(directory)
        self._busy_since = 0.0  # since when it has been taken again right after it was left
        self._left_at = 0.0

    def enter(self, timeout_seconds: float, *, even_closed: bool = False, wait_paused: bool = True) -> None:
        """Takes the lock of a buffer that is not paused (nor closed), waiting for it; else raises.

        Without `wait_paused` only other writers are waited for, not the end of a pause.
        """
        deadline = time.monotonic() + timeout_seconds
        self._yield_sometimes()
        pause: Marker | None = None
        while True:
            try:
                self._lock.acquire(deadline=deadline)
            except Locked:
                if pause is not None:  # others look now and then whether it is over, with the lock
                    raise self._paused(pause) from None
                raise
            try:
                pause = self._pause()
                if pause is None:
                    if not even_closed:
                        self._refuse_closed()
                    return
            except BaseException:
                self._lock.release()
                raise
            self._lock.release()
            if not wait_paused or time.monotonic() >= deadline:
                raise self._paused(pause)
            time.sleep(_POLL_SECONDS)

    def leave(self) -> None:
        self._lock.release()
        self._left_at = time.monotonic()

    def close(self) -> None:
        self._lock.close()

    def _yield_sometimes(self) -> None:
        now = time.monotonic()
        if now - self._left_at > _YIELD_SECONDS:
            self._busy_since = now
        elif now - self._busy_since > _HOG_SECONDS:
            time.sleep(_YIELD_SECONDS)
            self._busy_since = time.monotonic()

    def _pause(self) -> Marker | None:
        pause = read_marker(self._directory.paused)
        if pause is None or not pause.stale:
            return pause
        self._notice(f"the pause {pause.describe()} was left behind by a command that is gone: it is removed")
        remove_marker(self._directory.paused)
        return None

    def _paused(self, pause: Marker) -> Paused:
        return Paused(
            f"{self._directory.shown}: is paused {pause.describe()}",
            hint="hbuf-pause --resume ends a pause; a longer --timeout waits for its end",
        )

    def _refuse_closed(self) -> None:
        closed = read_marker(self._directory.closed)
        if closed:
            raise Closed(
                f"{self._directory.shown}: is closed for writing {closed.describe()}",
                hint="hbuf-close --reopen opens it again",
            )
