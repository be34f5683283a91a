"""What is encoded is scanned back the same and has no faults; what is changed afterwards is noticed, in its place."""

import base64
import itertools
from itertools import repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbuf.format import scan as scanning
from hbuf.format.chain import ZERO_ID, commitment, hasher_named
from hbuf.format.check import ChainState, Fault, check_records, unfinished_unit
from hbuf.format.entries import EntryBuilder
from hbuf.format.fields import NO_FIELDS, Fields, encode_fields, parse_fields
from hbuf.format.grammar import MAX_FIELDS_BYTES, MAX_SECTION_BYTES
from hbuf.format.index import FLAG_ERASED, FLAG_UNIT, parse_entries
from hbuf.format.message import message_of
from hbuf.format.record import encode_messages, encode_own_lines, encode_put
from hbuf.format.scan import Unreadable, can_follow, key_of, record_starts, scan, tags_of

BLAKE3 = hasher_named("blake3")
TIME_US = 1_795_000_000_000_000
UUID = "6f1c2a52-94a5-4c1f-9d0b-0f6f1d7c8e11"


def salts_of(count: int) -> bytes:
    return b"".join(base64.urlsafe_b64encode(bytes([n % 256]) * 32)[:43] + b"\n" for n in range(count))


def segment(
    bodies: list[bytes], fields: list[Fields] | None = None, own: bytes = b"", *, erasable: bool = True
) -> bytes:
    salt = salts_of(1)[:43] if erasable else None
    put, put_id = encode_put(
        BLAKE3, "orders", ZERO_ID, 1, TIME_US, salt, b"{}\n", hash_name="blake3", uuid=UUID, epoch=1
    )
    salts = salts_of(len(bodies)) if erasable else None
    batch = encode_messages(
        BLAKE3, "orders", put_id, 1, TIME_US, salts, bodies, fields or repeat(NO_FIELDS), repeat(own), offset=len(put)
    )
    return put + batch.data


def faults_of(data: bytes) -> list[Fault]:
    found = scan(data)
    state = ChainState()
    faults = check_records(BLAKE3, data, found.records, state, 0)
    if found.unreadable:
        faults.append(Fault("bytes", found.unreadable.at, None, found.unreadable.reason))
    return faults + unfinished_unit(state, len(data))


TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20).map(lambda text: text.strip(" "))
NAMES = st.sampled_from(
    ["content-type", "content-encoding", "traceparent", "tracestate", "ce-id", "x-y", "x-h", "x-!#"]
)
PARTS = st.tuples(
    st.none() | TEXT.filter(bool), st.lists(TEXT, max_size=3), st.lists(st.tuples(NAMES, TEXT), max_size=3)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=300), PARTS), max_size=6), st.booleans())
def test_any_bodies_and_fields_are_scanned_back_equal(
    drafts: list[tuple[bytes, tuple[str | None, list[str], list[tuple[str, str]]]]], erasable: bool
) -> None:
    bodies = [body for body, _ in drafts]
    data = segment(bodies, [encode_fields(*parts) for _, parts in drafts], erasable=erasable)
    found = scan(data)
    assert found.unreadable is None
    assert found.end == len(data)
    assert faults_of(data) == []
    assert len(found.records) == 1 + len(drafts)
    for seq, (record, (body, (key, tags, headers))) in enumerate(zip(found.records[1:], drafts, strict=True), 1):
        assert (record.method, record.seq) == (b"POST", seq)
        message = message_of(data, record, "t", "orders")
        assert (message.body, message.key, message.tags) == (body, key, tuple(tags))
        assert message.headers == tuple(headers)
        assert message.time_us == TIME_US
        assert key_of(data, record) == (None if key is None else key.encode())
        assert tags_of(data, record) == [tag.encode() for tag in tags]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=50), PARTS), min_size=1, max_size=4), st.booleans())
def test_entries_of_encoding_and_of_scanning_are_the_same(
    drafts: list[tuple[bytes, tuple[str | None, list[str], list[tuple[str, str]]]]], in_unit: bool
) -> None:
    fields = [encode_fields(*parts) for _, parts in drafts]
    own = [
        encode_own_lines(unit=(i, len(drafts)) if in_unit else None, producer=(b"p", i))
        for i in range(1, len(drafts) + 1)
    ]
    batch = encode_messages(
        BLAKE3, "o", ZERO_ID, 9, TIME_US, salts_of(len(drafts)), [body for body, _ in drafts], fields, own,
        offset=1000, flags=itertools.repeat(FLAG_UNIT if in_unit else 0),
    )  # fmt: skip
    encoded = EntryBuilder(1000).encode_entries(scan(batch.data).records, 1000)
    assert encoded == batch.entries
    scanned = parse_entries(encoded)
    assert [record.id for record in scan(batch.data).records] == batch.ids
    assert all(bool(entry.flags & FLAG_UNIT) == in_unit for entry in scanned)


@pytest.mark.parametrize(
    "body",
    [b"", b"\0" * 10, b"\r\n", b"\r\n\r\n", b"\n", b"x" * 70_000, segment([b"fake"]), segment([b"fake"])[:-2]],
    ids=["empty", "nuls", "crlf", "two crlfs", "lf", "longer than is copied", "whole records", "cut record"],
)
def test_body_may_hold_anything(body: bytes) -> None:
    data = segment([body, b"next", body])
    assert faults_of(data) == []
    assert [data[r.body_start : r.body_end] for r in scan(data).records[1:]] == [body, b"next", body]


