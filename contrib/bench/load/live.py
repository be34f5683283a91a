"""One writer at a steady rate and one reader who waits: how soon an append is acknowledged, and seen.

Both are in one process and one thread, so there is one clock, and no waiting for an interpreter's lock.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
import sys
import time
from typing import Any

from bench.load.address import Address
from bench.load.plan import read_plan
from bench.load.talk import talk
from bench.load.watchers import body_of, watcher_for
from bench.measure import percentile

# As much as a record of TLS; more would be asked of the system, and given back, each time.
_READ_BYTES = 16 * 1024
_QUIET_SECONDS = 0.3
_GIVE_UP_SECONDS = 30
# Not counted: connections and caches get warm.
_WARM = 20


def main() -> None:
    """The plan: see bench.loading."""
    plan = read_plan()
    live = _Live(plan)
    live.run(plan["messages"] + _WARM, plan["rate"])
    found = {
        f"{name}_p{percent}": percentile(times[_WARM:], percent)
        for name, times in (("acknowledged", live.acknowledged), ("seen", live.seen))
        for percent in (50, 99)
    }
    json.dump(found, sys.stdout)


class _Live:
    def __init__(self, plan: dict[str, Any]) -> None:
        address = Address(**plan["address"])
        self._target, self._spoken, self._watcher = plan["target"], talk(plan, 0), watcher_for(plan)
        self._writing, self._reading = address.connect(), address.connect()
        if plan["kind"] == "nats":
            for each in (self._writing, self._reading):
                each.recv(_READ_BYTES)
            self._writing.sendall(self._spoken.hello)
        self._reading.sendall(self._watcher.begin())
        # What TLS says for itself is no answer: waiting for more would be waiting for ever.
        self._reading.setblocking(False)
        self._sent_at: list[float] = []
        self.acknowledged: list[float] = []  # milliseconds, in the order of the messages
        self.seen: list[float] = []

    def run(self, count: int, rate: float) -> None:
        with select.epoll() as poll:
            poll.register(self._reading, select.EPOLLIN)
            # Until the reader waits: what comes meanwhile is the head of its answer.
            while poll.poll(_QUIET_SECONDS):
                self._see()
            poll.register(self._writing, select.EPOLLIN)
            start = time.perf_counter()
            while len(self.seen) < count or len(self.acknowledged) < count:
                now, sent = time.perf_counter(), len(self._sent_at)
                may_send = sent < count and len(self.acknowledged) == sent
                wait = start + sent / rate - now if may_send else _GIVE_UP_SECONDS
                if wait <= 0:
                    self._send(sent)
                    continue
                ready = poll.poll(wait)
                if not ready and not may_send:
                    raise SystemExit(f"bench: of {sent} messages {len(self.seen)} were seen")
                # What is seen first: reading the acknowledgement would be counted into it.
                for fd, _ in sorted(ready, key=lambda each: each[0] != self._reading.fileno()):
                    self._see() if fd == self._reading.fileno() else self._acknowledge()

    def _send(self, number: int) -> None:
        request = self._spoken.append(self._target, [body_of(number)])
        self._sent_at.append(time.perf_counter())
        self._writing.sendall(request)

    def _acknowledge(self) -> None:
        if self._spoken.answers.complete(_received(self._writing)):
            self.acknowledged.append((time.perf_counter() - self._sent_at[len(self.acknowledged)]) * 1e3)

    def _see(self) -> None:
        data = _received(self._reading)
        if not data:
            return
        seen = self._watcher.feed(data)
        now = time.perf_counter()
        if seen.send:
            self._reading.sendall(seen.send)
        for number in seen.numbers:
            if number != len(self.seen):
                raise SystemExit(f"bench: message {len(self.seen)} came as {number}")
            self.seen.append((now - self._sent_at[number]) * 1e3)


def _received(connection: socket.socket) -> bytes:
    """All that is there, also what TLS has read already, which epoll does not see."""
    data = b""
    with contextlib.suppress(ssl.SSLWantReadError):
        while True:
            more = connection.recv(_READ_BYTES)
            if not more:
                raise ConnectionError("the server closed the connection")
            data += more
            if not isinstance(connection, ssl.SSLSocket) or not connection.pending():
                break
    return data
