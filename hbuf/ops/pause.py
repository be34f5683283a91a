"""Pausing: nothing in the directory changes, by any command, until it is resumed or the command is done."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from hbuf.errors import Locked, Paused
from hbuf.remote.buffer import RemoteBuffer
from hbuf.store.clock import SystemClock
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
from hbuf.store.lock import Lock
from hbuf.store.markers import Marker, is_same_marker, read_marker, remove_marker, write_marker

_POLL_SECONDS = 0.05


class Holding(Protocol):
    """A pause that is ours, of a directory or on a server."""

    @property
    def shown(self) -> str: ...

    @property
    def fds(self) -> tuple[int, ...]:
        """Whoever has these open keeps it: they are for the command."""

    def release(self) -> bool:
        """Ends the pause. False where it did not hold all the time."""

    def keep(self) -> None:
        """Leaves it as it is."""


@dataclass(slots=True)
class Hold:
    """A pause that is ours. Whoever has `fd` open keeps it: pass it on to the command."""

    directory: BufferDirectory
    fd: int

    @property
    def shown(self) -> str:
        return self.directory.shown

    @property
    def fds(self) -> tuple[int, ...]:
        return (self.fd,)

    def keep(self) -> None:
        os.close(self.fd)

    def release(self) -> bool:
        """Ends the pause. False where it had been ended by somebody else: then it did not hold all the time."""
        try:
            with _exclusive(self.directory, time.monotonic() + 5):
                if not is_same_marker(self.fd, self.directory.paused):
                    return False
                remove_marker(self.directory.paused)
                return True
        finally:
            os.close(self.fd)


def hold_still(
    place: str | RemoteBuffer,
    *,
    reason: str,
    timeout_seconds: float,
    command: str | None = None,
    notice: Callable[[str], None] = lambda line: None,
) -> Holding | None:
    """Pauses what lies in a directory or on a server. None where it is paused by hand already, and stays so."""
    if not isinstance(place, RemoteBuffer):
        return pause(place, reason=reason, timeout_seconds=timeout_seconds, command=command, notice=notice)
    from hbuf.remote import pausing

    return pausing.pause(place, why=reason, timeout_seconds=timeout_seconds, lease=command is not None)


def let_go_on(place: str | RemoteBuffer, *, timeout_seconds: float) -> None:
    """Ends a pause, whoever set it."""
    if not isinstance(place, RemoteBuffer):
        resume(place, timeout_seconds=timeout_seconds)
        return
    from hbuf.remote import pausing

    pausing.resume(place, timeout_seconds)


def pause(
    path: str,
    *,
    reason: str,
    timeout_seconds: float,
    command: str | None = None,
    who: str | None = None,
    notice: Callable[[str], None] = lambda line: None,
) -> Hold | None:
    """Pauses once the batch that is being written is done. None where it is paused by hand already, and stays so."""
    directory = BufferDirectory(path)
    directory.require()
    deadline = time.monotonic() + timeout_seconds
    there: Marker | None = None
    while True:
        try:
            with _exclusive(directory, deadline):
                there = read_marker(directory.paused)
                if there is None or there.stale:
                    fd = write_marker(directory.paused, reason, SystemClock().now_us(), command, who=who)
                    return Hold(directory, fd)
        except Locked:
            if there is None:
                raise
        if there.command is None:
            notice(f"is paused already {there.describe()}")
            return None
        if time.monotonic() >= deadline:
            raise Paused(f"{directory.shown}: is paused by another command {there.describe()}")
        time.sleep(_POLL_SECONDS)


def resume(path: str, *, timeout_seconds: float) -> bool:
    """Ends a pause, whoever set it. False where there was none."""
    directory = BufferDirectory(path)
    directory.require()
    with _exclusive(directory, time.monotonic() + timeout_seconds):
        if read_marker(directory.paused) is None:
            return False
        remove_marker(directory.paused)
        return True


@contextlib.contextmanager
def _exclusive(directory: BufferDirectory, deadline: float) -> Iterator[None]:
    lock = Lock(directory)
    with os_errors(directory.shown):
        lock.acquire(deadline=deadline)
        try:
            yield
        finally:
            lock.close()
