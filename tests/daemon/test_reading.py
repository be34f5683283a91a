"""GET and HEAD /b/{buffer}: places, forms, filters, limits, damage, waiting, event streams."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

import hbuf

from .served import Answer, Served, serving

NDJSON = {"accept": "application/x-ndjson"}
OCTETS = {"accept": "application/octet-stream"}
EVENTS = {"accept": "text/event-stream"}


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Ten messages in segments of three; the odd ones have the key `odd`, the last two the tag `late`."""
    with serving(tmp_path_factory.mktemp("reading") / "root", read_messages=8, wait_seconds=5) as served:
        served.buffer("orders", segment_messages=3)
        for number in range(1, 11):
            headers = {"x-hbuf-key": "odd"} if number % 2 else {}
            headers |= {"x-hbuf-tag": "late"} if number > 8 else {}
            served("POST", "/b/orders", b"%d" % number, headers)
        yield served


def numbers(answer: Answer) -> list[int]:
    assert answer.status == 200, answer.body
    return [json.loads(line)["seq"] for line in answer.body.splitlines()]


def read(served: Served, query: str, path: str = "/b/orders") -> list[int]:
    return numbers(served("GET", f"{path}?{query}", headers=NDJSON))


@pytest.mark.parametrize(
    ("query", "expected", "start"),
    [
        ("max=3", [1, 2, 3], "1"),
        ("from=first&max=1", [1], "1"),
        ("from=4&to=6", [4, 5], "4"),
        ("from=last", [10], "10"),
        ("from=end", [], "11"),
        ("from=-2", [9, 10], "9"),
        ("from=7&to=-2", [7, 8], "7"),
        ("from=@10m&max=2", [1, 2], "1"),
        ("from=5&to=5", [], "5"),
        ("from=6&to=5", [], "6"),
        ("from=100", [], "100"),
        ("key=odd&max=3", [1, 3, 5], "1"),
        ("key=odd&tag=late", [9], "1"),
        ("tag=late&from=10", [10], "10"),
        ("key=nobody", [], "1"),
    ],
)
def test_places_and_filters_say_what_is_read(orders: Served, query: str, expected: list[int], start: str) -> None:
    answer = orders("GET", f"/b/orders?{query}", headers=NDJSON)
    assert numbers(answer) == expected
    assert (answer["x-hbuf-from"], answer["x-hbuf-first"], answer["x-hbuf-last"]) == (start, "1", "10")


def test_x_hbuf_next_is_where_to_go_on(orders: Served) -> None:
    for query in ("max=3", "max=2&key=odd"):
        at, found = "1", []
        for _ in range(10):
            answer = orders("GET", f"/b/orders?{query}&from={at}", headers=NDJSON)
            found += numbers(answer)
            at = answer["x-hbuf-next"]
        assert at == "11"
        assert found == ([1, 3, 5, 7, 9] if "key" in query else list(range(1, 11)))


def test_records_are_those_of_the_file_byte_for_byte(orders: Served) -> None:
    whole = orders("GET", "/b/orders/segments/00000000000000000001.http").body
    answer = orders("GET", "/b/orders?to=4")
    assert answer["content-type"] == "application/http; msgtype=request"
    assert whole.endswith(answer.body)
    assert answer.body.count(b"POST /b/orders HTTP/1.1\r\n") == 3
    filtered = orders("GET", "/b/orders?to=4&key=odd").body
    assert filtered.count(b"POST /b/orders HTTP/1.1\r\n") == 2


def test_bodies_come_one_behind_the_other(orders: Served) -> None:
    assert orders("GET", "/b/orders", headers=OCTETS).body == b"12345678"
    assert orders("GET", "/b/orders?key=odd", headers=OCTETS).body == b"13579"


def test_no_more_messages_come_than_the_limit(orders: Served) -> None:
    for most, expected in (("8", 8), ("9", 8), ("0", 0)):
        answer = orders("GET", f"/b/orders?max={most}", headers=NDJSON)
        assert len(numbers(answer)) == expected
        assert answer["x-hbuf-next"] == str(expected + 1)


@pytest.mark.parametrize(
    "query",
    [
        *("from=0", "from=middle", "from=consumer", "max=-1", "max=many", "wait=-1", "wait=soon", "wait=inf"),
        *("form=json", "from=1&from=2", "key=%ff", "max=1e3", "from=@yesterday"),
    ],
)
def test_a_parameter_that_is_wrong_is_refused(orders: Served, query: str) -> None:
    assert orders("GET", f"/b/orders?{query}").json()["code"] == "malformed"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, "application/http; msgtype=request"),
        ("*/*", "application/http; msgtype=request"),
        ("text/html, */*;q=0.1", "application/http; msgtype=request"),
        ("application/*;q=0.5, application/x-ndjson", "application/x-ndjson"),
        ("application/x-ndjson;q=0.1, application/octet-stream;q=0.2", "application/octet-stream"),
        ("APPLICATION/X-NDJSON", "application/x-ndjson"),
        ("application/http;q=0, */*", "application/x-ndjson"),
    ],
)
def test_accept_says_in_which_form(orders: Served, accept: str | None, form: str) -> None:
    answer = orders("GET", "/b/orders", headers={} if accept is None else {"accept": accept})
    assert answer["content-type"] == form


