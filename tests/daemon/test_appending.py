"""POST /b/{buffer}: messages and batches, what is kept of a request, producers, conditions, limits."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from .served import Served, serving

NDJSON = {"content-type": "application/x-ndjson"}
HTTP = {"content-type": "application/http; msgtype=request"}
ZEROS = '"' + "0" * 64 + '"'


def stored(served: Served, path: str = "/b/orders") -> list[dict[str, object]]:
    answer = served("GET", path, headers={"accept": "application/x-ndjson"})
    return [json.loads(line) for line in answer.body.splitlines()]


@pytest.fixture
def orders(served: Served) -> Served:
    served.buffer("orders")
    return served


@pytest.fixture
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("small") / "root"
    with serving(root, message_bytes=100, batch_bytes=1000, batch_messages=3) as served:
        served.buffer("orders")
        yield served


def test_the_body_is_the_message_and_the_answer_says_where_it_is(orders: Served) -> None:
    answer = orders("POST", "/b/orders", b"first\r\n\0order")
    assert answer.status == 201
    assert answer.json() == {"first": 1, "last": 1, "count": 1, "id": answer["x-hbuf-id"], "duplicates": 0}
    assert (answer["x-hbuf-seq"], answer["x-hbuf-ack"]) == ("1", "synced")
    there = orders("GET", "/b/orders/1")
    assert there.body == b"first\r\n\0order"
    assert (there["x-hbuf-id"], there["x-hbuf-time"]) == (answer["x-hbuf-id"], answer["x-hbuf-time"])


def test_an_empty_body_is_an_empty_message(orders: Served) -> None:
    assert orders("POST", "/b/orders").status == 201
    assert orders("GET", "/b/orders/1").body == b""


def test_fields_are_kept_and_what_proxies_and_curl_add_is_not(orders: Served) -> None:
    given = [
        *(("X-Hbuf-Key", "user-17"), ("x-hbuf-tag", "a"), ("x-hbuf-tag", "b"), ("content-type", "text/plain")),
        *(("ce-id", "7"), ("X-Shop", "größe"), ("traceparent", "00-1"), ("content-encoding", "gzip")),
        *(("x-forwarded-for", "10.0.0.1"), ("x-real-ip", "10.0.0.1"), ("cookie", "secret"), ("x-", "nothing")),
    ]
    assert orders("POST", "/b/orders", b"not gzip at all", given).status == 201
    [message] = stored(orders)
    assert (message["key"], message["tags"], message["body"]) == ("user-17", ["a", "b"], "not gzip at all")
    assert message["headers"] == [
        {"name": "content-type", "value": "text/plain"},
        {"name": "ce-id", "value": "7"},
        {"name": "x-shop", "value": "größe"},
        {"name": "traceparent", "value": "00-1"},
        {"name": "content-encoding", "value": "gzip"},
    ]


def test_the_content_type_that_curl_makes_up_is_not_kept(orders: Served) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert orders("POST", "/b/orders", b"a=1", form).status == 201
    assert stored(orders)[0]["headers"] == []


@pytest.mark.parametrize(
    "headers",
    [
        [("x-hbuf-key", "")],
        [("x-hbuf-key", "a"), ("x-hbuf-key", "b")],
        [("x-shop", "a\tb")],
        [("x-hbuf-producer", "p")],
        [("x-hbuf-producer-seq", "1")],
        [("x-hbuf-producer", "p"), ("x-hbuf-producer-seq", "-1")],
        [("x-hbuf-producer", "p" * 129), ("x-hbuf-producer-seq", "1")],
        [("x-hbuf-ack", "hoped")],
        [("x-hbuf-strict-seq", "yes")],
        [("if-match", "0" * 64)],
        [("if-match", '"abc"')],
        [("x-hbuf-version", "2")],
    ],
)
def test_what_is_wrong_is_refused_and_nothing_is_stored(orders: Served, headers: list[tuple[str, str]]) -> None:
    answer = orders("POST", "/b/orders", b"x", headers)
    assert (answer.status, answer.json()["code"]) == (400, "malformed")
    assert stored(orders) == []


def test_a_field_that_is_not_utf_8_is_refused(orders: Served) -> None:
    connection = orders.connection()
    connection.putrequest("POST", "/b/orders")
    connection.putheader("authorization", f"Bearer {orders.tokens['admin']}")
    connection.putheader("x-shop", b"\xff\xfe")
    connection.putheader("content-length", "0")
    connection.endheaders()
    assert connection.getresponse().status == 400
    connection.close()
    assert stored(orders) == []


@pytest.mark.parametrize("ack", ["written", "synced", "majority", "all"])
def test_every_acknowledgement_is_answered_with_what_was_asked(orders: Served, ack: str) -> None:
    assert orders("POST", "/b/orders", b"x", {"x-hbuf-ack": ack})["x-hbuf-ack"] == ack


def test_lines_of_json_are_messages_as_they_are(orders: Served) -> None:
    """As log shippers send them."""
    lines = b'{"seq": 7, "body": "not hbuf\'s own"}\n{"level": "error"}\n'
    answer = orders("POST", "/b/orders?split=lines", lines, NDJSON | {"x-hbuf-tag": "host=web1"})
    assert (answer.status, answer.json()["count"]) == (201, 2)
    first, second = stored(orders)[-2:]
    assert (first["body"], second["body"]) == tuple(lines.decode().splitlines())
    assert first["tags"] == second["tags"] == ["host=web1"]
    assert second["headers"] == [{"name": "content-type", "value": "application/json"}]


def test_lines_are_messages_with_the_fields_of_the_request(orders: Served) -> None:
    answer = orders("POST", "/b/orders?split=lines", b"a\nb\n\nc", {"x-hbuf-key": "k", "content-type": "text/plain"})
    assert answer.status == 201
    assert answer.json() == {"first": 1, "last": 4, "count": 4, "id": answer["x-hbuf-id"], "duplicates": 0}
    assert [(each["body"], each["key"]) for each in stored(orders)] == [("a", "k"), ("b", "k"), ("", "k"), ("c", "k")]


def test_json_lines_go_from_one_buffer_to_another(orders: Served) -> None:
    orders("POST", "/b/orders", b"a", {"x-hbuf-key": "k", "x-shop": "1"})
    orders("POST", "/b/orders", b"\xff\0")
    lines = orders("GET", "/b/orders", headers={"accept": "application/x-ndjson"}).body
    orders.buffer("copy")
    assert orders("POST", "/b/copy", lines, NDJSON).json()["count"] == 2
    assert [each.get("body_base64", each.get("body")) for each in stored(orders, "/b/copy")] == ["a", "/wA="]
    assert stored(orders, "/b/copy")[0]["headers"] == [{"name": "x-shop", "value": "1"}]


def test_records_go_from_one_buffer_to_another(orders: Served) -> None:
    orders("POST", "/b/orders", b"a", {"x-hbuf-key": "k"})
    orders("POST", "/b/orders", b"b")
    orders.buffer("copy")
    records = orders("GET", "/b/orders").body
    assert orders("POST", "/b/copy", records, HTTP).json()["last"] == 2
    assert [(each["body"], each["key"]) for each in stored(orders, "/b/copy")] == [("a", "k"), ("b", None)]


def test_a_batch_is_one_unit_that_is_stored_whole_or_not_at_all(orders: Served) -> None:
    body = b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\naPOST / HTTP/1.1\r\ncontent-length: 1\r\n\r\nb"
    assert orders("POST", "/b/orders", body, HTTP).status == 201
    assert b"x-hbuf-batch: 2/2\r\n" in orders("GET", "/b/orders").body
    for bad in (body + b"POST", body + b"GET / HTTP/1.1\r\n\r\n", body + b"POST / HTTP/1.1\r\nx-hbuf-id: 7\r\n\r\n"):
        answer = orders("POST", "/b/orders", bad, HTTP)
        assert (answer.status, answer.json()["code"]) == (400, "bad-input")
    assert orders("POST", "/b/orders", b'{"body": "a"}\n{"body": 7}\n', NDJSON).json()["code"] == "bad-input"
    assert len(stored(orders)) == 2


@pytest.mark.parametrize(("body", "headers"), [(b"", NDJSON), (b"\n\n", NDJSON), (b"", HTTP)])
def test_a_batch_without_messages_stores_nothing_and_says_so(
    orders: Served, body: bytes, headers: dict[str, str]
) -> None:
    answer = orders("POST", "/b/orders", body, headers)
    assert (answer.status, answer.json()) == (
        200,
        {"first": None, "last": None, "count": 0, "id": None, "duplicates": 0},
    )
    assert orders("POST", "/b/missing", body, headers).status == 404


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/b/orders?split=words", {}, 400),
        ("/b/orders?split=lines", {"content-type": "application/http"}, 400),
        ("/b/orders?splt=lines", {}, 400),
        ("/b/orders", {**NDJSON, "x-hbuf-key": "k"}, 400),
        ("/b/orders", {**HTTP, "x-hbuf-tag": "k"}, 400),
        ("/b/orders", {**HTTP, "x-hbuf-producer": "p", "x-hbuf-producer-seq": "1"}, 400),
        ("/b/orders", {**NDJSON, "content-encoding": "gzip"}, 415),
    ],
)
def test_what_does_not_go_with_a_batch_is_refused(
    orders: Served, path: str, headers: dict[str, str], status: int
) -> None:
    assert orders("POST", path, b'{"body": "a"}\n', headers).status == status
    assert stored(orders) == []


def test_a_line_for_each_message_where_that_is_wanted(orders: Served) -> None:
    answer = orders("POST", "/b/orders?split=lines", b"a\nb\n", {"accept": "application/x-ndjson"})
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert [(line["seq"], line["duplicate"]) for line in lines] == [(1, False), (2, False)]
    assert [line["id"] for line in lines] == [message["id"] for message in stored(orders)]


def test_a_message_that_is_sent_again_is_there_once_and_has_the_number_that_it_had(orders: Served) -> None:
    sender = {"x-hbuf-producer": "till", "x-hbuf-producer-seq": "7"}
    first = orders("POST", "/b/orders", b"x", sender)
    again = orders("POST", "/b/orders", b"x", sender)
    assert (first.status, again.status) == (201, 200)
    assert again.json() == {**first.json(), "duplicates": 1}
    assert (again["x-hbuf-seq"], again["x-hbuf-id"], again["x-hbuf-time"]) == (
        first["x-hbuf-seq"],
        first["x-hbuf-id"],
        first["x-hbuf-time"],
    )
    assert len(stored(orders)) == 1
    older = orders("POST", "/b/orders", b"x", {**sender, "x-hbuf-producer-seq": "3"})
    assert (older.status, older.json()["last"]) == (200, None)
    assert orders("GET", "/b/orders/status?producer=till").json()["producer"] == {"seq": 7, "message": 1}
    assert orders("GET", "/b/orders/status?producer=other").json()["producer"] == {"seq": None, "message": None}


def test_a_batch_that_is_partly_there_is_completed(orders: Served) -> None:
    sender = {"x-hbuf-producer": "till", "x-hbuf-producer-seq": "1"}
    orders("POST", "/b/orders?split=lines", b"a\nb\n", sender)
    answer = orders("POST", "/b/orders?split=lines", b"a\nb\nc\n", sender)
    assert (answer.status, answer.json()["duplicates"], answer.json()["last"]) == (201, 2, 3)
    assert [message["body"] for message in stored(orders)] == ["a", "b", "c"]


def test_a_gap_is_refused_where_that_is_wanted(orders: Served) -> None:
    sender = {"x-hbuf-producer": "till", "x-hbuf-strict-seq": "1"}
    orders("POST", "/b/orders", b"a", {**sender, "x-hbuf-producer-seq": "1"})
    answer = orders("POST", "/b/orders", b"c", {**sender, "x-hbuf-producer-seq": "3"})
    assert (answer.status, answer.json()["code"]) == (409, "producer-gap")
    assert orders("POST", "/b/orders", b"b", {**sender, "x-hbuf-producer-seq": "2"}).status == 201


def test_a_conditional_append_is_refused_when_somebody_else_came_first(orders: Served) -> None:
    first = orders("POST", "/b/orders", b"a", {"if-match": ZEROS})
    assert first.status == 201
    assert orders("POST", "/b/orders", b"b", {"if-match": ZEROS}).json()["code"] == "precondition-failed"
    assert orders("HEAD", "/b/orders")["etag"] == f'"{first["x-hbuf-id"]}"'
    assert orders("POST", "/b/orders", b"b", {"if-match": f'"{first["x-hbuf-id"]}"'}).status == 201


def test_duplicates_are_looked_for_before_the_condition(orders: Served) -> None:
    given = {"x-hbuf-producer": "till", "x-hbuf-producer-seq": "1", "if-match": ZEROS}
    assert orders("POST", "/b/orders", b"a", given).status == 201
    assert orders("POST", "/b/orders", b"a", given).status == 200


@pytest.mark.parametrize(
    ("path", "largest", "beyond", "headers"),
    [
        ("/b/orders", b"x" * 100, b"x" * 101, {}),
        ("/b/orders?split=lines", b"x" * 100 + b"\n", b"x" * 101 + b"\n", {}),
        ("/b/orders?split=lines", b"x\n" * 3, b"x\n" * 4, {}),
        ("/b/orders", b'{"body":"x"}\n' * 3, b'{"body":"x"}\n' * 4, NDJSON),
        ("/b/orders", b'{"body":"%b"}' % (b"x" * 100), b'{"body":"%b"}' % (b"x" * 101), NDJSON),
        (
            "/b/orders",
            b"POST / HTTP/1.1\r\ncontent-length: 100\r\n\r\n" + b"x" * 100,
            b"POST / HTTP/1.1\r\ncontent-length: 101\r\n\r\n" + b"x" * 101,
            HTTP,
        ),
        ("/b/orders", b'{"body":"x"}' + b" " * 988, b'{"body":"x"}' + b" " * 989, NDJSON),
    ],
)
def test_a_limit_holds_at_its_value_and_one_past_it_is_too_large(
    small: Served, path: str, largest: bytes, beyond: bytes, headers: dict[str, str]
) -> None:
    assert small("POST", path, largest, headers).status == 201
    before = len(stored(small))
    answer = small("POST", path, beyond, headers)
    assert (answer.status, answer.json()["code"]) == (413, "too-large")
    assert len(stored(small)) == before


def test_the_limit_holds_for_a_body_whose_length_is_not_said(small: Served) -> None:
    for size, status in ((100, 201), (101, 413)):
        connection = small.connection()
        connection.request(
            "POST",
            "/b/orders",
            body=iter([b"x" * 50, b"x" * (size - 50)]),
            headers={"authorization": f"Bearer {small.tokens['admin']}"},
            encode_chunked=True,
        )
        assert connection.getresponse().status == status
        connection.close()


def test_the_limit_of_the_buffer_holds_too(orders: Served) -> None:
    orders.buffer("tiny", max_message_bytes=10)
    assert orders("POST", "/b/tiny", b"x" * 10).status == 201
    assert orders("POST", "/b/tiny", b"x" * 11).json()["code"] == "too-large"


def test_there_is_no_buffer_until_somebody_makes_it(orders: Served) -> None:
    assert orders("POST", "/b/missing", b"x").json()["code"] == "not-found"
    assert orders("POST", "/b/_audit", b"x").status == 403
