"""Appends to one buffer: those that come while a write is under way share the next one, and its sync and signature.

It lives on the event loop; only `_write` runs on a thread, and never twice at the same time for one buffer.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple

from hbuf.daemon.signing_keys import signer_of
from hbuf.errors import Closed, HbufError, SlowDown, StorageFailed
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
from hbuf.store.outgoing import Appended, Outgoing
from hbuf.store.writer import Writer

_LOG = logging.getLogger("hbuf.daemon.append")
_LOCK_SECONDS = 5  # for another writer's batch; the end of a pause is not waited for
# After a failure of the disk the buffer is opened anew, as a new process would: not at once, and not for each request.
_REOPEN_SECONDS = 1.0
# What one write takes at most. More senders than that go into the next.
_MOST_BYTES = 64 * 1024**2
_MOST_REQUESTS = 4096
_LINES_BYTES = 400  # about what a message takes besides its body


class Queue:
    """How much there is of something that takes memory, in all requests together."""

    def __init__(self, most_bytes: int, full: str) -> None:
        self.most_bytes = most_bytes
        self._full = full
        self.bytes = 0
        self.requests = 0

    def enter(self, size: int) -> None:
        if self.bytes and self.bytes + size > self.most_bytes:
            raise SlowDown(self._full, hint="send it again in a moment")
        self.bytes += size
        self.requests += 1

    def leave(self, size: int) -> None:
        self.bytes -= size
        self.requests -= 1


class Request(NamedTuple):
    outgoing: Outgoing
    size: int
    answer: asyncio.Future[Appended]


class GroupCommit:
    """`committed` is told what was stored by one write: how many requests, messages and bytes."""

    def __init__(
        self,
        directory: BufferDirectory,
        keys: Path,
        threads: Executor,
        queue: Queue,
        committed: Callable[[int, int, int], None],
    ) -> None:
        self._directory = directory
        self._keys = keys
        self._threads = threads
        self._queue = queue
        self._committed = committed
        self._waiting: list[Request] = []
        self._task: asyncio.Task[None] | None = None
        self._writer: Writer | None = None
        self._failed_at = float("-inf")

    @property
    def busy(self) -> bool:
        return self._task is not None

    def append(self, outgoing: Outgoing) -> asyncio.Future[Appended]:
        """Stores it whole, or raises: on disk when the future has its result. Raises SlowDown at once."""
        size = sum(map(len, outgoing.bodies)) + _LINES_BYTES * len(outgoing.bodies)
        self._queue.enter(size)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Appended] = loop.create_future()
        self._waiting.append(Request(outgoing, size, answer))
        if self._task is None:
            self._task = loop.create_task(self._write_all())
        return answer

    async def finish(self) -> None:
        """What was accepted is stored, and the buffer's files are closed."""
        while self._task is not None:
            await asyncio.wait([self._task])
        if self._writer is not None:
            writer, self._writer = self._writer, None
            await asyncio.get_running_loop().run_in_executor(self._threads, writer.close)

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                group = self._next_group()
                try:
                    results = await loop.run_in_executor(self._threads, self._write, [each.outgoing for each in group])
                except Exception as error:
                    _LOG.exception("append failed", extra={"buffer": self._directory.shown})
                    failed = StorageFailed(f"{self._directory.name}: the append failed: {type(error).__name__}")
                    results = [failed] * len(group)
                self._settle(group, results)
                if self._writer is not None and self._writer.has_rolled:
                    await loop.run_in_executor(self._threads, self._writer.seal_rolled)
        finally:
            self._task = None

    def _next_group(self) -> list[Request]:
        size = count = 0
        for request in self._waiting[:_MOST_REQUESTS]:
            size += request.size
            if count and size > _MOST_BYTES:
                break
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    def _write(self, requests: Sequence[Outgoing]) -> Sequence[Appended | HbufError]:
        """On a thread."""
        try:
            if self._writer is None:
                self._writer = self._open_writer()
            results = self._writer.append_together(requests)
        except HbufError as error:
            results = [error] * len(requests)
        if any(isinstance(result, StorageFailed) for result in results):
            self._failed_at = time.monotonic()
            self._close_writer()
        elif any(isinstance(result, Closed) for result in results):
            self._close_writer()  # it may have closed the buffer itself, and would not see that somebody opens it again
        return results

    def _open_writer(self) -> Writer:
        if time.monotonic() - self._failed_at < _REOPEN_SECONDS:
            raise StorageFailed(f"{self._directory.name}: the disk failed a moment ago", hint="see the daemon's log")
        signer = signer_of(self._keys, self._directory)
        with os_errors(self._directory.shown):
            return Writer(
                self._directory,
                timeout_seconds=_LOCK_SECONDS,
                wait_paused=False,
                signer=signer,
                notice=lambda line: _LOG.warning(line, extra={"buffer": self._directory.shown}),
            )

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _settle(self, group: Sequence[Request], results: Sequence[Appended | HbufError]) -> None:
        requests = messages = size = 0
        for request, result in zip(group, results, strict=True):
            self._queue.leave(request.size)
            if isinstance(result, Appended):
                stored = len(result.seqs) - len(result.duplicates)
                requests, messages = requests + 1, messages + stored
                size += request.size if stored else 0
            if request.answer.done():
                continue  # nobody waits for it any more; it is stored all the same
            if isinstance(result, Appended):
                request.answer.set_result(result)
            else:
                request.answer.set_exception(copy.copy(result))  # one error may be the answer to many
        if messages:
            self._committed(requests, messages, size)
