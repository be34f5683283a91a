"""Connections that break: what is sent again, what is not, and that nothing is lost or there twice."""

from __future__ import annotations

import io
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from hbuf.errors import Unavailable
from hbuf.format.places import FIRST
from hbuf.remote.reader import RemoteReader
from hbuf.remote.writer import RemoteWriter
from hbuf.store.outgoing import Outgoing

if TYPE_CHECKING:
    from running_daemon import RunningDaemon

    from .conftest import MakeProxy, MakeServed

# The client's part of a handshake has fewer bytes; what comes behind is the request.
HANDSHAKE_UP = 1_200
BODY = b"x" * 50_000


def numbered(*numbers: int) -> Outgoing:
    return Outgoing([BODY] * len(numbers), producers=[(b"till", number) for number in numbers])


@pytest.mark.parametrize("cut", [100, HANDSHAKE_UP + 500, HANDSHAKE_UP + 40_000])
def test_request_that_did_not_arrive_whole_is_sent_again_without_a_producer_too(
    make_served: MakeServed, make_proxy: MakeProxy, cut: int
) -> None:
    served, proxy = make_served(), make_proxy(("up", cut))
    said = ""
    with RemoteWriter(served.at(proxy.url).connect()) as writer:
        try:
            writer.append_some(Outgoing([BODY]))
        except Unavailable as error:
            said = error.message
    # Where all of it was in the socket's buffers when the connection broke, nobody here can know more.
    assert not said or "it is not known whether the last message was stored" in said
    assert (proxy.connections, len(served.bodies())) == ((1, 0) if said else (2, 1))


def test_answer_that_does_not_come_is_unknown_without_a_producer(
    make_served: MakeServed, make_proxy: MakeProxy
) -> None:
    served = make_served()
    with RemoteWriter(served.remote.connect()) as writer:
        writer.append_some(Outgoing([b"before"]))
    proxy = make_proxy(("answer", 50_000))
    with (
        RemoteWriter(served.at(proxy.url).connect()) as writer,
        pytest.raises(Unavailable, match="it is not known whether the last 2 messages were stored") as caught,
    ):
        writer.append_some(Outgoing([BODY, b"two"]))
    assert caught.value.hint is not None
    assert "--producer" in caught.value.hint
    assert served.bodies() in ([b"before"], [b"before", BODY, b"two"])


@pytest.mark.parametrize("cut", [("up", 100), ("up", 30_000), ("up", 120_000), ("answer", 100_000)])
def test_producer_that_sends_again_stores_each_message_exactly_once(
    make_served: MakeServed, make_proxy: MakeProxy, cut: tuple[str, int]
) -> None:
    served, proxy = make_served(), make_proxy(cut, cut, cut)
    with RemoteWriter(served.at(proxy.url).connect()) as writer:
        for start in (1, 3, 5):
            assert len(writer.append_some(numbered(start, start + 1)).seqs) == 2
    assert served.bodies() == [BODY] * 6


def test_kept_connection_that_was_closed_meanwhile_is_noticed_before_anything_is_sent(
    make_served: MakeServed, make_proxy: MakeProxy
) -> None:
    served = make_served()
    connection = served.remote.connect()
    with RemoteWriter(connection) as writer:
        writer.append_some(Outgoing([b"one"]))
        assert connection._http is not None
        connection._http.sock.shutdown(socket.SHUT_RD)  # as if the daemon had closed it
        assert writer.append_some(Outgoing([b"two"])).seqs == [2]
    assert served.bodies() == [b"one", b"two"]


def test_nobody_there_is_told_after_a_few_tries(make_served: MakeServed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with (
        make_served().at(f"https://localhost:{port}").connect() as connection,
        pytest.raises(Unavailable, match="cannot be reached: connection refused"),
    ):
        connection.get("/status")


def test_download_goes_on_where_it_broke(make_served: MakeServed, make_proxy: MakeProxy) -> None:
    served = make_served([BODY] * 40)
    stored = (served.path / "segments/00000000000000000001.http").read_bytes()
    proxy = make_proxy(("down", 500_000), ("down", 500_000), ("down", 600_000))
    taken: list[int] = []
    with served.at(proxy.url).connect() as connection:
        file = io.BytesIO()
        length, _ = connection.download("/segments/00000000000000000001.http", file, taken.append)
    assert (length, file.getvalue()) == (len(stored), stored)
    # It went on: nothing came twice.
    assert sum(count for count in taken if count > 0) == len(stored)
    assert proxy.connections >= 4


def test_reading_goes_on_where_it_broke(make_served: MakeServed, make_proxy: MakeProxy) -> None:
    served = make_served([b"%d" % i for i in range(2_000)])
    proxy = make_proxy(("down", 3_000), ("down", 100_000))
    with RemoteReader(served.at(proxy.url)) as reader:
        found = [seq for chunk in reader.chunks(1, reader.end_seq) for seq in chunk.seqs()]
    assert found == list(range(1, 2_001))


def test_following_survives_a_daemon_that_is_killed_and_starts_again(own_daemon: RunningDaemon) -> None:
    from hbuf.ops.tail import follow

    from .conftest import served_by

    served = served_by(own_daemon, [])
    port = own_daemon.port
    own_daemon.command[own_daemon.command.index("--listen") + 1] = f"127.0.0.1:{port}"
    got: list[bytes] = []
    has_all = threading.Event()

    def read() -> None:
        with RemoteReader(served.remote) as reader:
            for message in follow(reader, FIRST):
                got.append(message.body)
                if len(got) == 4:
                    has_all.set()
                    return

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    with RemoteWriter(served.remote.connect()) as writer:
        writer.append_some(Outgoing([b"one", b"two"]))
    own_daemon.kill()
    own_daemon.start()
    with RemoteWriter(served.remote.connect()) as writer:
        writer.append_some(Outgoing([b"three", b"four"]))
    assert has_all.wait(30)
    reading.join()
    assert got == [b"one", b"two", b"three", b"four"]
