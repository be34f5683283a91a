"""hbuf-append --http and --json: what hbuf-tail writes goes in again without loss, and what is malformed is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hbuf

if TYPE_CHECKING:
    from cli.conftest import Bodies, MakeBuffer, Run

Content = tuple[bytes, str | None, tuple[str, ...], tuple[tuple[str, str], ...]]

MESSAGES = [
    hbuf.draft(b"plain text"),
    hbuf.draft('Łódź\r\n\tquote " and \\ \u2028'.encode(), key="user-17", tags=["host=web1", "", "host=web1"]),
    hbuf.draft(b"", headers=[("content-type", "application/json"), ("x-twice", "1"), ("x-twice", "2"), ("x-none", "")]),
    hbuf.draft(bytes(range(256)), key="Ключ", tags=["a: b"], headers=[("ce-type", "ünï"), ("content-encoding", "br")]),
    hbuf.draft(b"\xed\xa0\x80", key="not UTF-8"),
    hbuf.draft(b"\nPOST /b/orders HTTP/1.1\r\nhost: hbuf\r\ncontent-length: 0\r\n\r\n\r\n", tags=["fake"]),
    hbuf.draft(b"from a producer", producer="p1", producer_seq=7),
]


def contents(path: str) -> list[Content]:
    with hbuf.open(path) as buffer:
        return [(m.body, m.key, tuple(m.tags), tuple(m.headers)) for m in buffer.read()]


def request(body: bytes, *lines: str, method: str = "POST") -> bytes:
    """As a person would write it, with another host and names in any case."""
    head = [f"{method} /anything HTTP/1.1", "Host: example.org", f"Content-Length: {len(body)}", *lines, "", ""]
    return "\r\n".join(head).encode() + body


@pytest.mark.over_https
@pytest.mark.parametrize("form", ["--http", "--json"])
def test_what_tail_writes_is_stored_again_without_loss(run: Run, make_buffer: MakeBuffer, form: str) -> None:
    make_buffer("orders", MESSAGES, segment_messages="3")
    shown = run("hbuf-tail", "-o", "first", form, "orders")
    assert run("hbuf-append", form, "copy", stdin=shown.out) == (0, b"", "")
    assert contents("copy") == contents("orders")
    assert run("hbuf-verify", "--quiet", "copy").code == 0


@pytest.mark.over_https
def test_http_and_json_one_after_the_other_lose_nothing(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", MESSAGES)
    done = run.shell(
        "hbuf-tail -o first --http orders | hbuf-append --http second &&"
        "hbuf-tail -o first --json second | hbuf-append --json third"
    )
    assert done == (0, b"", "")
    assert contents("third") == contents("orders")


@pytest.mark.over_https
def test_json_of_the_copy_differs_only_in_buffer_time_and_id(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", MESSAGES)
    before = run("hbuf-tail", "-o", "first", "--json", "orders")
    run("hbuf-append", "--json", "copy", stdin=before.out)
    after = run("hbuf-tail", "-o", "first", "--json", "copy")

    def kept(line: str) -> dict[str, Any]:
        return {name: value for name, value in json.loads(line).items() if name not in ("buffer", "time", "id")}

    assert [kept(line) for line in after.lines] == [kept(line) for line in before.lines]


@pytest.mark.over_https
def test_whole_segments_can_be_given_and_their_own_records_are_passed_over(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", MESSAGES, segment_messages="3")
    segments = b"".join(path.read_bytes() for path in sorted(Path("orders/segments").glob("*.http")))
    assert segments.count(b"PUT /b/orders HTTP/1.1\r\n") == 3
    assert run("hbuf-append", "--http", "copy", stdin=segments) == (0, b"", "")
    assert contents("copy") == contents("orders")


@pytest.mark.over_https
def test_requests_made_by_hand_become_messages(run: Run) -> None:
    stream = request(b"one", "X-Hbuf-Key: k", "x-hbuf-tag: a", "Content-Type: text/plain") + request(b"") + b"\r\n"
    assert run("hbuf-append", "--http", "orders", stdin=stream) == (0, b"", "")
    assert contents("orders") == [(b"one", "k", ("a",), (("content-type", "text/plain"),)), (b"", None, (), ())]


@pytest.mark.over_https
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n", "transfer-encoding"),
        (request(b"x", "Content-Length: 1"), "content-length is there more than once"),
        (request(b"x", "Cookie: a=b"), "field 'cookie' cannot be kept"),
        (request(b"x", "x-hbuf-seq: 5"), "field 'x-hbuf-seq' is reserved"),
        (request(b"", method="GET"), "GET is not a method that stores a message"),
        (b"not HTTP at all\r\n\r\n", "does not begin with a request line"),
        (request(b"cut short")[:-1], "ends in the middle of its body"),
        (request(b"cut short")[:30], "ends in the middle of its header section"),
    ],
    ids=repr,
)
def test_request_that_cannot_be_taken_is_named_and_those_before_it_are_stored(
    run: Run, bodies: Bodies, bad: bytes, said: str
) -> None:
    done = run("hbuf-append", "--http", "orders", stdin=request(b"one") + request(b"two") + bad)
    assert (done.code, done.out) == (65, b"")
    assert done.err.startswith("hbuf-append: orders: request 3: ")
    assert said in done.err
    assert done.err.splitlines()[0].endswith("; 2 messages were stored")
    assert bodies("orders") == [b"one", b"two"]


@pytest.mark.over_https
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (b"nonsense", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"key": "a"}', "neither a 'body' nor a 'body_base64'"),
        (b'{"body": 7}', "neither a 'body' nor a 'body_base64'"),
        (b'{"body_base64": "QQ"}', "'body_base64' is not base64"),
        (b'{"body": "a", "key": 7}', "'key' is not text"),
        (b'{"body": "a", "tags": "b"}', "'tags' is not a list of texts"),
        (b'{"body": "a", "headers": [{"name": "x-a"}]}', "'headers' is not a list of names and values"),
        (b'{"body": "a", "headers": [{"name": "cookie", "value": ""}]}', "'cookie' cannot be kept"),
        (b'{"body": "\\ud800"}', "'body' is not text that UTF-8 can hold"),
    ],
    ids=repr,
)
def test_json_line_that_cannot_be_taken_is_named_and_those_before_it_are_stored(
    run: Run, bodies: Bodies, bad: bytes, said: str
) -> None:
    done = run("hbuf-append", "--json", "orders", stdin=b'{"body": "one"}\n\n' + bad + b'\n{"body": "three"}\n')
    assert (done.code, done.out) == (65, b"")
    assert done.err.startswith("hbuf-append: orders: line 3: ")
    assert said in done.err
    assert done.err.splitlines()[0].endswith("; 1 message was stored")
    assert bodies("orders") == [b"one"]


@pytest.mark.over_https
def test_bad_line_in_the_middle_of_a_big_stream_is_named_and_all_before_it_are_stored(run: Run, bodies: Bodies) -> None:
    lines = [json.dumps({"body": f"message {i} " + "x" * 100}).encode() for i in range(1, 30_001)]
    lines[22_221] = b"{broken"
    done = run("hbuf-append", "--json", "orders", stdin=b"\n".join(lines) + b"\n")
    assert done.code == 65
    assert done.err.startswith("hbuf-append: orders: line 22222: not JSON")
    assert done.err.endswith("; 22221 messages were stored\n")
    assert len(bodies("orders")) == 22_221


@pytest.mark.over_https
def test_bad_request_behind_many_good_ones_leaves_all_of_them_stored(run: Run, bodies: Bodies) -> None:
    good = b"".join(request(b"x" * 200) for _ in range(12_345))
    done = run("hbuf-append", "--http", "orders", stdin=good + b"nonsense\r\n\r\n" + request(b"never"))
    assert done.code == 65
    assert done.err.startswith("hbuf-append: orders: request 12346: ")
    assert done.err.endswith("; 12345 messages were stored\n")
    assert len(bodies("orders")) == 12_345


@pytest.mark.over_https
def test_empty_lines_of_json_are_passed_over_and_a_last_line_needs_no_newline(run: Run, bodies: Bodies) -> None:
    assert run("hbuf-append", "--json", "orders", stdin=b'\n{"body": "one"}\n\n{"body": ""}') == (0, b"", "")
    assert bodies("orders") == [b"one", b""]


@pytest.mark.over_https
def test_records_found_by_grep_can_be_appended_too(run: Run, make_buffer: MakeBuffer, bodies: Bodies) -> None:
    make_buffer("orders", [b"tea", b"milk", b"team"])
    assert run.shell("hbuf-grep --http tea orders | hbuf-append --http found") == (0, b"", "")
    assert bodies("found") == [b"tea", b"team"]
