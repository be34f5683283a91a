"""Bodies of any bytes come out as they went in, through every form of an append and of a read."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from hbuf.format.scan import scan

from .served import Served, serving

LIMIT = 2000
FAKE = (
    b"POST /b/orders HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: 1\r\nx-hbuf-time: 2026-11-18T04:51:00.123456Z\r\n"
    b"content-length: 0\r\nx-hbuf-salt: " + b"A" * 43 + b"\r\nx-hbuf-id: " + b"0" * 64 + b"\r\n\r\n\r\n"
)
BODIES = {
    "nothing": b"",
    "a NUL": b"\0",
    "line ends": b"\r\n\r\n\n\r\0\r\n",
    "every byte": bytes(range(256)),
    "a fake record": FAKE,
    "fake records behind one another": b"\r\n" + FAKE * 3,
    "an event": b"\n\nid: 99\ndata: {}\n\n",
    "chunks": b"0\r\n\r\nPOST /b/orders HTTP/1.1\r\n\r\n",
    "a batch": b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\na",
    "the limit": b"\xff" * LIMIT,
}


def single(served: Served, bodies: list[bytes]) -> None:
    for body in bodies:
        assert served("POST", "/b/orders", body).status == 201


def chunked(served: Served, bodies: list[bytes]) -> None:
    for body in bodies:
        with contextlib.closing(served.connection()) as connection:
            parts = [body[:1], body[1:]]
            headers = {"authorization": f"Bearer {served.tokens['admin']}"}
            connection.request("POST", "/b/orders", (part for part in parts if part), headers, encode_chunked=True)
            assert connection.getresponse().status == 201


def as_http(served: Served, bodies: list[bytes]) -> None:
    body = b"".join(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b\r\n" % (len(each), each) for each in bodies)
    assert served("POST", "/b/orders", body, {"content-type": "application/http"}).json()["count"] == len(bodies)


def as_json(served: Served, bodies: list[bytes]) -> None:
    lines = [json.dumps({"body_base64": base64.b64encode(body).decode()}) for body in bodies]
    answer = served("POST", "/b/orders", "\n".join(lines), {"content-type": "application/x-ndjson"})
    assert answer.json()["count"] == len(bodies)


def one_by_one(served: Served, count: int) -> list[bytes]:
    return [served("GET", f"/b/orders/{seq}").body for seq in range(1, count + 1)]


def of_records(served: Served, count: int) -> list[bytes]:
    data = served("GET", "/b/orders").body
    return [data[record.body_start : record.body_end] for record in scan(data).records]


def of_json(served: Served, count: int) -> list[bytes]:
    return [
        _body(line)
        for line in served("GET", "/b/orders", headers=_accept("application/x-ndjson")).body.split(b"\n")[:-1]
    ]


def of_events(served: Served, count: int) -> list[bytes]:
    found: list[bytes] = []
    with contextlib.closing(served.connection()) as connection:
        headers = {"authorization": f"Bearer {served.tokens['admin']}"} | _accept("text/event-stream")
        connection.request("GET", "/b/orders", headers=headers)
        answer = connection.getresponse()
        while len(found) < count:
            number, data, blank = answer.readline(), answer.readline(), answer.readline()
            assert (number, data[:6], blank) == (b"id: %d\n" % (len(found) + 1), b"data: ", b"\n")
            found.append(_body(data[6:]))
    return found


def of_tail(served: Served, count: int) -> list[bytes]:
    path = served.root / "tenants" / "default" / "buffers" / "orders"
    code = "from hbuf.cli.tail import main; main()"
    argv = [sys.executable, "-P", "-c", code, "-o", "first", "--json", str(path)]
    return [_body(line) for line in subprocess.run(argv, capture_output=True, check=True).stdout.splitlines()]


def _accept(media: str) -> dict[str, str]:
    return {"accept": media}


def _body(line: bytes) -> bytes:
    message = json.loads(line)
    return base64.b64decode(message["body_base64"]) if "body_base64" in message else message["body"].encode()


@pytest.fixture
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("bodies") / "root", message_bytes=LIMIT) as served:
        served.buffer("orders")
        yield served


@pytest.mark.parametrize("append", [single, chunked, as_http, as_json])
def test_any_bytes_come_out_as_they_went_in(small: Served, append: Callable[[Served, list[bytes]], None]) -> None:
    bodies = list(BODIES.values())
    append(small, bodies)
    for read in (one_by_one, of_records, of_json, of_events, of_tail):
        assert read(small, len(bodies)) == bodies, read.__name__
    octets = small("GET", "/b/orders", headers=_accept("application/octet-stream")).body
    assert octets == b"".join(bodies)
    copied = small.buffer("copy")
    records = small("GET", "/b/orders").body
    assert small("POST", copied, records, {"content-type": "application/http"}).status == 201
    assert small("GET", copied, headers=_accept("application/octet-stream")).body == octets


@pytest.mark.parametrize("append", [single, chunked, as_http, as_json])
def test_one_byte_past_the_limit_is_refused_and_nothing_is_stored(
    small: Served, append: Callable[[Served, list[bytes]], None]
) -> None:
    with pytest.raises((AssertionError, KeyError)):
        append(small, [b"x" * (LIMIT + 1)])
    assert small("HEAD", "/b/orders")["x-hbuf-last"] == "0"


@pytest.mark.parametrize("lines", [[b"", b"", b""], [b"\0", b"a\rb", b"\r"], [b"POST / HTTP/1.1", b""], [b"\xff\xfe"]])
def test_lines_of_any_bytes_but_line_ends_come_out_as_they_went_in(small: Served, lines: list[bytes]) -> None:
    body = b"".join(line + b"\n" for line in lines)
    assert small("POST", "/b/orders?split=lines", body).status == 201
    assert one_by_one(small, len(lines)) == lines
