"""The grammar's pieces: what a value, a name and a section may be."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbuf.format.grammar import CLIENT_NAME, RECORD_SECTION, RECORD_START, VALUE, is_text

SECTION = (
    b"POST /b/orders HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: 42\r\nx-hbuf-time: 2026-11-18T04:51:00.123456Z\r\n"
    b"content-length: 13\r\nx-hbuf-key: user-17\r\nx-hbuf-tag: host=web1\r\ncontent-type: application/json\r\n"
    b"x-hbuf-salt: " + b"A" * 43 + b"\r\nx-hbuf-id: " + b"0" * 64 + b"\r\n\r\n"
)


def test_section_of_the_design_matches_with_its_parts() -> None:
    found = RECORD_SECTION.fullmatch(SECTION)
    assert found is not None
    assert found["key"] == b"user-17"
    assert found["tags"] == b"x-hbuf-tag: host=web1\r\n"
    assert found["head"].endswith(b"content-length: 13\r\n")
    assert RECORD_START.match(SECTION)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"POST", b"GET"),
        (b"POST", b"post"),
        (b"/b/orders", b"/b/Orders"),
        (b"/b/orders", b"/b/" + b"a" * 130),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"host: hbuf", b"host: HBUF"),
        (b"x-hbuf-seq: 42", b"x-hbuf-seq: 042"),
        (b"x-hbuf-seq: 42", b"x-hbuf-seq: -1"),
        (b"x-hbuf-seq: 42", b"x-hbuf-seq: " + b"9" * 20),
        (b"x-hbuf-seq: 42\r\n", b"x-hbuf-seq: 42\r\nx-hbuf-seq: 42\r\n"),
        (b"123456Z", b"123Z"),
        (b"123456Z", b"123456+00:00"),
        (b"2026-11-18", b"2026-13-18"),
        (b"T04", b"T24"),
        (b"content-length: 13", b"content-length: +13"),
        (b"content-length: 13\r\n", b""),
        (b"x-hbuf-salt", b"x-hbuf-pepper"),
        (b"A" * 43, b"A" * 42),
        (b"A" * 43, b"A" * 44),
        (b"A" * 43, b"A" * 42 + b"B"),
        (b"0" * 64, b"0" * 63),
        (b"0" * 64, b"0" * 63 + b"A"),
        (b"\r\n\r\n", b"\r\n x\r\n\r\n"),
    ],
)
def test_section_with_a_part_out_of_order_does_not_match(old: bytes, new: bytes) -> None:
    assert old in SECTION
    assert RECORD_SECTION.match(SECTION.replace(old, new, 1)) is None


@pytest.mark.parametrize(
    "name", [b"content-type", b"content-language", b"x-a", b"x-hbuf", b"x-hbufs", b"ce-x", b"x-!#"]
)
def test_names_that_are_kept(name: bytes) -> None:
    assert CLIENT_NAME.fullmatch(name)


@pytest.mark.parametrize(
    "name",
    [
        b"content-length",
        b"content-typed",
        b"x-hbuf-",
        b"x-hbuf-a",
        b"x-",
        b"x",
        b"ce-",
        b"cookie",
        b"X-a",
        b"x-a:",
        b"x- ",
    ],
)
def test_names_that_are_not_kept(name: bytes) -> None:
    assert CLIENT_NAME.fullmatch(name) is None


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=8))
def test_value_is_text_without_control_characters_and_without_blanks_at_its_ends(text: str) -> None:
    try:
        value = text.encode()
    except UnicodeEncodeError:
        return
    control = any(ord(char) < 32 or 127 <= ord(char) < 160 for char in text)
    assert bool(VALUE.fullmatch(value) and is_text(value)) == (not control and text == text.strip(" "))


@pytest.mark.parametrize("value", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"a\xc2\x80", b"\xc2\x9f", b"\xe2\x82"])
def test_bytes_that_are_not_text(value: bytes) -> None:
    assert not is_text(value)


def test_text_beyond_ascii_is_text() -> None:
    assert is_text("é\xa0Ā€😀".encode())


def test_section_made_to_be_slow_is_refused_in_linear_time() -> None:
    lines = b"x-a: " + b"a " * 10_000 + b"\r\n" + b"x-b: c\r\n" * 5_000
    started = time.process_time()
    assert RECORD_SECTION.match(SECTION.replace(b"x-hbuf-salt", lines + b"x-hbuf-salt")) is None
    assert time.process_time() - started < 1
