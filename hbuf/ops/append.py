"""Appending a stream: large batches from a fast one, within the linger time from a slow one, and nothing lost.

What was read is stored or counted: when storing fails, `Stream.stored_bytes` says where the next run can go on.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hbuf.errors import BadInput, HbufError, TryLater
from hbuf.format.fields import NO_FIELDS, Fields
from hbuf.format.httpstream import RequestStream
from hbuf.format.jsonlines import parse_json
from hbuf.format.message import Draft
from hbuf.store.outgoing import Appended, Outgoing
from hbuf.store.writer import Writer

_READ_BYTES = 1024 * 1024
# A batch is written when it has this many bytes or messages: large enough that a sync is cheap for each.
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_MESSAGES = 10_000
_RETRY_SECONDS = 0.1

Receipts = Callable[[Appended], None]


@dataclass(slots=True)
class Sending:
    """How messages are appended, whatever they were read from."""

    writer: Writer
    fields: Fields = NO_FIELDS
    producer: bytes | None = None
    next_producer_seq: int = 0
    strict_seq: bool = False
    one_by_one: bool = False  # --fsync always
    timeout_seconds: float = 0
    receipts: Receipts = lambda appended: None
    stored: int = 0

    def send(self, drafts: Sequence[Draft] | Sequence[bytes], *, unit: bool = False) -> None:
        """Appends, waiting while that can help. An error's `stored` counts all that was stored of this stream."""
        step = 1 if self.one_by_one and not unit else max(len(drafts), 1)
        for start in range(0, len(drafts), step):
            self._send_batch(self._columns(drafts[start : start + step], unit))

    def _columns(self, drafts: Sequence[Draft] | Sequence[bytes], unit: bool) -> Outgoing:
        bodies = [draft.body if isinstance(draft, Draft) else draft for draft in drafts]
        fields: Fields | list[Fields] = self.fields
        producers: list[tuple[bytes, int] | None] | None = None
        if drafts and isinstance(drafts[0], Draft):
            fields = [draft.fields for draft in drafts if isinstance(draft, Draft)]
            producers = [draft.producer for draft in drafts if isinstance(draft, Draft)]
            if not any(producers):
                producers = None
        if self.producer is not None:
            producers = [(self.producer, self.next_producer_seq + i) for i in range(len(bodies))]
            self.next_producer_seq += len(bodies)
        return Outgoing(bodies, fields, producers, unit, self.strict_seq)

    def _send_batch(self, batch: Outgoing) -> None:
        deadline = time.monotonic() + self.timeout_seconds
        while True:
            try:
                self._note(self.writer.append(batch))
                return
            except TryLater as error:
                # What went into the segment before is stored; the rest is tried again until the deadline.
                done = error.stored
                self.stored += done
                batch = batch.part(done, len(batch.bodies)) if batch.producers is None else batch
                if time.monotonic() >= deadline or (batch.unit and done):
                    error.stored = self.stored
                    raise
                time.sleep(_RETRY_SECONDS)
            except HbufError as error:
                self.stored += error.stored
                error.stored = self.stored
                raise

    def _note(self, appended: Appended) -> None:
        self.stored += len(appended.ids)
        self.receipts(appended)


class LineParser:
    """Cuts a stream into messages at a separator. What is not finished waits for more."""

    def __init__(self, separator: bytes) -> None:
        self.separator = separator
        self._rest: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        if len(self.separator) == 1 and self.separator not in data:
            self._rest.append(data)
            return []
        parts = b"".join([*self._rest, data]).split(self.separator)
        last = parts.pop()
        self._rest = [last] if last else []
        return parts

    @property
    def unfinished(self) -> bool:
        return bool(self._rest)

    def close(self) -> list[bytes]:
        """The last message, where the stream did not end with a separator."""
        rest, self._rest = b"".join(self._rest), []
        return [rest] if rest else []