@pytest.mark.parametrize("replacement", [lambda b: b ^ 1, lambda b: b ^ 0x20, lambda b: 0x0A if b != 0x0A else 0x30])
def test_every_change_of_one_byte_is_noticed_at_its_record(replacement: "object") -> None:
    assert callable(replacement)
    fields = [encode_fields("k1", ["a", "b=c"], [("x-a", "é")]), NO_FIELDS]
    data = segment([b"one", b""], fields)
    starts = [record.start for record in scan(data).records]
    assert len(starts) == 3
    for at in range(len(data)):
        changed = data[:at] + bytes([replacement(data[at])]) + data[at + 1 :]
        faults = faults_of(changed)
        assert faults, f"byte {at} was changed and nobody noticed"
        assert faults[0].at == max(start for start in starts if start <= at), f"byte {at}: {faults}"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_cut_is_noticed_as_a_record_that_may_still_come_whole(data: st.DataObject) -> None:
    whole = segment([b"one", b"two\r\n"])
    starts = [record.start for record in scan(whole).records]
    cut = data.draw(st.integers(0, len(whole) - 1).filter(lambda at: at not in starts))
    found = scan(whole[:cut])
    assert found.unreadable is not None
    assert found.unreadable.at == found.end == max(start for start in starts if start <= cut)
    assert found.unreadable.needed > cut - found.end


def test_field_lines_at_their_limit_fit_and_scan_with_the_longest_head() -> None:
    fields = encode_fields(None, [], [("x-a", "a" * (MAX_FIELDS_BYTES - len("x-a: \r\n")))])
    own = encode_own_lines(unit=(10**9, 10**9), producer=(b"p" * 128, 10**18))
    batch = encode_messages(
        BLAKE3, "_" + "a" * 128, ZERO_ID, 10**18, TIME_US, salts_of(1), [b""], [fields], [own], offset=0
    )
    (record,) = scan(batch.data).records
    assert len(fields.encoded) == MAX_FIELDS_BYTES
    assert parse_entries(batch.entries)[0].section_length == record.section_end <= MAX_SECTION_BYTES


def with_section_of(length: int) -> bytes:
    """One message whose header section has that many bytes."""
    bare = encode_messages(BLAKE3, "o", ZERO_ID, 1, TIME_US, None, [b"b"], [NO_FIELDS], [b""], offset=0).data
    lines = b"x-a: %b\r\n" % (b"a" * (length - (len(bare) - 3) - len(b"x-a: \r\n")))
    return bare.replace(b"x-hbuf-id: ", lines + b"x-hbuf-id: ")


def test_header_section_at_its_limit_is_scanned_and_one_past_is_not() -> None:
    (record,) = scan(with_section_of(MAX_SECTION_BYTES)).records
    assert record.section_end == MAX_SECTION_BYTES
    found = scan(with_section_of(MAX_SECTION_BYTES + 1))
    assert found.records == []
    assert found.unreadable == Unreadable(0, "the header section is too long")


def test_body_longer_than_any_may_be_is_not_waited_for() -> None:
    data = segment([b"x"]).replace(b"content-length: 1\r\n", b"content-length: 536870913\r\n")
    found = scan(data).unreadable
    assert found is not None
    assert found.needed == 0
    awaited = scan(data.replace(b"536870913", b"536870912")).unreadable
    assert awaited is not None
    assert awaited.needed > 536870912


def test_scan_stops_at_its_limit_and_goes_on_from_there() -> None:
    data = segment([b"a", b"b"])
    first = scan(data, limit=2)
    assert [record.seq for record in first.records] == [0, 1]
    assert [record.seq for record in scan(data, first.end).records] == [2]


def test_way_past_damage_is_found_and_a_fake_number_is_not_believed() -> None:
    data = segment([b"a", b"b", b"c"])
    starts = [record.start for record in scan(data).records]
    damaged = data[: starts[1]] + b"?" * 20 + data[starts[1] + 20 :]
    assert list(record_starts(damaged)) == [starts[0], *starts[2:]]
    last = scan(data).records[-1]
    assert can_follow(last, 2, 0)
    assert not can_follow(last, 3, 10_000)
    assert not can_follow(last._replace(seq=1_000_000), 3, 10_000)


def test_no_record_is_shorter_than_the_shortest() -> None:
    batch = encode_messages(BLAKE3, "a", ZERO_ID, 1, TIME_US, None, [b""], [NO_FIELDS], [b""], offset=0)
    assert len(batch.data) >= scanning._SHORTEST_RECORD_BYTES


def test_erased_message_keeps_the_chain_and_has_nothing_left() -> None:
    fields = encode_fields("k", ["t"], [("x-a", "b")])
    data = segment([b"secret", b"next"], [fields, NO_FIELDS])
    record = scan(data).records[1]
    commit = bytes.fromhex(commitment(BLAKE3, record.salt, fields.encoded, b"secret").decode())
    gone = base64.urlsafe_b64encode(commit)[:43]
    erased = data.replace(b"x-hbuf-salt: " + record.salt, b"x-hbuf-gone: " + gone, 2)
    erased = data[: record.start] + erased[record.start :]
    erased = erased.replace(fields.encoded, b"x: " + b"-" * (len(fields.encoded) - 5) + b"\r\n").replace(
        b"secret", bytes(6)
    )
    assert faults_of(erased) == []
    read = scan(erased).records[1]
    message = message_of(erased, read, "t", "orders")
    assert (message.erased, message.key, message.tags, message.headers, message.body) == (True, None, (), (), b"")
    (entry,) = parse_entries(EntryBuilder(read.start).encode_entries([read], 0))
    assert (entry.flags, entry.key_offset, entry.key_length, entry.tags_length) == (FLAG_ERASED, 0, 0, 0)


def test_parsed_fields_encode_to_the_same_bytes() -> None:
    encoded = encode_fields("k", ["", "t"], [("x-b", "2"), ("x-a", "1"), ("x-b", "3")]).encoded
    assert encode_fields(*parse_fields(encoded)).encoded == encoded