@pytest.mark.parametrize("accept", ["text/html", "application/x-ndjson;q=0", "nonsense", "application/xml;q=nan"])
def test_a_form_that_there_is_not_is_refused(orders: Served, accept: str) -> None:
    answer = orders("GET", "/b/orders", headers={"accept": accept})
    assert (answer.status, answer.json()["code"]) == (406, "not-acceptable")


def test_head_has_the_headers_of_a_read_and_the_state(orders: Served) -> None:
    answer = orders("HEAD", "/b/orders?from=-3&to=end")
    assert (answer.status, answer.body) == (200, b"")
    assert (answer["x-hbuf-from"], answer["x-hbuf-first"], answer["x-hbuf-last"]) == ("8", "1", "10")
    status = orders("GET", "/b/orders/status").json()
    assert (answer["x-hbuf-uuid"], answer["x-hbuf-state"]) == (status["uuid"], "open")
    assert answer["etag"] == f'"{status["id"]}"'


def test_an_empty_buffer_has_no_message_and_zeros_as_its_id(served: Served) -> None:
    served.buffer("orders")
    answer = served("HEAD", "/b/orders")
    assert (answer["x-hbuf-first"], answer["x-hbuf-last"], answer["etag"]) == ("1", "0", '"' + "0" * 64 + '"')
    assert read(served, "from=last") == []
    assert served("GET", "/b/orders").body == b""


def test_an_answer_ends_at_its_limit_of_bytes_or_behind_one_message(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("bytes") / "root", read_bytes=1000) as served:
        served.buffer("orders", b"x" * 5000, b"y" * 100, b"z" * 100, b"a" * 100, b"b" * 100)
        record = len(served("GET", "/b/orders?from=2&to=3").body)
        for headers in ({}, NDJSON, {"accept": "application/octet-stream"}):
            at, answers = "1", []
            while at != "6":
                answer = served("GET", f"/b/orders?from={at}", headers=headers)
                answers.append(len(answer.body))
                at = answer["x-hbuf-next"]
            assert answers[0] >= 5000
            assert all(size <= 1000 for size in answers[1:])
    with serving(tmp_path_factory.mktemp("bytes") / "root", read_bytes=2 * record) as served:
        served.buffer("orders", *[b"y" * 100] * 4)
        assert served("GET", "/b/orders")["x-hbuf-next"] == "3"
    with serving(tmp_path_factory.mktemp("bytes") / "root", read_bytes=2 * record - 1) as served:
        served.buffer("orders", *[b"y" * 100] * 4)
        assert served("GET", "/b/orders")["x-hbuf-next"] == "2"


def test_what_says_that_messages_were_erased_comes_in_between_and_is_no_message(served: Served) -> None:
    served.buffer("orders", b"a", b"b", b"c")
    assert served("DELETE", "/b/orders/2?reason=asked").status == 200
    served("POST", "/b/orders", b"d")
    records = served("GET", "/b/orders")
    assert records.body.count(b"DELETE /b/orders HTTP/1.1\r\n") == 1
    assert served("GET", "/b/orders?max=4").body == records.body
    assert read(served, "") == [1, 2, 3, 5]
    assert served("GET", "/b/orders", headers=OCTETS).body == b"acd"
    assert served("GET", "/b/orders?max=3")["x-hbuf-next"] == "4"


def test_what_is_retired_is_told(served: Served) -> None:
    served.buffer("orders", *[b"%d" % number for number in range(6)], segment_messages=2)
    path = served.root / "tenants/default/buffers/orders"
    segments = sorted(path.glob("segments/*.http"))
    for part in path.glob(f"segments/{segments[0].stem}.*"):
        part.unlink()
    assert read(served, "from=first") == [3, 4, 5, 6]
    answer = served("GET", "/b/orders?from=1", headers=NDJSON)
    assert numbers(answer) == [3, 4, 5, 6]
    assert (answer["x-hbuf-retired"], answer["x-hbuf-first"]) == ("2", "3")
    gone = served("GET", "/b/orders/1")
    assert (gone.status, gone.json()["code"], gone["x-hbuf-first"]) == (410, "gone", "3")