class JsonParser:
    """The lines that `hbuf-tail --json` writes."""

    def __init__(self) -> None:
        self._lines = LineParser(b"\n")
        self._count = 0

    def feed(self, data: bytes) -> list[Draft]:
        return [draft for line in self._lines.feed(data) if (draft := self._parse(line)) is not None]

    @property
    def unfinished(self) -> bool:
        return self._lines.unfinished

    def close(self) -> list[Draft]:
        return [draft for line in self._lines.close() if (draft := self._parse(line)) is not None]

    def _parse(self, line: bytes) -> Draft | None:
        self._count += 1
        if not line.strip():
            return None
        try:
            return parse_json(line)
        except BadInput as error:
            raise type(error)(f"line {self._count}: {error.message}", hint=error.hint) from None


class HttpParser:
    """An `application/http` stream of requests."""

    def __init__(self) -> None:
        self._requests = RequestStream()

    def feed(self, data: bytes) -> list[Draft]:
        return self._requests.feed(data)

    @property
    def unfinished(self) -> bool:
        return False

    def close(self) -> list[Draft]:
        self._requests.close()
        return []


Parser = LineParser | JsonParser | HttpParser


class Stop:
    """Asked by a signal: finish the message that is being read, and end. A second one does not wait for that."""

    def __init__(self) -> None:
        self.asked = False
        self.signal = 0
        self.again = False

    def ask(self, signal_number: int, frame: object) -> None:
        self.again = self.asked
        self.asked = True
        self.signal = signal_number

    def is_due(self, parser: Parser) -> bool:
        return self.asked and (self.again or not parser.unfinished)


def append_stream(
    fd: int, parser: Parser, sending: Sending, *, linger_seconds: float, atomic: bool = False, stop: Stop | None = None
) -> None:
    """Appends all that can be read from `fd`. On failure a file is left just behind the last stored message."""
    stop = stop or Stop()
    start = _position(fd)
    try:
        _pump(fd, parser, sending, linger_seconds, atomic, stop)
    except HbufError as error:
        error.stored = sending.stored
        if start is not None and isinstance(parser, LineParser):
            _go_back(fd, start, sending.stored, parser)
        raise


def _pump(fd: int, parser: Parser, sending: Sending, linger_seconds: float, atomic: bool, stop: Stop) -> None:
    pending: list[bytes] | list[Draft] = []
    pending_bytes = 0
    deadline: float | None = None
    ended = False
    while not ended:
        data = _read(fd, deadline, stop, parser)
        failed: BadInput | None = None
        if data == b"":
            ended = True
            found: Iterable[bytes] | Iterable[Draft] = parser.close()
        elif data is None:
            ended = stop.is_due(parser)
            found = parser.close() if stop.again else []
        else:
            try:
                found = parser.feed(data)
            except BadInput as error:
                found, failed = [], error
            pending_bytes += len(data)
        pending.extend(found)  # type: ignore[arg-type]  # a parser gives one kind
        full = pending_bytes >= _BATCH_BYTES or len(pending) >= _BATCH_MESSAGES
        late = deadline is not None and time.monotonic() >= deadline
        if not atomic and pending and (full or late or ended or failed):
            sending.send(pending)
            pending, pending_bytes, deadline = [], 0, None
        elif pending and deadline is None:
            deadline = time.monotonic() + linger_seconds
        if failed:
            raise failed
    if atomic and pending:
        sending.send(pending, unit=True)


def _read(fd: int, deadline: float | None, stop: Stop, parser: Parser) -> bytes | None:
    """What there is to read, b"" at the end, or None when the time is up or a signal asked to stop."""
    while True:
        if stop.is_due(parser):
            return None
        wait = 0.1 if deadline is None else max(0.0, min(0.1, deadline - time.monotonic()))
        ready, _, _ = select.select([fd], [], [], wait)
        if ready:
            return os.read(fd, _READ_BYTES)
        if deadline is not None and time.monotonic() >= deadline:
            return None


def _position(fd: int) -> int | None:
    try:
        return os.lseek(fd, 0, os.SEEK_CUR)
    except OSError:
        return None


def _go_back(fd: int, start: int, stored: int, parser: LineParser) -> None:
    """Leaves a file just behind message number `stored`, so that the next run can go on from there."""
    os.lseek(fd, start, os.SEEK_SET)
    again = LineParser(parser.separator)
    position, left = start, stored
    while left and (data := os.read(fd, _READ_BYTES)):
        for message in again.feed(data)[:left]:
            position += len(message) + len(parser.separator)
            left -= 1
    os.lseek(fd, position, os.SEEK_SET)
