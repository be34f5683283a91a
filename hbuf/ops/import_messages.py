"""Storing messages that were read from files: in their order, each in its buffer, and once where a producer is named.

A message of an export is known by the buffer that it was in and its number there; any other by its place in the input.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hbuf.errors import BadInput, UsageError
from hbuf.format.fields import encode_producer
from hbuf.format.names import check_buffer_name
from hbuf.ops.append import Sending
from hbuf.ops.import_files import Source
from hbuf.store.outgoing import Appended, Outgoing


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns make a message. `as_json`: all of them together are the body."""

    body: str = "body"
    key: str = "key"
    as_json: bool = False


@dataclass(slots=True)
class Piece:
    """Messages that follow each other in a file, all from the same buffer or all from none that is known.

    `numbers` are those that they had in their buffer, or else their places in the file.
    """

    source: Source | None
    numbers: Sequence[int]
    outgoing: Outgoing
    erased: int = 0  # rows beside these, of messages that are gone


@dataclass(slots=True)
class Counts:
    stored: int = 0
    duplicates: int = 0
    erased: int = 0

    def nothing_came(self) -> bool:
        return not (self.stored or self.duplicates or self.erased)

    def note(self, appended: Appended) -> None:
        self.duplicates += len(appended.duplicates)
        self.stored += len(appended.seqs) - len(appended.duplicates)


@dataclass(slots=True)
class Importing:
    """Where messages go. `open_buffer` is given a buffer's path."""

    open_buffer: Callable[[str], Sending]
    buffer: str | None = None  # all go there; None: each to its own, in `into`
    into: str = ""
    only: str | None = None  # NAME or TENANT/NAME
    producer: str | None = None
    counts: Counts = field(default_factory=Counts)
    _before: int = 0  # places in the files that are done
    _places: int = 0  # in the file at hand
    _last: dict[Source, int] = field(default_factory=dict)

    def take(self, piece: Piece) -> None:
        if piece.source is None and piece.numbers:
            self._places = piece.numbers[-1]
        if not self._is_wanted(piece.source):
            return
        path = self._path_for(piece.source)
        self.counts.erased += piece.erased
        self._check_order(piece)
        if not piece.outgoing.bodies:
            return
        piece.outgoing.producers = self._producers(piece)
        self.open_buffer(path).send_columns(piece.outgoing)

    def file_done(self) -> None:
        """The places of the next file follow those of this one."""
        self._before += self._places
        self._places = 0

    def _is_wanted(self, source: Source | None) -> bool:
        if self.only is None or source is None:
            return self.only is None
        return self.only in (source[1], "/".join(source))

    def _path_for(self, source: Source | None) -> str:
        if self.buffer is not None:
            others = [other for other in self._last if other != source]
            if source is not None and others:
                raise UsageError(
                    f"there are messages of {'/'.join(others[0])} and of {'/'.join(source)}",
                    hint="--buffer NAME takes those of one, --into DIR makes a buffer for each",
                )
            return self.buffer
        if source is None:
            raise BadInput("the rows do not say of which buffer they are", hint="without --into they go to one")
        tenant, name = map(check_buffer_name, source)
        # Where a tenant's buffers lie, so that a buffer comes back under its tenant.
        folder = [] if tenant == "default" else ["tenants", tenant, "buffers"]
        return os.path.join(self.into, *folder, name)

    def _check_order(self, piece: Piece) -> None:
        if piece.source is None or not piece.numbers:
            return
        numbers = [self._last.get(piece.source, 0), *piece.numbers]
        if self.producer is not None:
            for before, number in pairwise(numbers):
                if number <= before:
                    raise BadInput(
                        f"{'/'.join(piece.source)}: number {number} comes after {before}",
                        hint="--producer needs them in order; without it they are stored as they come",
                    )
        self._last[piece.source] = numbers[-1]

    def _producers(self, piece: Piece) -> list[tuple[bytes, int] | None] | None:
        if self.producer is None:
            return None
        if piece.source is None:
            name = encode_producer(self.producer)
            return [(name, self._before + number) for number in piece.numbers]
        name = encode_producer("/".join([self.producer, *piece.source]))
        return [(name, number) for number in piece.numbers]
