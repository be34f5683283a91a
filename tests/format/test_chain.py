"""The chain is what the format's two formulas say, and check_records says where it breaks."""

import hashlib
from itertools import repeat

import pytest
from blake3 import blake3

from hbuf.errors import UsageError
from hbuf.format.chain import ZERO_ID, Hasher, commitment, hasher_named, record_id
from hbuf.format.check import ChainState, Fault, check_records, unfinished_unit
from hbuf.format.fields import NO_FIELDS
from hbuf.format.record import encode_messages, encode_own_lines
from hbuf.format.scan import scan

SHA256 = hasher_named("sha256")


def test_commitment_and_id_are_as_the_format_writes_them() -> None:
    commit = hashlib.sha256(b"hbuf1 body " + b"S" * 43 + b"\nx-a: b\r\nbody").hexdigest().encode()
    assert commitment(SHA256, b"S" * 43, b"x-a: b\r\n", b"body") == commit
    expected = hashlib.sha256(b"hbuf1 id\n" + ZERO_ID + b"\n" + commit + b"\nhead").hexdigest().encode()
    assert record_id(SHA256, ZERO_ID, commit, b"head") == expected


def test_blake3_is_blake3() -> None:
    assert hasher_named("blake3")(b"x").hexdigest() == blake3(b"x").hexdigest()


@pytest.mark.parametrize("name", ["blake3", "sha256"])
@pytest.mark.parametrize("length", [65_535, 65_536, 65_537, 200_000])
def test_body_is_hashed_the_same_whether_it_is_copied_or_not(name: str, length: int) -> None:
    hasher = hasher_named(name)
    body = bytes(length)
    expected = hasher(b"hbuf1 body s\nf" + body).hexdigest().encode()
    assert commitment(hasher, b"s", b"f", body) == expected
    assert commitment(hasher, b"s", b"f", memoryview(body)) == expected


def test_unknown_hash_is_refused() -> None:
    with pytest.raises(UsageError, match="md5"):
        hasher_named("md5")


def messages(own: list[bytes], first: int = 1, prev: bytes = ZERO_ID, time_us: int = 0) -> bytes:
    bodies = [b"%d" % n for n in range(len(own))]
    return encode_messages(
        SHA256, "o", prev, first, time_us, None, bodies, repeat(NO_FIELDS), own, offset=0
    ).data  # fmt: skip


def faults_of(data: bytes, state: ChainState | None = None, hasher: Hasher = SHA256, base: int = 0) -> list[Fault]:
    state = state or ChainState()
    return check_records(hasher, data, scan(data).records, state, base) + unfinished_unit(state, base + len(data))


def test_chain_is_checked_window_by_window() -> None:
    data = messages([b""] * 3)
    end = scan(data, limit=1).end
    state = ChainState()
    assert faults_of(data[:end], state) == []
    assert faults_of(data[end:], state, base=end) == []
    assert (state.next_seq, state.numbered) == (4, 3)


def test_another_hash_or_another_start_does_not_match() -> None:
    data = messages([b""])
    assert [fault.kind for fault in faults_of(data, hasher=hasher_named("blake3"))] == ["chain"]
    assert [fault.kind for fault in faults_of(data, ChainState(prev=b"1" * 64))] == ["chain"]


def test_one_changed_body_is_one_fault_named_by_place_and_number() -> None:
    data = messages([b""] * 3)
    record = scan(data).records[1]
    changed = data[: record.section_end] + b"?" + data[record.section_end + 1 :]
    assert [fault[:3] for fault in faults_of(changed, base=1000)] == [("chain", 1000 + record.start, 2)]


def test_number_that_does_not_follow_is_one_fault() -> None:
    data = messages([b"", b""], first=5)
    assert [fault[:3] for fault in faults_of(data)] == [("completeness", 0, 5)]
    assert faults_of(data, ChainState(next_seq=5)) == []


def test_time_may_stand_still_and_not_go_back() -> None:
    data = messages([b""], time_us=5)
    time = scan(data).records[0].time
    assert faults_of(data, ChainState(last_time=time)) == []
    assert [fault.kind for fault in faults_of(messages([b""], time_us=4), ChainState(last_time=time))] == ["chain"]


def unit(i: int, n: int) -> bytes:
    return encode_own_lines(unit=(i, n), producer=None)


@pytest.mark.parametrize("own", [[unit(1, 1)], [unit(1, 2), unit(2, 2), b""], [unit(1, 2), unit(2, 2), unit(1, 1)]])
def test_whole_units_have_no_fault(own: list[bytes]) -> None:
    assert faults_of(messages(own)) == []


@pytest.mark.parametrize(
    ("own", "seq"),
    [
        ([unit(1, 2)], 1),
        ([unit(1, 2), b""], 2),
        ([unit(2, 2)], 1),
        ([b"", unit(1, 3), unit(3, 3)], 3),
        ([unit(1, 3), unit(2, 2)], 2),
        ([unit(2, 1)], 1),
    ],
)
def test_unit_that_is_not_whole_is_a_fault(own: list[bytes], seq: int) -> None:
    faults = faults_of(messages(own))
    assert (faults[0].kind, faults[0].seq) == ("completeness", seq)


def test_unit_that_begins_inside_another_is_one_fault() -> None:
    assert [fault.seq for fault in faults_of(messages([unit(1, 3), unit(1, 2), unit(2, 2), b""]))] == [2]
