"""Where batches are delivered: into a directory, by a writer of its own, or to a server. It knows no Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self, TypeVar

from hbuf.errors import NotFound, TryLater, Unavailable
from hbuf.format.settings import Settings, parse_settings
from hbuf.remote import verbs
from hbuf.remote.buffer import RemoteBuffer
from hbuf.remote.writer import RemoteWriter
from hbuf.store.outgoing import Appended, Outgoing
from hbuf.store.seal import producers_until
from hbuf.store.tail import newest_opening
from hbuf.store.writer import Writer

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
_HINT = "look what is there; with the options producer and batch a write can be repeated"
Answer = TypeVar("Answer")


class IntoDirectory:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def settings(self) -> Settings:
        return newest_opening(self._writer.directory).settings

    def last_number(self, producer: bytes) -> int:
        with self._writer.locked() as tail:
            known = producers_until(self._writer.directory, tail.next_seq - 1).last
        return known.get(producer, (-1, 0))[0]

    def append_some(self, outgoing: Outgoing) -> Appended:
        return self._writer.append_some(outgoing)


class IntoServer:
    """What has a producer is sent until the server answers, or `timeout_seconds` are over. Other rows are sent once."""

    def __init__(self, buffer: RemoteBuffer, timeout_seconds: float) -> None:
        self._shown = buffer.shown
        self._timeout_seconds = timeout_seconds
        self._connection = buffer.connect(timeout_seconds)
        self._writer = RemoteWriter(self._connection, receipts=False, hint=_HINT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def settings(self) -> Settings:
        return self._patiently(lambda: parse_settings(self._connection.get("/settings").body))

    def last_number(self, producer: bytes) -> int:
        query = {"producer": producer.decode()}
        found = self._patiently(lambda: self._connection.get("/status", query).json()).get("producer")
        seq = found.get("seq") if isinstance(found, dict) else found
        if not isinstance(found, dict) or not (seq is None or isinstance(seq, int)):
            raise Unavailable(f"{self._shown}: the server's answer does not tell how far the producer came")
        return -1 if seq is None else seq

    def append_some(self, outgoing: Outgoing) -> Appended:
        return self._patiently(lambda: self._writer.append_some(outgoing), repeat=outgoing.producers is not None)

    def _patiently(self, ask: Callable[[], Answer], *, repeat: bool = True) -> Answer:
        """`repeat`: what may have been done can be done again."""
        deadline = time.monotonic() + self._timeout_seconds
        pause_seconds = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return ask()
            except (TryLater, Unavailable) as error:
                hopeless = isinstance(error, Unavailable) and not repeat
                if hopeless or time.monotonic() >= deadline:
                    raise
            time.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS)


def open_or_make(buffer: RemoteBuffer, *, create: bool) -> Settings:
    """The settings of a buffer on a server; with `create` it is made where it is missing."""
    try:
        return verbs.read_settings(buffer)
    except NotFound:
        if not create:
            raise
    verbs.create(buffer, {})
    return verbs.read_settings(buffer)
