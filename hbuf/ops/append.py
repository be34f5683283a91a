"""Appending a stream: large batches from a fast one, within the linger time from a slow one, and nothing lost.

What was read is stored, or counted: when storing fails, the error's `stored` says how many messages of the stream
are in the buffer, and a file is left just behind them, so that the next run can go on from there.
"""

from __future__ import annotations

import copy
import math
import os
import select
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from hbuf.errors import HbufError, TooLarge, TryLater
from hbuf.format.fields import NO_FIELDS, Fields
from hbuf.format.message import Draft
from hbuf.ops.inputs import Parser
from hbuf.store.fsops import os_errors
from hbuf.store.outgoing import Appended, Outgoing
from hbuf.store.room import MAX_UNIT_BYTES

_READ_BYTES = 1024 * 1024
# A batch is written when it has this many bytes or messages: large enough that a sync is cheap for each.
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_MESSAGES = 10_000
# Between two tries, the pause grows: each may send the whole batch over a network.
_FIRST_RETRY_SECONDS = 0.1
_MOST_RETRY_SECONDS = 1.0


class Appender(Protocol):
    """What messages are appended with, to a directory or to a server."""

    def append_some(self, outgoing: Outgoing) -> Appended:
        """Stores the first of the messages. The result tells how many are settled; when it raises none is."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


@dataclass(slots=True)
class Sending:
    """How messages are appended, whatever they were read from."""

    writer: Appender
    fields: Fields = NO_FIELDS
    producer: bytes | None = None
    next_producer_seq: int = 0
    strict_seq: bool = False
    one_by_one: bool = False  # --fsync always
    timeout_seconds: float = 0
    receipts: Callable[[Appended], None] = lambda appended: None
    stored: int = 0  # messages that are in the buffer, those counted that were there before

    def send(self, drafts: Sequence[Draft] | Sequence[bytes], *, unit: bool = False) -> None:
        """Appends, waiting while that can help. `stored` counts also what was stored before an error."""
        step = 1 if self.one_by_one and not unit else max(len(drafts), 1)
        for start in range(0, len(drafts), step):
            self.send_columns(self._columns(drafts[start : start + step], unit))

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

    def send_columns(self, batch: Outgoing) -> None:
        """The same for messages that are in columns, with their own fields and producers."""
        deadline = time.monotonic() + self.timeout_seconds
        retry_seconds = _FIRST_RETRY_SECONDS
        while batch.bodies:
            try:
                appended = self.writer.append_some(batch)
            except TryLater:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(min(retry_seconds, max(deadline - time.monotonic(), 0)))
                retry_seconds = min(2 * retry_seconds, _MOST_RETRY_SECONDS)
                continue
            settled = len(appended.seqs)
            self.stored += settled
            self.receipts(appended)
            batch = batch.part(settled)
            retry_seconds = _FIRST_RETRY_SECONDS
            deadline = time.monotonic() + self.timeout_seconds


class Stop:
    """Asked by a signal: finish the message that is being read, and end.

    A second signal does not wait for the rest of a message, and neither does the first for ever.
    """

    def __init__(self, patience_seconds: float) -> None:
        self.signal = 0  # the one that asked
        self.wake_fd, self._wake = os.pipe()
        self._patience_seconds = patience_seconds
        self._deadline = 0.0

    def ask(self, signal_number: int, frame: object) -> None:
        self._deadline = 0.0 if self.asked else time.monotonic() + self._patience_seconds
        self.signal = signal_number
        os.write(self._wake, b"\0")

    def close(self) -> None:
        os.close(self.wake_fd)
        os.close(self._wake)

    @property
    def asked(self) -> bool:
        return self.signal != 0

    @property
    def impatient(self) -> bool:
        return self.asked and time.monotonic() >= self._deadline

    def is_due(self, parser: Parser) -> bool:
        return self.asked and (not parser.unfinished or self.impatient)

    def wait_seconds(self) -> float | None:
        """How long a read may wait for the rest of a message."""
        return max(0.0, self._deadline - time.monotonic()) if self.asked else None


def append_stream(
    fd: int,
    new_parser: Callable[[], Parser],
    sending: Sending,
    *,
    linger_seconds: float,
    atomic: bool = False,
    stop: Stop | None = None,
) -> None:
    """Appends all that can be read from `fd`."""
    start = _position(fd)
    try:
        _Pump(fd, new_parser(), sending, linger_seconds, stop).run(atomic=atomic)
    except HbufError as error:
        error.stored = sending.stored
        if start is not None:
            _go_back(fd, start, sending.stored, new_parser())
        raise


def append_files(paths: Iterable[str], sending: Sending, limit_bytes: int) -> None:
    """Appends each file as one message; `-` is standard input."""
    pending: list[bytes] = []
    try:
        for path in paths:
            pending.append(_read_file(path, limit_bytes))
            if len(pending) >= _BATCH_MESSAGES or sum(map(len, pending)) >= _BATCH_BYTES:
                batch, pending = pending, []
                sending.send(batch)
    finally:
        sending.send(pending)


def _read_file(path: str, limit_bytes: int) -> bytes:
    with os_errors(path), open(0 if path == "-" else path, "rb", closefd=path != "-") as file:
        body = file.read(limit_bytes + 1)
    if len(body) > limit_bytes:
        raise TooLarge(f"{path}: has more than {limit_bytes} bytes, which is the limit of a message")
    return body


class _Pump:
    """Reads, parses, sends: what has come is sent when there is enough of it, or when it has waited long enough."""

    def __init__(self, fd: int, parser: Parser, sending: Sending, linger_seconds: float, stop: Stop | None) -> None:
        self._fd = fd
        self._parser = parser
        self._sending = sending
        self._linger_seconds = linger_seconds
        self._stop = stop
        self._pending: list[bytes] | list[Draft] = []
        self._pending_bytes = 0
        self._deadline: float | None = None  # when what is pending must be sent

    def run(self, *, atomic: bool) -> None:
        ended = False
        while not ended:
            ended = self._take()
            failed = self._parser.failed
            if not atomic and (failed or ended or self._is_time()):
                self._send()
            if failed:
                raise failed
            if atomic and self._pending_bytes > MAX_UNIT_BYTES:
                raise TooLarge(f"an atomic unit has more than {MAX_UNIT_BYTES} bytes")
        if atomic and self._stop and self._stop.asked:
            raise TryLater("it was stopped before the input had ended")
        if atomic:
            self._sending.send(self._pending, unit=True)

    def _take(self) -> bool:
        """Reads once. Returns whether that was the end."""
        data = self._read()
        if data:
            found: Sequence[bytes] | Sequence[Draft] = self._parser.feed(data)
            self._pending_bytes += len(data)
        elif data == b"" or (self._stop and self._stop.is_due(self._parser)):
            found = self._parser.close()
        else:
            found = ()
        if found and self._deadline is None:
            self._deadline = time.monotonic() + self._linger_seconds
        self._pending.extend(found)  # type: ignore[arg-type]  # a parser gives one kind
        return data == b"" or bool(self._stop and self._stop.is_due(self._parser))

    def _read(self) -> bytes | None:
        """What there is to read, b"" at the end, or None when it is time to send or to stop."""
        stop = self._stop
        while not (stop and stop.is_due(self._parser)):
            waits = [] if self._deadline is None else [max(0.0, self._deadline - time.monotonic())]
            if stop and stop.asked:
                waits.append(stop.wait_seconds() or 0.0)
            ready = _wait_readable([self._fd, stop.wake_fd] if stop else [self._fd], min(waits, default=None))
            if stop and stop.wake_fd in ready:
                os.read(stop.wake_fd, 64)
            if self._fd in ready:
                return os.read(self._fd, _READ_BYTES)
            if self._deadline is not None and time.monotonic() >= self._deadline:
                return None
        return None

    def _is_time(self) -> bool:
        full = self._pending_bytes >= _BATCH_BYTES or len(self._pending) >= _BATCH_MESSAGES
        return full or (self._deadline is not None and time.monotonic() >= self._deadline)

    def _send(self) -> None:
        pending, self._pending = self._pending, []
        self._pending_bytes, self._deadline = 0, None
        self._sending.send(pending)


def _wait_readable(fds: Sequence[int], seconds: float | None) -> list[int]:
    """Those of `fds` that can be read, or have ended. Not select(), which takes no number from 1024 on."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(None if seconds is None else math.ceil(seconds * 1000))]


def _position(fd: int) -> int | None:
    try:
        return os.lseek(fd, 0, os.SEEK_CUR)
    except OSError:
        return None


def _go_back(fd: int, start: int, stored: int, parser: Parser) -> None:
    """Leaves a file just behind message number `stored`, by reading it again."""
    os.lseek(fd, start, os.SEEK_SET)
    position, left = start, stored
    while left and (data := os.read(fd, _READ_BYTES)):
        before = copy.deepcopy(parser)
        found = len(parser.feed(data))
        if found < left:
            left -= found
            position += len(data)
            continue
        low, high = 1, len(data)  # the shortest piece that completes the message
        while low < high:
            middle = (low + high) // 2
            if len(copy.deepcopy(before).feed(data[:middle])) >= left:
                high = middle
            else:
                low = middle + 1
        position += low
        left = 0
    os.lseek(fd, position, os.SEEK_SET)
