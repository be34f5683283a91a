"""Settings come back as they were written, unknown ones included; what may not be is refused."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbuf.errors import Damaged, NewerFormat, UsageError
from hbuf.format.settings import (
    LARGEST_SEGMENT_BYTES,
    MIN_SEGMENT_BYTES,
    Settings,
    change_settings,
    encode_settings,
    parse_settings,
    parse_size_bytes,
    set_values,
)

GIVEN = Settings("6f1c2a52-94a5-4c1f-9d0b-0f6f1d7c8e11", "orders", "2026-11-18T04:51:00.000000Z")


@settings(max_examples=40, deadline=None)
@given(
    st.integers(MIN_SEGMENT_BYTES, LARGEST_SEGMENT_BYTES),
    st.none() | st.integers(1, 2**32),
    st.none() | st.floats(0.001, 1e6),
    st.booleans(),
    st.sampled_from(["blake3", "sha256"]),
)
def test_settings_come_back(size: int, messages: int | None, age: float | None, erasable: bool, name: str) -> None:
    given = Settings(
        "u", "é", "c", hash=name, erasable=erasable, segment_bytes=size, segment_messages=messages, segment_age=age
    )
    assert parse_settings(encode_settings(given)) == given


def test_settings_of_later_versions_are_kept_in_their_order() -> None:
    given = Settings("u", "n", "c", others=(("zeal", {"a": [1]}), ("ardour", None)))
    assert parse_settings(encode_settings(given)) == given
    assert change_settings(given, {"segment_bytes": "1MiB"}).others == given.others


def test_setting_that_came_later_is_written_only_where_it_is_not_the_default() -> None:
    assert b"compress" not in encode_settings(GIVEN)
    assert parse_settings(encode_settings(GIVEN)) == GIVEN
    compressing = set_values(GIVEN, {"compress": "true"})
    assert b'"compress": true' in encode_settings(compressing)
    assert parse_settings(encode_settings(compressing)) == compressing
    with pytest.raises(Damaged):
        parse_settings(encode_settings(compressing).replace(b'"compress": true', b'"compress": 1'))


def changed(**values: Any) -> bytes:
    return json.dumps(json.loads(encode_settings(GIVEN)) | values).encode()


def test_newer_format_is_named_even_where_nothing_else_is_known() -> None:
    with pytest.raises(NewerFormat, match="format 2"):
        parse_settings(b'{"format": 2}')


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"{}", b"null", b"\xff", changed(format=0), changed(format=True), changed(hash="md5"),
        changed(hash=[]), changed(erasable=1), changed(erasable="true"), changed(segment_bytes=4095),
        changed(segment_bytes="65536"), changed(segment_bytes=None), changed(segment_bytes=True), changed(name=1),
        changed(segment_messages=0), changed(segment_age=0), changed(segment_age=float("nan")),
        changed(max_message_bytes=0), changed(max_message_bytes=512 * 1024**2 + 1),
        changed(segment_bytes=LARGEST_SEGMENT_BYTES + 1),
    ],
)  # fmt: skip
def test_settings_that_may_not_be_are_damage(data: bytes) -> None:
    with pytest.raises(Damaged):
        parse_settings(data)


def test_size_that_is_not_whole_is_damage() -> None:
    with pytest.raises(Damaged):
        parse_settings(changed(segment_bytes=5000.5))


def test_json_nested_too_deep_is_damage() -> None:
    with pytest.raises(Damaged):
        parse_settings(b"[" * 200_000)


def test_text_that_utf8_cannot_hold_is_damage() -> None:
    with pytest.raises(Damaged):
        parse_settings(changed(name="\ud800"))


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("1B", 1), ("64KiB", 65536), ("64k", 65536), ("2MB", 2 << 20), ("1gib", 1 << 30), ("0", 0)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size_bytes("x", text) == size


@pytest.mark.parametrize("text", ["", "-1", "1.5K", "K", "1T", "1 K", "\u0661", "1KiBB", "1iB"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size_bytes("x", text)


@pytest.mark.parametrize("text", ["4\u212a", "9" * 5000])
def test_size_with_a_kelvin_sign_or_thousands_of_digits_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size_bytes("x", text)


def test_changes_are_parsed_by_their_kind() -> None:
    new = change_settings(
        GIVEN, {"segment_bytes": "1MiB", "segment_messages": "10", "segment_age": "2h", "max_message_bytes": "1K"}
    )
    assert (new.segment_bytes, new.segment_messages, new.segment_age, new.max_message_bytes) == (
        1 << 20,
        10,
        7200,
        1024,
    )
    none = change_settings(new, {"segment_messages": "none", "segment_age": "none"})
    assert (none.segment_messages, none.segment_age) == (None, None)


@pytest.mark.parametrize("name", ["uuid", "name", "created", "format", "hash", "erasable"])
def test_what_is_fixed_cannot_be_changed(name: str) -> None:
    with pytest.raises(UsageError, match="fixed"):
        change_settings(GIVEN, {name: "sha256"})


def test_hash_and_erasable_can_be_chosen_at_first() -> None:
    chosen = set_values(GIVEN, {"hash": "sha256", "erasable": "false"})
    assert (chosen.hash, chosen.erasable) == ("sha256", False)


@pytest.mark.parametrize(
    ("name", "text"),
    [("colour", "red"), ("uuid", "u"), ("hash", "md5"), ("erasable", "yes"), ("segment_bytes", "1"),
     ("segment_messages", "-1"), ("segment_messages", "²"), ("segment_messages", "0"), ("segment_age", "soon")],
)  # fmt: skip
def test_value_that_may_not_be_is_refused(name: str, text: str) -> None:
    with pytest.raises(UsageError):
        set_values(GIVEN, {name: text})
