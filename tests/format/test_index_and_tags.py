"""Index and tags file: what was written is read back; what is not whole is refused; what does not join is seen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbuf.errors import Damaged
from hbuf.format.index import (
    DURABLE_LENGTH_AT,
    ENTRY,
    ENTRY_BYTES,
    ERASE_COUNTER_AT,
    FLAG_GAP,
    HEADER_BYTES,
    LENGTH,
    Entry,
    Header,
    encode_header,
    iterate_entries,
    joins,
    parse_entries,
    parse_header,
)
from hbuf.format.tags import encode_tags, key_term, parse_tags_file, tag_term

HEADER = Header(65537, 123456, 7, bytes(range(32)))


def test_sizes_are_the_format_s() -> None:
    assert (HEADER_BYTES, ENTRY_BYTES) == (64, 32)


def test_header_comes_back_and_its_places_are_where_they_are_said_to_be() -> None:
    data = encode_header(HEADER)
    assert parse_header(data + b"entries") == HEADER
    assert LENGTH.unpack_from(data, DURABLE_LENGTH_AT) == (123456,)
    assert LENGTH.unpack_from(data, ERASE_COUNTER_AT) == (7,)


@pytest.mark.parametrize(
    "data", [b"", encode_header(HEADER)[:-1], b"?" + encode_header(HEADER)[1:], b"hbix\2" + encode_header(HEADER)[5:]]
)
def test_header_of_something_else_is_refused(data: bytes) -> None:
    with pytest.raises(Damaged):
        parse_header(data)


ENTRIES = st.builds(
    Entry,
    st.integers(-(2**63), 2**63 - 1),
    *[st.integers(0, 2**32 - 1)] * 2,
    *[st.integers(0, 65535)] * 6,
    st.integers(0, 2**32 - 1),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(ENTRIES, max_size=5))
def test_entries_come_back(entries: list[Entry]) -> None:
    data = b"".join(ENTRY.pack(*entry) for entry in entries)
    assert parse_entries(data) == entries
    assert list(iterate_entries(memoryview(data))) == [tuple(entry) for entry in entries]


def entry(offset: int, flags: int = 0) -> Entry:
    return Entry(0, offset, 10, 200, 100, 0, 0, 0, flags, 0)


def test_entries_join_where_each_begins_behind_the_one_before() -> None:
    assert joins([], 5)
    assert joins([entry(500), entry(712), entry(924)], 500)
    assert joins([entry(500), entry(800, FLAG_GAP)], 500)


@pytest.mark.parametrize("entries", [[entry(501)], [entry(500), entry(713)], [entry(500), entry(711, FLAG_GAP)]])
def test_entries_with_holes_or_overlaps_do_not_join(entries: list[Entry]) -> None:
    assert not joins(entries, 500)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.binary(min_size=1, max_size=4), st.sets(st.integers(100, 140), min_size=1), max_size=8))
def test_tags_file_finds_the_records_of_each_term_and_no_others(terms: dict[bytes, set[int]]) -> None:
    data = encode_tags(100, 41, bytes(32), {tag_term(tag): sorted(numbers) for tag, numbers in terms.items()})
    tags = parse_tags_file(data)
    assert (tags.first, tags.records, tags.put_id) == (100, 41, bytes(32))
    for tag, numbers in terms.items():
        assert tags.find([tag_term(tag)]) == numbers
        assert tags.find([key_term(tag)]) == set()
    assert tags.find(map(tag_term, terms)) == set().union(*terms.values())
    assert tags.find([tag_term(b"no such tag")]) == set()


def test_every_changed_byte_and_every_cut_of_a_tags_file_is_noticed() -> None:
    data = encode_tags(1, 3, bytes(32), {key_term(b"k"): [1, 3], tag_term(b"t"): [2]})
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        for damaged in (changed, data[:at]):
            with pytest.raises(Damaged):
                parse_tags_file(damaged)
    with pytest.raises(Damaged):
        parse_tags_file(data + b"\0")
