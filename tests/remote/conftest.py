"""A buffer on a real daemon, looked at from both sides."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hbuf
from hbuf.remote.access import Access
from hbuf.remote.buffer import RemoteBuffer
from hbuf.remote.location import parse_location

from .cutting_proxy import CuttingProxy, Direction

if TYPE_CHECKING:
    from running_daemon import RunningDaemon

_names = itertools.count(1)


@dataclass
class Served:
    """A buffer below the root of a daemon."""

    daemon: RunningDaemon
    path: Path
    access: Access

    def at(self, url: str) -> RemoteBuffer:
        return RemoteBuffer(parse_location(f"{url}/tenants/default/b/{self.path.name}"), self.access)

    @property
    def remote(self) -> RemoteBuffer:
        return self.at(f"https://localhost:{self.daemon.port}")

    def bodies(self) -> list[bytes]:
        with hbuf.open(self.path) as buffer:
            return [message.body for message in buffer.read()]


MakeServed = Callable[..., Served]


def served_by(daemon: RunningDaemon, bodies: Sequence[bytes], **settings: str) -> Served:
    path = daemon.root / "tenants/default/buffers" / f"remote-{next(_names)}"
    with hbuf.create(path, **settings) as buffer:
        if bodies:
            buffer.append_many(list(bodies))
    token = (daemon.root / "admin.token").read_text().strip()
    return Served(daemon, path, Access(str(daemon.root / "ca.pem"), token=token))


@pytest.fixture
def make_served(daemon: RunningDaemon) -> MakeServed:
    """make_served([b"one"], segment_messages="2")"""
    return lambda bodies=(), **settings: served_by(daemon, bodies, **settings)


MakeProxy = Callable[..., CuttingProxy]


@pytest.fixture
def make_proxy(daemon: RunningDaemon) -> Iterator[MakeProxy]:
    """make_proxy(("up", 3000)): cuts its first connection after so many bytes to the daemon."""
    made: list[CuttingProxy] = []

    def make(*cuts: tuple[Direction, int]) -> CuttingProxy:
        made.append(CuttingProxy(daemon.port, *cuts))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()
