"""Clients that append as fast as they are answered, each on a connection of its own that is kept, in one process.

A client sends, waits for all answers to that, and sends again, until the time is over. One loop of epoll serves
all clients, with sockets that block: an answer is read when it is there, and a request fits the socket's buffer.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from array import array
from collections.abc import Iterator
from typing import Any

from bench.load.address import Address
from bench.load.plan import read_plan
from bench.load.talk import Talk, talk
from bench.measure import percentile

# As much as a record of TLS; more would be asked of the system, and given back, each time.
_READ_BYTES = 16 * 1024


def main() -> None:
    """The plan: see bench.loading."""
    plan = read_plan()
    bodies = [os.urandom(plan["bytes"] // 2).hex().encode() for _ in range(plan["batch"])]
    clients = [_client(plan, i, bodies) for i in range(plan["clients"])]
    before = time.process_time()
    seconds, milliseconds = _run(clients, plan["seconds"], max(plan["most"] // plan["batch"], 1))
    found = {
        "messages": len(milliseconds) * plan["batch"],
        "seconds": seconds,
        "cpu_seconds": time.process_time() - before,
        "p50": percentile(milliseconds, 50),
        "p99": percentile(milliseconds, 99),
    }
    json.dump(found, sys.stdout)


def _client(plan: dict[str, Any], i: int, bodies: list[bytes]) -> _Client:
    spoken, targets = talk(plan, i), plan["targets"]
    # Of many buffers each client has a part, and goes round in it.
    mine = targets[i :: plan["clients"]] or targets[:1]
    return _Client(Address(**plan["address"]), spoken, [spoken.append(name, bodies) for name in mine])


class _Client:
    def __init__(self, address: Address, spoken: Talk, requests: list[bytes]) -> None:
        self.socket = address.connect()
        if spoken.hello:
            self.socket.recv(_READ_BYTES)  # NATS says what it is first
            self.socket.sendall(spoken.hello)
        self._requests, self._answers, self._turn = requests, spoken.answers, 0
        self._pending = getattr(self.socket, "pending", None)
        self._sent_at = 0

    def send(self) -> None:
        self._sent_at = time.perf_counter_ns()
        self.socket.sendall(self._requests[self._turn % len(self._requests)])
        self._turn += 1

    def receive(self) -> float | None:
        """Milliseconds since it was sent, when all has been answered."""
        while True:
            data = self.socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionError("the server closed the connection")
            if self._answers.complete(data):
                return (time.perf_counter_ns() - self._sent_at) / 1e6
            # What TLS has read already is not seen by epoll.
            if self._pending is None or not self._pending():
                return None


def _run(clients: list[_Client], seconds: float, most: int) -> tuple[float, array[float]]:
    """How long it took, and how long each answer; at most `most` of them (and those that are under way)."""
    by_fd = {client.socket.fileno(): client for client in clients}
    milliseconds = array("d")
    start = time.perf_counter()
    deadline = start + seconds
    for client in clients:
        client.send()
    working = len(clients)
    for fd in _readable([client.socket for client in clients]):
        took = by_fd[fd].receive()
        if took is None:
            continue
        milliseconds.append(took)
        if time.perf_counter() < deadline and len(milliseconds) < most:
            by_fd[fd].send()
        else:
            working -= 1
            if not working:
                break
    return time.perf_counter() - start, milliseconds


def _readable(sockets: list[socket.socket]) -> Iterator[int]:
    with select.epoll() as poll:
        for each in sockets:
            poll.register(each, select.EPOLLIN)
        while True:
            for fd, _ in poll.poll():
                yield fd
