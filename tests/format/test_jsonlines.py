"""A message is one line of JSON, and the line makes the same message again."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbuf.errors import BadInput, TooLarge
from hbuf.format.fields import encode_fields
from hbuf.format.jsonlines import encode_json, parse_json
from hbuf.format.message import Draft, Message

TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20).map(lambda text: text.strip(" "))
HEADERS = st.lists(st.tuples(st.sampled_from(["x-a", "content-type", "ce-id"]), TEXT), max_size=3)


def message(body: bytes = b"", *, erased: bool = False, encrypted: bool = False) -> Message:
    return Message("t", "orders", 1, 0, "0" * 64, None, (), (), body, erased, encrypted)


@settings(max_examples=60, deadline=None)
@given(
    st.none() | TEXT.filter(bool),
    st.lists(TEXT, max_size=3),
    HEADERS,
    st.binary(max_size=99) | st.text().map(str.encode),
)
def test_message_comes_back_from_its_line(
    key: str | None, tags: list[str], headers: list[tuple[str, str]], body: bytes
) -> None:
    line = encode_json(Message("t", "orders", 5, 1, "0" * 64, key, tuple(tags), tuple(headers), body))
    assert b"\n" not in line
    assert b"\r" not in line
    assert parse_json(line) == Draft(body, encode_fields(key, tags, headers))


def test_line_has_every_value_by_its_name() -> None:
    values = json.loads(encode_json(Message("t", "b", 5, 1, "f", "k", ("a",), (("x-a", "1"), ("x-a", "2")), b"hi")))
    assert values == {
        "tenant": "t", "buffer": "b", "seq": 5, "time": "1970-01-01T00:00:00.000001Z", "id": "f", "key": "k",
        "tags": ["a"], "headers": [{"name": "x-a", "value": "1"}, {"name": "x-a", "value": "2"}], "body": "hi",
        "erased": False, "encrypted": False,
    }  # fmt: skip


def test_body_that_is_not_utf8_is_base64() -> None:
    values = json.loads(encode_json(message(b"\xff\0")))
    assert values["body_base64"] == "/wA="
    assert "body" not in values


def test_erased_message_is_passed_over_and_encrypted_one_is_refused() -> None:
    assert parse_json(encode_json(message(erased=True))) is None
    with pytest.raises(BadInput, match="encrypted"):
        parse_json(encode_json(message(encrypted=True)))


def test_body_alone_is_enough() -> None:
    assert parse_json(b'{"body": "\\u0000\\r\\n"}') == Draft(b"\0\r\n")


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"[]", b"1", b"null", b"{}", b"\xff", b'{"body": null}', b'{"body": 1}', b'{"body": "\\ud800"}',
        b'{"body": "a", "body_base64": "YQ=="}', b'{"body_base64": "YQ"}', b'{"body_base64": "Y Q=="}',
        b'{"body_base64": 1}', b'{"body": "", "key": 1}', b'{"body": "", "key": ""}', b'{"body": "", "key": "\\n"}',
        b'{"body": "", "tags": "a"}', b'{"body": "", "tags": [1]}', b'{"body": "", "tags": [" a"]}',
        b'{"body": "", "headers": 1}', b'{"body": "", "headers": {"name": "x-a", "value": "b"}}',
        b'{"body": "", "headers": ["x-a"]}', b'{"body": "", "headers": [{"name": "x-a"}]}',
        b'{"body": "", "headers": [{"name": "x-a", "value": 1}]}',
        b'{"body": "", "headers": [{"name": "cookie", "value": "a"}]}',
        b'{"body": "", "headers": [{"name": "x-hbuf-seq", "value": "1"}]}', b'{"body": "a"} {"body": "b"}',
    ],
)  # fmt: skip
def test_line_that_is_no_message_is_bad_input(line: bytes) -> None:
    with pytest.raises(BadInput):
        parse_json(line)


def test_json_nested_too_deep_is_bad_input() -> None:
    with pytest.raises(BadInput):
        parse_json(b'{"body": ' + b"[" * 200_000)


def test_base64_that_is_not_canonical_is_bad_input() -> None:
    with pytest.raises(BadInput):
        parse_json(b'{"body_base64": "YR=="}')  # YQ== with bits that say nothing


def test_fields_beyond_their_limit_are_too_large() -> None:
    with pytest.raises(TooLarge):
        parse_json(json.dumps({"body": "", "key": "k" * 65_000}).encode())