def test_what_is_damaged_is_left_out_and_told(served: Served) -> None:
    served.buffer("orders", b"first", b"second", b"third")
    [segment] = (served.root / "tenants/default/buffers/orders/segments").glob("*.http")
    data = segment.read_bytes()
    at = data.index(b"x-hbuf-seq: 2")
    segment.write_bytes(data[: at - 30] + b"#" * 30 + data[at:])
    for headers in ({}, NDJSON, OCTETS):
        answer = served("GET", "/b/orders", headers=headers)
        assert b"first" in answer.body
        assert b"second" not in answer.body
        assert answer.body.count(b"third") == 1
        assert answer["x-hbuf-damaged"] == "1"
        file, byte, _ = answer["x-hbuf-damage"].split(" ", 2)
        assert file == segment.name
        assert int(byte) <= at
        assert "x-hbuf-damaged" not in served("GET", "/b/orders?from=3", headers=headers).headers
    assert served("GET", "/b/orders/2").json()["code"] == "damaged"


def test_whoever_waits_gets_the_message_when_it_comes(orders: Served) -> None:
    orders.buffer("waited")
    found: list[Answer] = []
    waiting = threading.Thread(target=lambda: found.append(orders("GET", "/b/waited?wait=60", headers=NDJSON)))
    waiting.start()
    orders("POST", "/b/waited", b"come")
    waiting.join(30)
    assert numbers(found[0]) == [1]


def test_an_append_by_a_command_wakes_whoever_waits(orders: Served) -> None:
    orders.buffer("shell")
    found: list[Answer] = []
    query = "/b/shell?wait=60&key=mine"
    waiting = threading.Thread(target=lambda: found.append(orders("GET", query, headers=NDJSON)))
    waiting.start()
    with hbuf.open(orders.root / "tenants/default/buffers/shell") as buffer:
        buffer.append(b"not this one")
        buffer.append(b"this one", key="mine")
    waiting.join(30)
    assert numbers(found[0]) == [2]


def test_when_the_time_is_up_the_answer_is_empty_and_says_where_to_go_on(orders: Served) -> None:
    answer = orders("GET", "/b/orders?from=end&wait=0.05", headers=NDJSON)
    assert (numbers(answer), answer["x-hbuf-next"], answer["x-hbuf-from"]) == ([], "11", "11")
    assert orders("GET", "/b/orders?from=3&to=3&wait=60").body == b""


class Events:
    """Reads an event stream."""

    def __init__(self, served: Served, path: str, headers: dict[str, str]) -> None:
        self._connection = served.connection()
        authorization = {"authorization": f"Bearer {served.tokens['admin']}"}
        self._connection.request("GET", path, headers={**EVENTS, **authorization, **headers})
        self.response = self._connection.getresponse()

    def read(self) -> tuple[int, dict[str, object]] | None:
        """The next event; None at the end."""
        lines: list[bytes] = []
        while line := self.response.readline():
            if line != b"\n":
                lines.append(line)
            elif len(lines) == 2:
                return int(lines[0].removeprefix(b"id: ")), json.loads(lines[1].removeprefix(b"data: "))
            else:
                lines.clear()
        return None

    def close(self) -> None:
        self.response.close()
        self._connection.close()


def test_an_event_stream_goes_on_live_and_from_where_it_was(orders: Served) -> None:
    orders.buffer("live", b"one\ntwo")
    stream = Events(orders, "/b/live", {})
    assert (stream.response.status, stream.response.headers["content-type"]) == (200, "text/event-stream")
    first = stream.read()
    assert first is not None
    assert (first[0], first[1]["body"]) == (1, "one\ntwo")
    for number in (2, 3):
        orders("POST", "/b/live", b"more")
        event = stream.read()
        assert event is not None
        assert event[0] == number
    stream.close()
    again = Events(orders, "/b/live", {"last-event-id": "2"})
    event = again.read()
    assert event is not None
    assert event[0] == 3
    again.close()


def test_an_event_stream_ends_when_the_daemon_does(tmp_path_factory: pytest.TempPathFactory) -> None:
    ends: list[object] = []
    with serving(tmp_path_factory.mktemp("ending") / "root") as served:
        served.buffer("live", b"one")
        stream = Events(served, "/b/live", {})
        assert stream.read() is not None

        def listen() -> None:
            ends.append(stream.read())
            stream.close()

        listening = threading.Thread(target=listen)
        listening.start()
    listening.join(30)
    assert ends == [None]


def test_there_are_only_so_many_event_streams(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("streams") / "root", event_streams=1) as served:
        served.buffer("live", b"one")
        stream = Events(served, "/b/live", {})
        assert stream.read() is not None
        answer = served("GET", "/b/live", headers=EVENTS)
        assert (answer.status, answer.json()["code"]) == (429, "slow-down")
        assert answer["retry-after"]
        stream.close()


@pytest.mark.parametrize("query", ["max=3", "wait=1", "to=5"])
def test_an_event_stream_has_no_end_to_ask_for(orders: Served, query: str) -> None:
    assert orders("GET", f"/b/orders?{query}", headers=EVENTS).status == 400
    assert orders("GET", "/b/orders", headers={**EVENTS, "last-event-id": "x"}).status == 400
