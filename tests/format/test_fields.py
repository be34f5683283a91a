"""Key, tags and headers: what is kept is kept byte for byte, and what cannot be kept is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbuf.errors import TooLarge, UsageError
from hbuf.format.fields import MAX_PRODUCER_BYTES, NO_FIELDS, encode_fields, encode_producer, parse_fields, parse_tags
from hbuf.format.grammar import MAX_FIELDS_BYTES

TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20).map(lambda text: text.strip(" "))
NAMES = st.from_regex(r"(x-[a-z0-9]{1,5}|ce-[a-z0-9]{1,5}|content-type|traceparent)", fullmatch=True)


@settings(max_examples=60, deadline=None)
@given(st.none() | TEXT.filter(bool), st.lists(TEXT, max_size=4), st.lists(st.tuples(NAMES, TEXT), max_size=4))
def test_fields_come_back_as_they_were_given(key: str | None, tags: list[str], headers: list[tuple[str, str]]) -> None:
    fields = encode_fields(key, tags, headers)
    assert parse_fields(fields.encoded) == (key, tuple(tags), tuple(headers))
    key_bytes = (key or "").encode()
    assert fields.encoded[fields.key_offset : fields.key_offset + fields.key_length] == key_bytes
    tags_at = len(b"x-hbuf-key: \r\n" + key_bytes) if key else 0
    assert parse_tags(fields.encoded[tags_at : tags_at + fields.tags_length]) == [tag.encode() for tag in tags]


def test_nothing_given_is_nothing_stored() -> None:
    assert encode_fields(None, [], []) == NO_FIELDS
    assert parse_fields(b"") == (None, (), ())


def test_names_become_lower_case() -> None:
    assert encode_fields(None, [], [("Content-Type", "A")]).encoded == b"content-type: A\r\n"


@pytest.mark.parametrize(
    "name",
    ["x-hbuf-seq", "X-Hbuf-Key", "cookie", "authorization", "host", "content-length", "transfer-encoding", "connection",
     "x", "x-", "", "x-a b", "x-a:", "x-a\r\nx-b", "x-é", "x-\udcff"],
)  # fmt: skip
def test_name_that_cannot_be_kept_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        encode_fields(None, [], [(name, "v")])


def test_name_with_a_letter_that_only_folds_to_ascii_is_refused() -> None:
    with pytest.raises(UsageError):
        encode_fields(None, [], [("x-\u212a", "v")])  # the Kelvin sign, whose lower case is k


@pytest.mark.parametrize("value", [" a", "a ", "a\r\nx-b: c", "a\nb", "a\tb", "\0", "\x7f", "\x85", "\udcff"])
def test_value_that_cannot_be_kept_is_refused_wherever_it_stands(value: str) -> None:
    with pytest.raises(UsageError):
        encode_fields(value, [], [])
    with pytest.raises(UsageError):
        encode_fields(None, ["a", value], [])
    with pytest.raises(UsageError):
        encode_fields(None, [], [("x-a", value)])
    with pytest.raises(UsageError):
        encode_producer(value)


def test_empty_key_and_empty_producer_are_refused_and_empty_tag_is_not() -> None:
    with pytest.raises(UsageError, match="empty"):
        encode_fields("", [], [])
    with pytest.raises(UsageError, match="empty"):
        encode_producer("")
    assert encode_fields(None, [""], []).encoded == b"x-hbuf-tag: \r\n"


def test_producer_at_its_limit_is_taken_and_one_past_is_not() -> None:
    assert encode_producer("p" * MAX_PRODUCER_BYTES) == b"p" * MAX_PRODUCER_BYTES
    with pytest.raises(UsageError, match="limit"):
        encode_producer("p" * (MAX_PRODUCER_BYTES + 1))


def test_fields_at_their_limit_are_taken_and_one_past_is_not() -> None:
    room = MAX_FIELDS_BYTES - len(b"x-hbuf-key: \r\n")
    assert len(encode_fields("k" * room, [], []).encoded) == MAX_FIELDS_BYTES
    with pytest.raises(TooLarge):
        encode_fields("k" * (room + 1), [], [])
