"""A staged batch on its way into the buffer: every message once, whoever is killed, and whenever.

A batch is cut into chunks, each of which is one atomic unit. All messages of a chunk carry the producer's one number
for it, and these numbers only grow: by batch, then by chunk; the last chunk of a batch has the batch's highest. So the
log itself tells how far a batch came, and whether it is complete.

What is computed again may differ. The manifest says which rows a batch consists of; it is synced before the first
append, and there is never a second one for the same batch: whoever goes on, goes on with the first. So two drivers
at once do no harm, and need no lock: they append the same chunks under the same numbers, of which the buffer takes each
once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from hbuf.arrow.outgoing import outgoing_of
from hbuf.errors import Damaged, HbufError, TooLarge
from hbuf.format.fields import NO_FIELDS, Fields
from hbuf.format.settings import Settings
from hbuf.ops.append import Appender, Sending
from hbuf.spark.staged_file import PieceLimits
from hbuf.spark.staging import Manifest, PieceRange, StagedFile, Staging
from hbuf.store.outgoing import Outgoing

CHUNKS_A_BATCH = 2**20
MOST_BATCHES = 10**18 // CHUNKS_A_BATCH  # a producer's number has 18 digits

_CHUNK_BYTES = 4 * 1024 * 1024
_CHUNK_MESSAGES = 10_000
_LINES_BYTES = 512  # about what a message takes besides its body and fields
# Of a batch that is to be one unit: it is in memory at once, and one request.
_MOST_WHOLE_BYTES = 64 * 1024 * 1024
_MOST_WHOLE_MESSAGES = 100_000


class Destination(Appender, Protocol):
    """A buffer that batches are delivered into."""

    def settings(self) -> Settings: ...

    def last_number(self, producer: bytes) -> int:
        """The last of the producer's numbers that is stored; -1 if there is none."""


def chunk_limits(settings: Settings) -> PieceLimits:
    """Chunks are not longer than a segment is to be."""
    return PieceLimits(
        min(_CHUNK_BYTES, settings.segment_bytes), min(_CHUNK_MESSAGES, settings.segment_messages or _CHUNK_MESSAGES)
    )


@dataclass(slots=True)
class Delivery:
    """Appends staged batches of one producer, or of nobody: then sending again stores again."""

    destination: Destination
    staging: Staging
    producer: bytes | None
    timeout_seconds: float

    def deliver(self, batch: int, files: Sequence[StagedFile], *, whole: bool = False) -> None:
        """Stores a batch, or what is missing of it, and removes what was staged. `files` are in the order of rows.

        With `whole` it is one unit if it fits in one. A batch before it that was not finished is finished first.
        """
        if self.producer is None:
            self._send(batch, _planned(files, self.destination.settings(), whole))
        else:
            last = self._settle_manifest(self.producer, batch, files, whole)
            self._send_begun([each for each in self.staging.manifest_batches() if each <= batch], last)
        self.staging.remove_until(batch)

    def finish(self, producer: bytes) -> None:
        """Stores what is missing of batches that were begun. Nobody goes on with them: no file of theirs is left."""
        self._send_begun(self.staging.manifest_batches(), self.destination.last_number(producer))
        self.staging.remove_all()

    def _settle_manifest(self, producer: bytes, batch: int, files: Sequence[StagedFile], whole: bool) -> int:
        """What the batch consists of is on disk for good, unless all of it is stored. Returns the last number stored.

        The number is asked for first: a manifest is removed only when all of its batch is stored.
        """
        last = self.destination.last_number(producer)
        if last >= _last_number(batch) or self.staging.load_manifest(batch) is not None:
            return last
        if last >= _number(batch, 0):
            last = self.destination.last_number(producer)  # another driver may have finished it meanwhile
            if last < _last_number(batch):
                raise Damaged(
                    f"batch {batch} is stored in part, and its manifest is gone",
                    hint="put the staging directory back as it was",
                )
        elif files:
            self.staging.save_manifest(batch, _planned(files, self.destination.settings(), whole))
        return last

    def _send_begun(self, batches: Sequence[int], last: int) -> None:
        for batch in batches:
            manifest = self.staging.load_manifest(batch)
            if manifest is not None:  # another driver may have finished it meanwhile
                self._send(batch, manifest, last)

    def _send(self, batch: int, manifest: Manifest, last: int = -1) -> None:
        """Appends those chunks whose number is greater than `last`."""
        sending = Sending(self.destination, timeout_seconds=self.timeout_seconds)
        try:
            for place, chunk in enumerate(manifest.chunks, 1):
                number = _number(batch, place - 1) if place < len(manifest.chunks) else _last_number(batch)
                if number > last:
                    sending.send_columns(self._unit(chunk, number))
        except HbufError as error:
            if self.producer is None and sending.stored:
                error.message += f"; {sending.stored} rows before that are stored"
            raise

    def _unit(self, chunk: Sequence[PieceRange], number: int) -> Outgoing:
        parts = [outgoing_of(piece) for piece in self.staging.read(chunk)]
        bodies = [body for part in parts for body in part.bodies]
        fields: Fields | list[Fields] = NO_FIELDS
        if any(part.fields is not NO_FIELDS for part in parts):
            fields = [each for part in parts for each in itertools.islice(part.each_fields(), len(part.bodies))]
        producers = [(self.producer, number)] * len(bodies) if self.producer is not None else None
        return Outgoing(bodies, fields, producers, unit=True)


