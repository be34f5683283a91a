"""Reading messages: from a place to a place, filtered, and on as they come."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from hbuf.format.message import Message, message_of
from hbuf.format.places import END, Place
from hbuf.ops.filter import EVERYTHING, Filter
from hbuf.ops.reading import Readable
from hbuf.ops.watching import Watch
from hbuf.store.opener import Opener
from hbuf.store.reader import Reader
from hbuf.store.view import Chunk

_POLL_SECONDS = 0.2


def select_chunks(
    reader: Readable, start: int, end: int, wanted: Filter, opener: Opener | None = None
) -> Iterator[tuple[Chunk, Sequence[int]]]:
    """Chunks, each with the places in it that are wanted. With `opener` encrypted bodies are opened."""
    for chunk in reader.chunks(start, end, wanted.terms):
        if opener is not None and opener.concerns(chunk):
            yield _open(reader, chunk, wanted, opener)
        else:
            yield chunk, wanted.places(reader, chunk)


def _open(reader: Readable, chunk: Chunk, wanted: Filter, opener: Opener) -> tuple[Chunk, Sequence[int]]:
    """What can be decided without opening is decided first."""
    plain, readable = opener.open(chunk, wanted.without_pattern().places(reader, chunk))
    if wanted.pattern is None:
        return plain, readable
    records = ((i, plain.parse(i)) for i in readable)
    return plain, [i for i, record in records if record is not None and wanted.wants(plain.data, record)]


def messages(
    reader: Readable, start: int, end: int, wanted: Filter = EVERYTHING, opener: Opener | None = None
) -> Iterator[Message]:
    tenant, name = reader.tenant, reader.name
    for chunk, places in select_chunks(reader, start, end, wanted, opener):
        for i in places:
            record = chunk.parse(i)
            if record is None:
                reader.note_damage(chunk, i)
            else:
                yield message_of(chunk.data, record, tenant, name)


class Waiting(Protocol):
    """Waits for new messages."""

    def wait(self, end: int, timeout_seconds: float | None = None) -> int:
        """Returns when there are messages from `end` on, or the time is up: one more than the last number."""

    def close(self) -> None: ...


def follower_of(reader: Readable, wanted: Filter = EVERYTHING, *, poll: bool = False) -> Waiting:
    """`poll` is for a directory on a network file system."""
    if isinstance(reader, Reader):
        return Follower(reader, poll=poll)
    from hbuf.remote.follower import RemoteFollower
    from hbuf.remote.reader import RemoteReader

    if not isinstance(reader, RemoteReader):
        raise TypeError(type(reader).__name__)
    return RemoteFollower(reader, wanted.terms)


class Follower:
    """Waits for new messages: woken by inotify through watchdog, or by looking now and then (`poll`)."""

    def __init__(self, reader: Reader, *, poll: bool = False) -> None:
        self._reader = reader
        self._watch: Watch | None = None
        if not poll:
            # Where the system has no watch left to give, it looks now and then.
            with contextlib.suppress(OSError):
                self._watch = Watch([reader.directory.segments])

    def wait(self, end: int, timeout_seconds: float | None = None) -> int:
        """Returns when there are messages from `end` on, or the time is up: one more than the last number."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            if self._watch is not None:
                self._watch.clear()
            self._reader.refresh()
            if self._reader.end_seq > end:
                return self._reader.end_seq
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return end
            if self._watch is None:
                time.sleep(_POLL_SECONDS if left is None else min(_POLL_SECONDS, left))
            else:
                self._watch.wait(left)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()


def follow(
    reader: Readable,
    place: Place = END,
    wanted: Filter = EVERYTHING,
    opener: Opener | None = None,
    *,
    poll: bool = False,
) -> Iterator[Message]:
    """Messages from `place` on, for ever."""
    follower = follower_of(reader, wanted, poll=poll)
    try:
        at = reader.resolve(place)
        while True:
            end = follower.wait(at)
            yield from messages(reader, at, end, wanted, opener)
            at = max(at, end)
    finally:
        follower.close()
