"""A stream of HTTP requests becomes messages, however it is cut into pieces; what is not plain is refused."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbuf.errors import BadInput, TooLarge
from hbuf.format.chain import ZERO_ID, hasher_named
from hbuf.format.fields import NO_FIELDS, Fields, encode_fields
from hbuf.format.grammar import MAX_BODY_BYTES, MAX_SECTION_BYTES
from hbuf.format.httpstream import RequestStream
from hbuf.format.message import Draft
from hbuf.format.record import encode_messages, encode_put

SALTS = b"A" * 43 + b" "
POST = b"POST /b/orders HTTP/1.1\r\nhost: x\r\n"
ID = b"x-hbuf-time: 2026-11-18T04:51:00.000000Z\r\nx-hbuf-id: " + b"0" * 64 + b"\r\n"


def read(data: bytes, step: int | None = None) -> list[Draft]:
    stream = RequestStream()
    drafts = []
    for at in range(0, len(data), step or len(data) or 1):
        drafts += stream.feed(data[at : at + step] if step else data)
    stream.close()
    if stream.refused:
        raise stream.refused
    return drafts


def refused(data: bytes) -> BadInput:
    with pytest.raises(BadInput) as caught:
        read(data)
    return caught.value


def until_refused(stream: RequestStream, data: bytes, step: int, drafts: list[Draft]) -> BadInput | None:
    """Feeds all of `data`, gathers what comes of it, and says what it was refused for."""
    for at in range(0, len(data), step):
        drafts += stream.feed(data[at : at + step])
    stream.close()
    return stream.refused


def request(lines: bytes, body: bytes = b"") -> bytes:
    return POST + lines + b"content-length: %d\r\n\r\n" % len(body) + body


def test_request_without_length_has_an_empty_body() -> None:
    assert read(b"POST / HTTP/1.1\r\n\r\n" * 2) == [Draft(b""), Draft(b"")]


def test_http_1_0_is_taken() -> None:
    assert read(b"POST / HTTP/1.0\r\ncontent-length: 2\r\n\r\nhi") == [Draft(b"hi")]


def test_empty_lines_before_a_request_are_ignored() -> None:
    assert read(b"\r\n\r\n" + request(b"", b"a") + b"\r\n\r\n\r\n" + request(b"", b"b") + b"\r\n") == [
        Draft(b"a"),
        Draft(b"b"),
    ]


def test_names_are_case_insensitive_and_blanks_around_values_go() -> None:
    lines = b"X-HBUF-KEY:user-1\r\nx-hbuf-Tag: \t a=b \t\r\nx-hbuf-tag:\r\nContent-Type:  text/plain  \r\nX-Mine:\r\n"
    fields = encode_fields("user-1", ["a=b", ""], [("content-type", "text/plain"), ("x-mine", "")])
    assert read(request(lines, b"body")) == [Draft(b"body", fields)]


def test_producer_and_its_number_are_taken() -> None:
    lines = b"x-hbuf-producer: till 4\r\nx-hbuf-producer-seq: 0\r\n"
    assert read(request(lines)) == [Draft(b"", NO_FIELDS, (b"till 4", 0))]


def test_stored_message_comes_back_without_what_is_given_anew() -> None:
    lines = (
        b"x-hbuf-seq: 7\r\n" + ID + b"x-hbuf-batch: 1/2\r\nx-hbuf-producer: p\r\nx-hbuf-producer-seq: 3\r\n"
        b"x-hbuf-origin: o\r\nx-hbuf-colour: red\r\nx-hbuf-key: k\r\nx-hbuf-tag: t\r\nx-a: b\r\n"
        b"x-hbuf-salt: s\r\nx-hbuf-sig: s\r\n"
    )
    assert read(request(lines, b"body")) == [Draft(b"body", encode_fields("k", ["t"], [("x-a", "b")]))]


def test_stored_records_that_are_no_messages_are_passed_over_and_counted() -> None:
    stream = RequestStream()
    gone = request(ID + b"x-hbuf-gone: c\r\nx: ---\r\n", b"\0\0\0")
    put = request(ID + b"x-hbuf-format: 1\r\n", b"{}").replace(b"POST", b"PUT", 1)
    delete = request(ID + b"x-hbuf-erases: 1\r\n").replace(b"POST", b"DELETE", 1)
    assert stream.feed(gone + b"\r\n" + put + b"\r\n" + delete + b"\r\n" + request(b"", b"new")) == [Draft(b"new")]
    stream.close()
    assert stream.passed_over == 3


def test_stored_message_that_is_encrypted_is_refused() -> None:
    error = refused(request(b"", b"a") + request(ID + b"x-hbuf-data-key: k 0\r\n"))
    assert error.message == "request 2: the message is encrypted; decrypt it before it is copied"


@pytest.mark.parametrize(
    "data",
    [
        POST + b"x-a: b\r\n c\r\n\r\n",
        POST + b"x-a: b\nx-c: d\r\n\r\n",
        POST + b"x-a: b\rc\r\n\r\n",
        POST + b"x-a: b\0c\r\n\r\n",
        POST + b"x-a: b\tc\r\n\r\n",
        POST + b"x-a b\r\n\r\n",
        POST + b"x-a : b\r\n\r\n",
        POST + b": b\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n",
        POST + b"transfer-encoding: identity\r\ncontent-length: 0\r\n\r\n",
        POST + b"content-length: 1\r\ncontent-length: 1\r\n\r\na",
        POST + b"content-length: 1, 1\r\n\r\na",
        POST + b"content-length: +1\r\n\r\na",
        POST + b"content-length: 0x1\r\n\r\na",
        POST + b"content-length: \xb2\r\n\r\na",
        POST + b"content-length:\r\n\r\n",
        POST + b"content-length: " + b"9" * 5000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"post / HTTP/1.1\r\n\r\n",
        b"PUT / HTTP/1.1\r\n\r\n",
        b"DELETE / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/2.0\r\n\r\n",
        b"POST / HTTP/1.2\r\n\r\n",
        b"POST / http/1.1\r\n\r\n",
        b"POST  / HTTP/1.1\r\n\r\n",
        b"POST /a b HTTP/1.1\r\n\r\n",
        b"POST /\r\n\r\n",
        b"POST / HTTP/1.1\n\n",
        b"\n" + POST + b"\r\n",
        b"hello\r\n\r\n",
        request(b"x-hbuf-key: a\r\nx-hbuf-key: b\r\n"),
        request(b"x-hbuf-key: a\r\nx-hbuf-key: b\r\n" + ID),
        request(b"x-hbuf-key:\r\n"),
        request(b"x-hbuf-producer: p\r\n"),
        request(b"x-hbuf-producer-seq: 1\r\n"),
        request(b"x-hbuf-producer: p\r\nx-hbuf-producer: q\r\nx-hbuf-producer-seq: 1\r\n"),
        request(b"x-hbuf-producer: p\r\nx-hbuf-producer-seq: 01\r\n"),
        request(b"x-hbuf-producer:\r\nx-hbuf-producer-seq: 1\r\n"),
        request(b"x-hbuf-producer: " + b"p" * 129 + b"\r\nx-hbuf-producer-seq: 1\r\n"),
        request(b"x-hbuf-seq: 1\r\n"),
        request(b"x-hbuf-time: 2026-11-18T04:51:00.000000Z\r\n"),
        request(b"x-hbuf-id: " + b"0" * 64 + b"\r\n"),
        request(b"x-hbuf-origin: o\r\n"),
        request(b"X-Hbuf-Gone: c\r\n"),
        request(b"x-hbuf-data-key: k\r\n"),
        request(b"cookie: a\r\n"),
        request(b"connection: close\r\n"),
        request(b"x-a: \xff\r\n"),
        request(b"x-a: \xc2\x85\r\n"),
    ],
)
def test_what_is_not_plain_is_refused_by_its_ordinal_however_it_is_cut(data: bytes) -> None:
    good = request(b"", b"a") + request(ID + b"x-hbuf-gone: c\r\n")
    for step in (1, 7, 100_000):
        stream = RequestStream()
        drafts: list[Draft] = []
        error = until_refused(stream, good + data, step, drafts)
        assert error is not None
        assert error.message.startswith("request 3: ")
        assert "ends in the middle" not in error.message
        assert drafts == [Draft(b"a")]
        assert stream.feed(request(b"", b"later")) == []
        assert stream.refused is error


@pytest.mark.parametrize("cut", [1, 10, len(POST), -1, -5, -6])
def test_stream_that_ends_in_the_middle_of_a_request_is_refused(cut: int) -> None:
    stream = RequestStream()
    whole = request(b"", b"12345")
    assert stream.feed(whole + whole[:cut]) == [Draft(b"12345")]
    assert stream.unfinished
    stream.close()
    assert stream.refused is not None
    assert stream.refused.message.startswith("request 2: the stream ends")


def padded(section_bytes: int) -> bytes:
    """A stored record with a header section of that many bytes: only those may be longer than fields can be."""
    section = b"POST / HTTP/1.1\r\n" + ID + b"x-hbuf-colour: \r\n\r\n"
    return section.replace(b"colour: ", b"colour: " + b"r" * (section_bytes - len(section)))


@pytest.mark.parametrize("step", [None, 1000])
def test_header_section_at_its_limit_is_taken_and_one_past_is_not(step: int | None) -> None:
    assert len(padded(MAX_SECTION_BYTES)) == MAX_SECTION_BYTES
    assert read(padded(MAX_SECTION_BYTES) * 2, step) == [Draft(b""), Draft(b"")]
    with pytest.raises(TooLarge, match="request 1: its header section"):
        read(padded(MAX_SECTION_BYTES + 1), step)


def test_header_section_without_an_end_is_refused_before_more_of_it_comes() -> None:
    stream = RequestStream()
    stream.feed(padded(MAX_SECTION_BYTES + 1000)[:MAX_SECTION_BYTES])
    assert isinstance(stream.refused, TooLarge)


def test_fields_beyond_their_limit_are_too_large() -> None:
    with pytest.raises(TooLarge, match="request 1: key, tags and fields have"):
        read(request(b"x-a: " + b"a" * 64_600 + b"\r\n"))


def test_body_at_its_limit_is_awaited_and_one_past_is_refused() -> None:
    for limit in (MAX_BODY_BYTES, 10):
        stream = RequestStream(limit)
        stream.feed(POST + b"content-length: %d\r\n\r\n" % limit)
        assert stream.refused is None
        stream = RequestStream(limit)
        stream.feed(POST + b"content-length: %d\r\n\r\n" % (limit + 1))
        assert isinstance(stream.refused, TooLarge)
        assert stream.refused.message.startswith("request 1: its body")


def test_body_may_hold_whole_requests_and_bare_line_ends() -> None:
    body = request(b"x-hbuf-key: k\r\n", b"\0\n\r\r\n") + b"\n\n"
    assert read(request(b"", body) + request(b"", b"next"), 3) == [Draft(body), Draft(b"next")]


def test_large_body_in_small_pieces_takes_linear_time() -> None:
    body = bytes(8_000_000)
    started = time.process_time()
    assert read(request(b"", body), 500) == [Draft(body)]
    # 16,000 pieces; copying what came before with each of them would be 64 GB.
    assert time.process_time() - started < 3


def test_many_small_requests_in_one_piece_take_linear_time() -> None:
    started = time.process_time()
    assert len(read(request(b"", b"x" * 100) * 30_000)) == 30_000
    # Copying what follows with each of them would be 70 GB.
    assert time.process_time() - started < 4


TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20).map(lambda text: text.strip(" "))
FIELDS = st.builds(
    encode_fields,
    st.none() | TEXT.filter(bool),
    st.lists(TEXT, max_size=3),
    st.lists(st.tuples(st.sampled_from(["x-a", "content-type", "ce-id", "traceparent"]), TEXT), max_size=3),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=200), FIELDS), max_size=5), st.integers(1, 400))
def test_stored_segment_comes_back_as_the_drafts_it_was_made_of(drafts: list[tuple[bytes, Fields]], step: int) -> None:
    hasher = hasher_named("blake3")
    put, put_id = encode_put(
        hasher, "orders", ZERO_ID, 1, 0, SALTS[:43], b"{}", hash_name="blake3", uuid="u", epoch=1
    )  # fmt: skip
    bodies = [body for body, _ in drafts]
    fields = [encoded for _, encoded in drafts]
    batch = encode_messages(
        hasher, "orders", put_id, 1, 0, SALTS * len(drafts), bodies, fields, [b""] * len(drafts), offset=len(put)
    )
    assert read(put + batch.data, step) == [Draft(*draft) for draft in drafts]


@pytest.mark.parametrize("line", [b"x-a: 1\r", b"host: a\r", b"x-\ra: 1", b"\rx-a: 1", b"connection: \r"])
def test_a_bare_cr_is_refused_wherever_it_stands_in_the_section(line: bytes) -> None:
    stream = RequestStream()
    assert stream.feed(b"POST / HTTP/1.1\r\n" + line + b"\r\ncontent-length: 0\r\n\r\n") == []
    assert stream.refused is not None
    last = RequestStream()
    assert last.feed(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n" + line + b"\r\n\r\n") == []
    last.close()
    assert last.refused is not None
