"""A request arrives and its answer does not: a producer that sends again has one message, and is told where it is."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from http.client import HTTPException
from typing import TYPE_CHECKING

import pytest
from running_daemon import wait_until

from .cutting_proxy import CuttingProxy

if TYPE_CHECKING:
    from running_daemon import RunningDaemon

HTTP = {"content-type": "application/http; msgtype=request"}
NDJSON = {"content-type": "application/x-ndjson"}
SENDER = {"x-hbuf-producer": "till", "x-hbuf-producer-seq": "5"}
IN_EACH = (
    b"POST / HTTP/1.1\r\nx-hbuf-producer: till\r\nx-hbuf-producer-seq: 5\r\ncontent-length: 1\r\n\r\na"
    b"POST / HTTP/1.1\r\nx-hbuf-producer: till\r\nx-hbuf-producer-seq: 9\r\ncontent-length: 1\r\n\r\nb"
)


@pytest.fixture
def proxy(daemon: RunningDaemon) -> Iterator[CuttingProxy]:
    with contextlib.closing(CuttingProxy(daemon.port)) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("name", "query", "headers", "body", "bodies"),
    [
        ("lost-one", "", SENDER, b"a", ["a"]),
        ("lost-lines", "?split=lines", SENDER, b"a\nb\n", ["a", "b"]),
        ("lost-json", "", SENDER | NDJSON, b'{"body":"a"}\n{"body":"b"}\n', ["a", "b"]),
        ("lost-http", "", HTTP, IN_EACH, ["a", "b"]),
        ("lost-once", "", SENDER | {"if-match": f'"{"0" * 64}"'}, b"a", ["a"]),
    ],
)
def test_what_is_sent_again_after_its_answer_was_lost_is_there_once(
    daemon: RunningDaemon,
    proxy: CuttingProxy,
    name: str,
    query: str,
    headers: dict[str, str],
    body: bytes,
    bodies: list[str],
) -> None:
    path = f"/b/{name}"
    assert daemon.request("PUT", path, {}).status == 201
    given = headers | {"authorization": f"Bearer {daemon.token}"}
    connection = http.client.HTTPSConnection("127.0.0.1", proxy.port, timeout=30, context=daemon.context())
    with contextlib.closing(connection):
        connection.connect()
        proxy.withhold()
        connection.request("POST", path + query, body, given)
        wait_until(lambda: daemon.request("HEAD", path).headers["x-hbuf-last"] == str(len(bodies)), "it is stored")
        proxy.cut()
        with pytest.raises((OSError, HTTPException)):
            connection.getresponse()
    for _ in range(2):
        again = daemon.request("POST", path + query, body, headers | {"accept": "application/x-ndjson"})
        assert again.status == 200
        told = [json.loads(line) for line in again.body.splitlines()]
        assert [line["duplicate"] for line in told] == [True] * len(bodies)
        stored = daemon.request("GET", path, headers={"accept": "application/x-ndjson"}).body.splitlines()
        messages = [json.loads(line) for line in stored]
        assert [message["body"] for message in messages] == bodies
        assert [(line["seq"], line["id"]) for line in told] == [(each["seq"], each["id"]) for each in messages]


def test_what_is_cut_off_within_the_body_is_not_stored(daemon: RunningDaemon) -> None:
    """Whole or absent: a connection that ends in the middle of a batch leaves nothing of it."""
    assert daemon.request("PUT", "/b/cut-off", {}).status == 201
    head = f"POST /b/cut-off HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {daemon.token}\r\n"
    for rest in (
        "content-length: 100\r\n\r\nhalf of it",
        "content-type: application/http\r\ncontent-length: 100\r\n\r\nPOST / HTTP/1.1\r\ncontent-length: 1\r\n\r\na",
        "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    ):
        with contextlib.closing(daemon.raw()) as connection:
            connection.sendall((head + rest).encode())
    assert daemon.request("POST", "/b/cut-off", b"whole").headers["x-hbuf-seq"] == "1"


def test_what_was_erased_is_not_stored_again_and_has_the_number_that_it_had(daemon: RunningDaemon) -> None:
    assert daemon.request("PUT", "/b/lost-erased", {}).status == 201
    body = b"a\nb\n"
    first = daemon.request("POST", "/b/lost-erased?split=lines", body, SENDER)
    assert daemon.request("DELETE", "/b/lost-erased/1?reason=asked").status == 200
    again = daemon.request("POST", "/b/lost-erased?split=lines", body, SENDER)
    assert (again.status, again.json()) == (200, {**first.json(), "duplicates": 2})


def test_of_what_a_producer_sent_before_its_last_request_it_is_not_known_where_it_is(daemon: RunningDaemon) -> None:
    """It is not stored again all the same; nor is a neighbour taken for it."""
    assert daemon.request("PUT", "/b/lost-older", {}).status == 201
    for number in ("5", "7", "9"):
        answer = daemon.request("POST", "/b/lost-older", number, SENDER | {"x-hbuf-producer-seq": number})
        assert answer.status == 201
    older = daemon.request("POST", "/b/lost-older", b"5", SENDER)
    assert (older.status, older.json()["last"], older.json()["duplicates"]) == (200, None, 1)
    mixed = daemon.request("POST", "/b/lost-older?split=lines", b"8\n9\n", SENDER | {"x-hbuf-producer-seq": "8"})
    assert (mixed.status, mixed.json()["first"], mixed.json()["last"]) == (200, None, 3)