def _number(batch: int, chunk: int) -> int:
    return batch * CHUNKS_A_BATCH + chunk


def _last_number(batch: int) -> int:
    """That of the last chunk of a batch, however many it has."""
    return _number(batch, CHUNKS_A_BATCH - 1)


def _planned(files: Sequence[StagedFile], settings: Settings, whole: bool) -> Manifest:
    """All pieces in their order, joined to chunks as large as they may be. Refuses what can never be stored."""
    largest = max((file.pieces.largest_body for file in files), default=0)
    if largest > settings.most_body_bytes:
        raise TooLarge(
            f"a row has a body of {largest} bytes; the limit is {settings.most_body_bytes}",
            hint="the setting max_message_bytes can be raised with hbuf-set",
        )
    limits = _whole_limits(files, settings) if whole else chunk_limits(settings)
    chunks: list[list[PieceRange]] = []
    room_bytes = room_messages = 0
    for file in files:
        for place, (messages, size) in enumerate(file.pieces.sizes):
            if not chunks or messages > room_messages or size > room_bytes:
                chunks.append([])
                room_bytes, room_messages = limits.most_bytes, limits.most_messages
            chunks[-1].append(PieceRange(file.name, place, place + 1))
            room_bytes, room_messages = room_bytes - size, room_messages - messages
    if len(chunks) > CHUNKS_A_BATCH:
        raise TooLarge(f"the batch has more than {CHUNKS_A_BATCH} chunks", hint="make it smaller")
    return Manifest(tuple(tuple(_joined(chunk)) for chunk in chunks))


def _whole_limits(files: Sequence[StagedFile], settings: Settings) -> PieceLimits:
    """Room for everything, if everything fits in one unit."""
    messages = sum(count for file in files for count, _ in file.pieces.sizes)
    size = sum(each for file in files for _, each in file.pieces.sizes)
    most_bytes = min(settings.segment_bytes, _MOST_WHOLE_BYTES)
    most_messages = min(settings.segment_messages or _MOST_WHOLE_MESSAGES, _MOST_WHOLE_MESSAGES)
    if size + messages * _LINES_BYTES <= most_bytes and messages <= most_messages:
        return PieceLimits(size, messages)
    return chunk_limits(settings)


def _joined(pieces: Sequence[PieceRange]) -> Iterator[PieceRange]:
    for name, of_file in itertools.groupby(pieces, key=lambda piece: piece.file):
        found = list(of_file)
        yield PieceRange(name, found[0].start, found[-1].end)
