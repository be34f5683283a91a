"""Clients that are slow, greedy or wrong, over TLS and the Unix socket: what they get, and that others are served."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from running_daemon import RunningDaemon, running, wait_until

if TYPE_CHECKING:
    from conftest import StartDaemon

HEADER_BYTES = 4096
HASTY = f"""
[limits]
request_seconds = 0.3
idle_seconds = 0.6
header_bytes = {HEADER_BYTES}
"""


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """One that does not wait for long."""
    with running(tmp_path_factory.mktemp("hasty") / "root", config=HASTY) as daemon:
        assert daemon.request("PUT", "/b/orders").status == 201
        yield daemon


@pytest.fixture(params=["tls", "unix"])
def client(hasty: RunningDaemon, request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    with hasty.raw(over_unix=request.param == "unix") as connected:
        yield connected
    # Whatever it did, nobody else notices.
    assert hasty.request("GET", "/healthz").status == 200


def head(hasty: RunningDaemon, *fields: str, line: str = "POST /b/orders HTTP/1.1") -> bytes:
    given = ["host: a", f"authorization: Bearer {hasty.token}", *fields]
    return "\r\n".join([line, *given, "", ""]).encode()


def answer_of(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """The one answer that comes before the connection is closed."""
    received = b""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while piece := client.recv(65536):
            received += piece
    assert received, "closed without an answer"
    section, _, body = received.partition(b"\r\n\r\n")
    first, *lines = section.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(first.split()[1]), headers, body


def problem_of(client: socket.socket) -> tuple[int, str]:
    """Its status and code. The connection was closed behind it, and it says nothing of what serves here."""
    status, headers, body = answer_of(client)
    assert headers["content-type"] == "application/problem+json"
    assert headers["x-hbuf-version"] == "1"
    assert headers["server"] == "hbuf"
    assert "aiohttp" not in f"{headers}{body!r}"
    problem = json.loads(body)
    assert problem["status"] == status
    return status, problem["code"]


def messages(hasty: RunningDaemon) -> Any:
    return hasty.request("GET", "/b/orders/status").json()["messages"]


def test_header_section_that_does_not_end_is_too_slow(client: socket.socket) -> None:
    client.sendall(b"POST /b/orders HTTP/1.1\r\nhost: a\r\n")
    assert problem_of(client) == (408, "too-slow")


def test_header_section_that_trickles_is_too_slow(client: socket.socket) -> None:
    client.sendall(b"POST /b/orders HTTP/1.1\r\n")
    client.settimeout(0.02)
    received = b""
    for _ in range(1000):
        with contextlib.suppress(TimeoutError, ssl.SSLWantReadError):
            received += client.recv(65536)
        if received:
            break
        client.sendall(b"x-a: b\r\n")
    assert received.split()[1] == b"408"


@pytest.mark.parametrize("framing", ["content-length: 10", "transfer-encoding: chunked"])
def test_body_that_does_not_end_is_too_slow(hasty: RunningDaemon, client: socket.socket, framing: str) -> None:
    before = messages(hasty)
    client.sendall(head(hasty, framing) + (b"5\r\nabcde\r\n" if "chunked" in framing else b"abcde"))
    assert problem_of(client) == (408, "too-slow")
    assert messages(hasty) == before


def test_connection_that_says_nothing_is_closed(client: socket.socket) -> None:
    assert client.recv(1) == b""


def test_connection_that_is_kept_open_without_a_request_is_closed(hasty: RunningDaemon, client: socket.socket) -> None:
    client.sendall(head(hasty, line="GET /healthz HTTP/1.1"))
    assert client.recv(65536).startswith(b"HTTP/1.1 200")
    client.sendall(head(hasty, line="GET /healthz HTTP/1.1"))
    assert client.recv(65536).startswith(b"HTTP/1.1 200")
    assert client.recv(1) == b""


def padded(section: bytes, length: int) -> bytes:
    """The same header section with a field that makes it this long."""
    return section[:-2] + b"x-pad: " + b"a" * (length - len(section) - len("x-pad: \r\n")) + b"\r\n\r\n"


def test_header_section_may_be_as_long_as_the_limit(hasty: RunningDaemon, client: socket.socket) -> None:
    section = padded(head(hasty, line="GET /healthz HTTP/1.1"), HEADER_BYTES)
    assert len(section) == HEADER_BYTES
    client.sendall(section)
    assert client.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_header_section_that_is_one_byte_longer_is_refused(hasty: RunningDaemon, client: socket.socket) -> None:
    client.sendall(padded(head(hasty, line="GET /healthz HTTP/1.1"), HEADER_BYTES + 1))
    assert problem_of(client) == (431, "headers-too-large")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"a" * 100_000,
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nx-a: " + b"a" * 100_000,
        b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x-a: b\r\n" * 10_000,
        b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x-a: b\r\n" * 10_000 + b"\r\n",
        b"GET / HTTP/1.1\r\n" + b"a" * 100_000 + b": b\r\n\r\n",
    ],
    ids=["line", "whole-line", "field", "fields", "whole-fields", "name"],
)
def test_huge_header_sections_are_refused(client: socket.socket, sent: bytes) -> None:
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        client.sendall(sent)
    assert problem_of(client) == (431, "headers-too-large")


@pytest.mark.parametrize(
    "body",
    [
        b"zz\r\nabc\r\n0\r\n\r\n",
        b"-1\r\nabc\r\n0\r\n\r\n",
        b"3\r\nabcd\r\n0\r\n\r\n",
        b"3 \r\nabc\r\n0\r\n\r\n",
        b"0x3\r\nabc\r\n0\r\n\r\n",
        b"3\nabc\n0\n\n",
        b"fffffffffffffffffffff\r\nabc\r\n",
        b"3\r\nabc\r\n0\r\nno field\r\n\r\n",
    ],
)
def test_bad_chunks_are_refused_and_nothing_is_stored(hasty: RunningDaemon, client: socket.socket, body: bytes) -> None:
    before = messages(hasty)
    client.sendall(head(hasty, "transfer-encoding: chunked") + body)
    assert problem_of(client)[0] == 400
    assert messages(hasty) == before


def test_bad_chunk_that_comes_later_is_refused(hasty: RunningDaemon, client: socket.socket) -> None:
    before = messages(hasty)
    client.sendall(head(hasty, "transfer-encoding: chunked") + b"3\r\nabc\r\n")
    assert hasty.request("GET", "/healthz").status == 200
    client.sendall(b"zz\r\n")
    assert problem_of(client)[0] == 400
    assert messages(hasty) == before


def test_trailers_without_end_are_refused(hasty: RunningDaemon, client: socket.socket) -> None:
    before = messages(hasty)
    client.sendall(head(hasty, "transfer-encoding: chunked") + b"3\r\nabc\r\n0\r\n")
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        for _ in range(100):
            client.sendall(b"x-a: b\r\n" * 100)
    assert problem_of(client)[0] in (400, 431)
    assert messages(hasty) == before


@pytest.mark.parametrize(
    "fields",
    [
        ["content-length: 3", "transfer-encoding: chunked"],
        ["transfer-encoding: chunked", "content-length: 3"],
        ["content-length: 3", "content-length: 4"],
        ["content-length: 3", "content-length: 3"],
        ["content-length: 3, 4"],
        ["content-length: -3"],
        ["content-length: +3"],
        ["content-length: 0x3"],
        ["content-length: 3abc"],
        ["content-length: 99999999999999999999999"],
        ["transfer-encoding: chunked, identity"],
        ["transfer-encoding: gzip"],
        ["transfer-encoding: chunked", "transfer-encoding: chunked"],
        ["transfer-encoding : chunked"],
        ["x\x00a: b"],
        ["no field"],
        ["x-a: b\r\n folded"],
    ],
    ids=repr,
)
def test_lengths_that_contradict_and_fields_that_are_none_are_refused(
    hasty: RunningDaemon, client: socket.socket, fields: list[str]
) -> None:
    before = messages(hasty)
    client.sendall(head(hasty, *fields) + b"3\r\nabc\r\n0\r\n\r\n")
    assert problem_of(client)[0] == 400
    assert messages(hasty) == before


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\nhost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET /healthz HTTP/1.1\nhost: a\n\n",
        b"NOSUCH /b HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET http:///b HTTP/1.1\r\nhost: a\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused(client: socket.socket, sent: bytes) -> None:
    client.sendall(sent)
    assert problem_of(client) == (400, "malformed")


@pytest.mark.parametrize("line", ["CONNECT a:1 HTTP/1.1", "OPTIONS * HTTP/1.1", "TRACE / HTTP/1.1"])
def test_methods_that_are_not_ours_are_answered(hasty: RunningDaemon, client: socket.socket, line: str) -> None:
    client.sendall(head(hasty, "connection: close", line=line))
    status, code = problem_of(client)
    assert (status, code) in [(404, "not-found"), (405, "method"), (400, "malformed")]


def test_upgrade_that_nobody_offers_is_passed_over(hasty: RunningDaemon, client: socket.socket) -> None:
    client.sendall(head(hasty, "connection: upgrade, close", "upgrade: websocket", line="GET /healthz HTTP/1.1"))
    assert answer_of(client)[0] == 200


def test_expectation_that_is_not_known_is_refused(hasty: RunningDaemon, client: socket.socket) -> None:
    client.sendall(head(hasty, "expect: a-miracle", "content-length: 3", "connection: close") + b"abc")
    assert answer_of(client)[0] in (201, 400, 417)


def test_body_that_ends_before_its_length_is_not_stored(hasty: RunningDaemon, client: socket.socket) -> None:
    before = messages(hasty)
    client.sendall(head(hasty, "content-length: 10") + b"abc")
    if isinstance(client, ssl.SSLSocket):
        client.close()
    else:
        client.shutdown(socket.SHUT_WR)
        assert problem_of(client)[0] == 400
    assert hasty.request("POST", "/b/orders", b"behind it").status == 201
    assert messages(hasty) == before + 1


def test_body_that_goes_on_behind_its_length_is_no_request(hasty: RunningDaemon, client: socket.socket) -> None:
    before = messages(hasty)
    client.sendall(head(hasty, "content-length: 3") + b"abcdef\r\n\r\n")
    status, _, body = answer_of(client)
    # What came with it may have kept it from being taken, and then it says so.
    assert status == 400 or (status == 201 and b" 400 Bad Request" in body)
    assert messages(hasty) == before + (status == 201)


def test_requests_that_come_back_to_back_are_answered_in_order(hasty: RunningDaemon, client: socket.socket) -> None:
    before = messages(hasty)
    posts = b"".join(head(hasty, f"content-length: {n}") + b"x" * n for n in range(1, 100))
    client.sendall(posts + head(hasty, "connection: close", line="GET /healthz HTTP/1.1"))
    received = b""
    while piece := client.recv(65536):
        received += piece
    assert received.count(b"HTTP/1.1 201 ") == 99
    assert received.count(b"HTTP/1.1 200 ") == 1
    assert messages(hasty) == before + 99


def test_client_that_never_reads_is_dropped(hasty: RunningDaemon, client: socket.socket) -> None:
    for _ in range(8):
        assert hasty.request("POST", "/b/orders", b"x" * 1024**2).status == 201
    dropped = len(hasty.lines("answer-not-taken"))
    asked = head(hasty, line="GET /b/orders?from=-4 HTTP/1.1")
    with contextlib.suppress(OSError):
        for _ in range(4):
            client.sendall(asked)
    wait_until(lambda: len(hasty.lines("answer-not-taken")) > dropped, "it is dropped")


def test_connections_beyond_the_limit_are_closed_at_once_and_the_others_go_on(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(config="[limits]\nconnections = 5\n")
    with contextlib.ExitStack() as opened:
        kept = [opened.enter_context(daemon.raw()) for _ in range(5)]
        with pytest.raises((OSError, EOFError)):
            daemon.raw().recv(1)
        wait_until(lambda: daemon.lines("too-many-connections"), "the log says so")
        for client in kept:
            client.sendall(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
    wait_until(lambda: _is_served(daemon), "there is room again")


def _is_served(daemon: RunningDaemon) -> bool:
    try:
        return daemon.request("GET", "/healthz").status == 200
    except (OSError, EOFError):
        return False


def test_connections_that_end_in_their_handshake_are_not_counted_for_ever(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(config="[limits]\nconnections = 5\nrequest_seconds = '300ms'\n")
    for sent in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"):
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", daemon.port)) as plain:
                plain.sendall(sent)
    with contextlib.ExitStack() as opened:
        for _ in range(5):  # silent ones
            opened.enter_context(socket.create_connection(("127.0.0.1", daemon.port)))
        wait_until(lambda: _is_served(daemon), "there is room again")


def test_two_thousand_idle_connections_do_not_matter(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(config="[limits]\nconnections = 2500\n")
    with contextlib.ExitStack() as opened:
        for _ in range(1900):
            opened.enter_context(daemon.raw(over_unix=True))
        with ThreadPoolExecutor(4) as pool:
            for client in pool.map(lambda _: daemon.raw(), range(100)):
                opened.enter_context(client)
        assert daemon.request("PUT", "/b/orders").status == 201
        assert daemon.request("POST", "/b/orders", b"one").status == 201
    assert daemon.terminate() == 0
