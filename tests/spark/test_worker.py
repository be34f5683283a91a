"""A worker that a reader has come to waits no longer than it must."""

import gc
import pickle
import socket
from collections.abc import Iterator

import pytest
from pyspark import TaskContext

from hbuf.spark import worker
from hbuf.spark.batch import BatchReader
from hbuf.spark.stream import StreamReader

from .reading import options_of

Reader = type[BatchReader] | type[StreamReader]


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    """One that acknowledges when it likes."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as made:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        yield made
        made.getpeername()  # nobody closed it


@pytest.fixture
def thawed() -> Iterator[None]:
    worker._pass_over_modules.cache_clear()
    yield
    gc.unfreeze()


def acknowledges_at_once(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))


@pytest.mark.usefixtures("thawed")
@pytest.mark.parametrize("kind", [BatchReader, StreamReader])
def test_with_a_reader_a_worker_stops_waiting(
    connection: socket.socket, monkeypatch: pytest.MonkeyPatch, kind: Reader
) -> None:
    monkeypatch.setattr(TaskContext, "get", object)
    pickle.loads(pickle.dumps(kind(["seq"], options_of("/nowhere"))))  # as Spark sends it
    assert acknowledges_at_once(connection)
    assert gc.get_freeze_count()


@pytest.mark.parametrize("kind", [BatchReader, StreamReader])
def test_a_process_that_is_no_worker_is_left_alone(connection: socket.socket, kind: Reader) -> None:
    pickle.loads(pickle.dumps(kind(["seq"], options_of("/nowhere"))))
    assert not acknowledges_at_once(connection)
    assert not gc.get_freeze_count()
