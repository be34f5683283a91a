"""Where the daemon is measured: the servers of this run, how long each run is, and a fresh place to append to."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.loading import Appended, Server, append_load
from bench.measure import Ran
from bench.programs import yardstick
from bench.serving import nats, redis
from bench.serving.hbufd import HTTPS, UNIX, make_buffers
from bench.serving.process import cpu_seconds


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of appending."""

    appended: Appended
    server_cpu_seconds: float

    @property
    def ran(self) -> Ran:
        """Seconds for one message: runs end by time, with another number of messages each."""
        return Ran(self.appended.seconds / self.appended.messages)

    @property
    def server_microseconds(self) -> float:
        return self.server_cpu_seconds / self.appended.messages * 1e6


@dataclass(slots=True)
class Place:
    directory: Path
    servers: Mapping[str, Server]
    messages: int  # the most of a run, and those that are read
    repeats: int
    seconds: float  # the most of a run
    buffers: int  # when there are many
    live_messages: int
    warm_ups: int
    _made: int = field(default=0)

    def append(self, server: Server, *, clients: int, batch: int = 1, sign: bool = False) -> Measured:
        """To a new buffer, or what the server has in its place."""
        with self.targets(server, 1, sign=sign) as targets:
            return self.append_to(server, targets, clients=clients, batch=batch)

    def append_to(self, server: Server, targets: Sequence[str], *, clients: int, batch: int = 1) -> Measured:
        before = cpu_seconds(server.pid)
        appended = append_load(server, targets, clients=clients, batch=batch, seconds=self.seconds, most=self.messages)
        return Measured(appended, cpu_seconds(server.pid) - before)

    @contextlib.contextmanager
    def targets(self, server: Server, count: int, *, sign: bool = False) -> Iterator[Sequence[str]]:
        """New ones. Those of Redis, which are in memory, and of NATS are removed in the end."""
        self._made += 1
        names = [f"bench-{self._made}-{i}" for i in range(count)]
        if server.kind == "nats":
            for name in names:
                nats.make_stream(server, name)
        elif server.name in (HTTPS, UNIX):
            make_buffers(server, *names, settings={"sign": True} if sign else None)
        yield names
        if server.kind == "nats":
            for name in names:
                nats.drop_stream(server, name)
        elif server.kind == "redis":
            redis.drop_stream(server, *names)

    def append_alone(self, kind: str, batch: int) -> Ran:
        """Without a server: `hbuf`, the library in one process, or `file`, a write and an fdatasync."""
        self._made += 1
        path = self.directory / f"alone-{self._made}"
        numbers = (str(batch), str(self.seconds), str(self.messages))
        done = subprocess.run(
            yardstick("durable_appends", kind, path, *numbers), stdout=subprocess.PIPE, check=True, timeout=600
        )
        found = json.loads(done.stdout)
        return Ran(found["seconds"] / found["messages"])
