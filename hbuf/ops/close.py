"""Closing a buffer for writing, and opening it again."""

from __future__ import annotations

import os

from hbuf.remote.buffer import RemoteBuffer
from hbuf.store.clock import SystemClock
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
from hbuf.store.gate import Gate
from hbuf.store.markers import read_marker, remove_marker, write_marker


def close(
    path: str | RemoteBuffer, *, reason: str, timeout_seconds: float, who: str | None = None, wait_paused: bool = True
) -> bool:
    """Nobody may append any more. False where it was closed already."""
    if isinstance(path, RemoteBuffer):
        from hbuf.remote import verbs

        return verbs.close(path, reason, timeout_seconds)
    return _change(path, timeout_seconds, reason, closed=True, who=who, wait_paused=wait_paused)


def reopen(path: str | RemoteBuffer, *, timeout_seconds: float, wait_paused: bool = True) -> bool:
    """False where it was not closed. A server does not tell."""
    if isinstance(path, RemoteBuffer):
        from hbuf.remote import verbs

        verbs.reopen(path, timeout_seconds)
        return True
    return _change(path, timeout_seconds, "", closed=False, wait_paused=wait_paused)


def _change(
    path: str, timeout_seconds: float, reason: str, *, closed: bool, who: str | None = None, wait_paused: bool
) -> bool:
    directory = BufferDirectory(path)
    directory.require()
    gate = Gate(directory, lambda line: None)
    try:
        with os_errors(directory.shown):
            gate.enter(timeout_seconds, even_closed=True, wait_paused=wait_paused)
            if (read_marker(directory.closed) is not None) == closed:
                return False
            if closed:
                os.close(write_marker(directory.closed, reason, SystemClock().now_us(), who=who))
            else:
                remove_marker(directory.closed)
            return True
    finally:
        gate.close()
