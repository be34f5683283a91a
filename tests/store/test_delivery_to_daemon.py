"""Staged batches on their way to a real daemon: a driver killed between chunks, lost answers, a daemon that dies."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from hbuf import library
from hbuf.errors import NotFound, Paused, Unavailable
from hbuf.remote import verbs
from hbuf.remote.access import Access
from hbuf.remote.buffer import RemoteBuffer
from hbuf.remote.location import parse_location
from hbuf.spark.delivery import Delivery, Destination, chunk_limits
from hbuf.spark.destinations import IntoDirectory, IntoServer, open_or_make
from hbuf.spark.staging import StagedFile, Staging, make_staging, sender_of
from hbuf.store.directory import BufferDirectory
from hbuf.store.outgoing import Appended, Outgoing
from hbuf.store.writer import Writer

if TYPE_CHECKING:
    from running_daemon import RunningDaemon

QUERY = "spark-query"
CHUNKS = 4  # of 3 rows each
ROWS = CHUNKS * 3


@dataclass
class Here:
    """A buffer of a daemon, in which chunks have 3 messages, and where rows are staged for it."""

    daemon: RunningDaemon
    name: str
    staging_directory: Path
    port: int = 0  # of a proxy

    @property
    def buffer(self) -> RemoteBuffer:
        location = parse_location(f"https://127.0.0.1:{self.port or self.daemon.port}/b/{self.name}")
        return RemoteBuffer(location, Access(str(self.daemon.cacert), token=self.daemon.token))

    @property
    def directory(self) -> Path:
        return self.daemon.root / "tenants/default/buffers" / self.name

    @property
    def staging(self) -> Staging:
        return Staging(self.staging_directory, sender_of(verbs.read_settings(self.buffer).uuid, QUERY))

    def stage(self, version: str, batch: int = 0) -> list[StagedFile]:
        rows = pa.record_batch({"body": [f"{version} {batch} {row}" for row in range(ROWS)]})
        limits = chunk_limits(verbs.read_settings(self.buffer))
        return [file for file in [self.staging.stage(batch, 0, [rows], limits)] if file is not None]

    def deliver(self, version: str, destination: Destination | None = None, batch: int = 0) -> None:
        with destination or IntoServer(self.buffer, 30) as into:
            Delivery(into, self.staging, QUERY.encode(), 0).deliver(batch, self.stage(version, batch))

    def bodies(self) -> list[str]:
        return [message.body.decode() for message in library.open(self.directory).read()]

    def check_once(self, *versions: str) -> None:
        """Every row of the batches from 0 on is there once and in order, each batch of one version."""
        assert self.bodies() == [f"{each} {batch} {row}" for batch, each in enumerate(versions) for row in range(ROWS)]
        assert os.listdir(self.staging_directory) == []
        assert library.open(self.directory).verify().ok


_names = itertools.count(1)


def make(daemon: RunningDaemon, tmp_path: Path) -> Here:
    here = Here(daemon, f"delivered-{next(_names)}", tmp_path / "staging")
    verbs.create(here.buffer, {"segment_messages": 3})
    make_staging(here.staging_directory)
    return here


@pytest.fixture
def here(daemon: RunningDaemon, tmp_path: Path) -> Here:
    return make(daemon, tmp_path)


class Around(IntoServer):
    """Does something before, or after, append number `at`."""

    def __init__(self, buffer: RemoteBuffer, at: int, before: Callable[[], None], after: Callable[[], None]) -> None:
        super().__init__(buffer, 30)
        self._left, self._before, self._after = at, before, after

    def append_some(self, outgoing: Outgoing) -> Appended:
        self._left -= 1
        if self._left == 0:
            self._before()
        done = super().append_some(outgoing)
        if self._left == 0:
            self._after()
        return done


class Killed(BaseException):
    pass


def die() -> None:
    raise Killed


def nothing() -> None:
    pass


@pytest.mark.parametrize("at", range(1, CHUNKS + 1))
def test_a_driver_killed_between_chunks_stores_every_row_once(here: Here, at: int) -> None:
    for batch, moments in enumerate([(die, nothing), (nothing, die)]):
        with pytest.raises(Killed):
            here.deliver("first", Around(here.buffer, at, *moments), batch)
        here.deliver("second", batch=batch)
        here.deliver("third", batch=batch)
    here.check_once("first", "first")


@pytest.mark.parametrize("at", [1, 2])
def test_a_daemon_killed_between_chunks_is_waited_for(own_daemon: RunningDaemon, tmp_path: Path, at: int) -> None:
    here = make(own_daemon, tmp_path)
    own_daemon.command = [part.replace(":0", f":{own_daemon.port}") for part in own_daemon.command]
    starting = threading.Thread(target=own_daemon.start)

    def crash() -> None:
        own_daemon.kill()
        starting.start()

    here.deliver("first", Around(here.buffer, at, crash, nothing))
    starting.join()
    here.check_once("first")


def test_an_answer_that_is_lost_is_asked_for_again(here: Here) -> None:
    with cutting_proxy(here.daemon.port) as proxy:
        here.port = proxy.port
        here.deliver("first", Around(here.buffer, 2, proxy.cut_next_answer, nothing))
        assert proxy.cuts == 1
    here.port = 0
    here.check_once("first")


def test_without_a_producer_a_lost_answer_says_what_is_known(here: Here) -> None:
    with cutting_proxy(here.daemon.port) as proxy:
        here.port = proxy.port
        into = Around(here.buffer, 3, proxy.cut_next_answer, nothing)
        with into, pytest.raises(Unavailable) as caught:
            Delivery(into, here.staging, None, 0).deliver(0, here.stage("first"))
    assert caught.value.message.endswith(
        ": it is not known whether the last 3 messages were stored; 6 rows before that are stored"
    )
    assert caught.value.hint == "look what is there; with the options producer and batch a write can be repeated"


def test_a_paused_buffer_is_waited_for_and_no_longer_than_asked(here: Here) -> None:
    assert here.daemon.request("PUT", f"/b/{here.name}/paused", {"why": "backup"}).status == 201
    with pytest.raises(Paused):
        here.deliver("first", IntoServer(here.buffer, 0))
    resume = threading.Timer(0.3, here.daemon.request, ["DELETE", f"/b/{here.name}/paused"])
    resume.start()
    here.deliver("second")
    resume.join()
    here.check_once("first")


@pytest.mark.parametrize("over_https", [False, True])
def test_two_drivers_of_one_batch_store_it_once(here: Here, *, over_https: bool) -> None:
    """They see that there is no manifest at the same time. Who comes late may find that its rows are gone."""
    both = threading.Barrier(2, timeout=30)

    def into() -> Destination:
        if over_https:
            return IntoServer(here.buffer, 30)
        return IntoDirectory(Writer(BufferDirectory(here.directory), timeout_seconds=30))

    def drive(version: str, batch: int) -> None:
        staged = here.stage(version, batch)
        both.wait()
        with contextlib.suppress(NotFound), into() as destination:
            Delivery(destination, here.staging, QUERY.encode(), 30).deliver(batch, staged)

    for batch in range(5):
        drivers = [threading.Thread(target=drive, args=[version, batch]) for version in ("one", "two")]
        for driver in drivers:
            driver.start()
        for driver in drivers:
            driver.join()
    here.deliver("last", batch=5)  # and with it goes what a late one left
    here.check_once(*[body.split()[0] for body in here.bodies()[::ROWS]])


def test_a_missing_buffer_is_made_only_where_that_is_said(here: Here) -> None:
    here.name = f"{here.name}-missing"
    with pytest.raises(NotFound):
        open_or_make(here.buffer, create=False)
    made = open_or_make(here.buffer, create=True)
    assert open_or_make(here.buffer, create=True).uuid == made.uuid


class Proxy:
    """Hands bytes on, both ways, and hangs up instead of an answer that it is told to cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.cuts = 0
        self._cut = threading.Event()
        self._sockets: list[socket.socket] = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next_answer(self) -> None:
        self._cut.set()

    def close(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                ours, _ = self._listening.accept()
                theirs = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [ours, theirs]
                for pair, answers in (((ours, theirs), False), ((theirs, ours), True)):
                    threading.Thread(target=self._hand_on, args=[*pair, answers], daemon=True).start()

    def _hand_on(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                if answers and self._cut.is_set():
                    self._cut.clear()
                    self.cuts += 1
                    break
                target.sendall(piece)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def cutting_proxy(target: int) -> Iterator[Proxy]:
    proxy = Proxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
