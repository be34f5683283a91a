"""A buffer to read, in a directory or on a server: those who read do not know which they have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, Self

from hbuf.format.places import Place
from hbuf.format.tags import Terms
from hbuf.remote.buffer import RemoteBuffer
from hbuf.store.directory import BufferDirectory
from hbuf.store.opener import Source
from hbuf.store.reader import Reader
from hbuf.store.view import Chunk


class Readable(Source, Protocol):
    """Not for two threads at once. `refresh` looks again at what there is."""

    retired_seq: int  # the last number that was asked for and is retired

    @property
    def name(self) -> str: ...

    @property
    def tenant(self) -> str: ...

    @property
    def first_seq(self) -> int: ...

    @property
    def end_seq(self) -> int:
        """One more than the last number that can be read."""

    def refresh(self) -> None: ...

    def resolve(self, place: Place) -> int:
        """The number that a place means now."""

    def back(self, count: int, end: int) -> int:
        """The number from which on there are `count` messages before `end`."""

    def first_at(self, time_us: int) -> int:
        """The first number whose time is not earlier."""

    def chunks(self, start: int, end: int, terms: Terms | None = None) -> Iterator[Chunk]:
        """Records `start` up to but not `end`, in order; with `terms`, those without them may be passed over."""

    def damage_lines(self) -> list[str]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_reader(place: str | RemoteBuffer) -> Readable:
    if isinstance(place, RemoteBuffer):
        from hbuf.remote.reader import RemoteReader

        return RemoteReader(place)
    return Reader(BufferDirectory(place))
