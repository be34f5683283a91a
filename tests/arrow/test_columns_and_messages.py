"""Columns say what `hbuf-tail` says, of every kind of message, column by column."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hbuf
from hbuf.format.message import Draft
from hbuf.ops.compress import compress
from hbuf.ops.create import create
from hbuf.ops.reindex import reindex
from hbuf.ops.set import set_settings
from hbuf.store.directory import LooseSegments
from hbuf.store.signing import Signer

from .read_buffers import DRAFTS, NewKey, by_columns, check_equal


def fill(path: Path, *, sign: Path | None = None, number: int = 0) -> None:
    """All kinds: in one batch, one by one, and as a unit. `number` is where producers begin to count."""
    with hbuf.open(path, sign=sign) as buffer:
        buffer.append_many(_with_producers_from(number))
        for each in _with_producers_from(number + 100):
            buffer.append_many([each])
        for start in range(0, len(DRAFTS), 5):
            buffer.append_many(_with_producers_from(number + 200)[start : start + 5], atomic=True)


def _with_producers_from(number: int) -> list[Draft]:
    return [
        each._replace(producer=(each.producer[0], each.producer[1] + number)) if each.producer else each
        for each in DRAFTS
    ]


def test_one_segment(ram_path: Path) -> None:
    hbuf.create(ram_path / "orders").close()
    fill(ram_path / "orders")
    assert check_equal(ram_path / "orders").seqs == list(range(1, 3 * len(DRAFTS) + 1))


def test_many_segments_plain_and_compressed(ram_path: Path) -> None:
    hbuf.create(ram_path / "orders", segment_messages="7").close()
    fill(ram_path / "orders")
    plain = check_equal(ram_path / "orders")
    assert compress(str(ram_path / "orders"), timeout_seconds=20)
    assert list((ram_path / "orders/segments").glob("*.zst"))
    assert check_equal(ram_path / "orders") == plain
    for index in (ram_path / "orders/segments").glob("*.idx"):
        index.unlink()
    assert check_equal(ram_path / "orders") == plain


def test_a_buffer_that_cannot_be_erased_from_has_no_salts(ram_path: Path) -> None:
    hbuf.create(ram_path / "orders", erasable="false").close()
    fill(ram_path / "orders")
    assert len(check_equal(ram_path / "orders").rows) == 3 * len(DRAFTS)


@pytest.mark.parametrize("name", ["salt", "gone"])
def test_a_field_that_ends_as_a_salt_line_does_is_kept(ram_path: Path, name: str) -> None:
    """Without salts, this is where one would stand."""
    hbuf.create(ram_path / "orders", erasable="false").close()
    look = f"x-hbuf-{name}: {'A' * 43}"
    with hbuf.open(ram_path / "orders") as buffer:
        buffer.append_many([hbuf.draft(b"", key="k", headers=[("x-a", look)])] * 2)
        buffer.append_many([hbuf.draft(b"", tags=[look])] * 2)
    rows = check_equal(ram_path / "orders").rows
    assert [row["headers"] for row in rows] == [[{"name": "x-a", "value": look}]] * 2 + [[]] * 2
    assert [row["tags"] for row in rows] == [[]] * 2 + [[look]] * 2


def test_signed(ram_path: Path, new_key: NewKey) -> None:
    key, _ = new_key("audit", "sign")
    create(str(ram_path / "orders"), {"segment_messages": "9"}, signer=Signer(key))
    fill(ram_path / "orders", sign=key)
    hbuf.Buffer(ram_path / "orders", sign=key).erase([3, 8, 20], reason="test")
    assert len(check_equal(ram_path / "orders").rows) == 3 * len(DRAFTS)


def test_erased_with_and_without_fields_and_deletes_between(ram_path: Path) -> None:
    hbuf.create(ram_path / "orders", segment_messages="9").close()
    fill(ram_path / "orders")
    with hbuf.open(ram_path / "orders") as buffer:
        assert buffer.erase([1, 2, 5, 9, 12, 20], reason="test") == 6
        buffer.append_many(DRAFTS[:4])
        buffer.erase([51], reason="test")
    rows = check_equal(ram_path / "orders").rows
    assert [row["seq"] for row in rows if row["erased"]] == [1, 2, 5, 9, 12, 20, 51]
    assert all(row["body"] is None and row["key"] is None and not row["tags"] for row in rows if row["erased"])
    assert len(rows) == 3 * len(DRAFTS) + 4  # what says that they are erased is no message


def test_encrypted_with_the_identity_another_and_none(ram_path: Path, new_key: NewKey) -> None:
    (alice, public), (bob, _) = new_key("alice"), new_key("bob")
    path = ram_path / "orders"
    hbuf.create(path, encrypt_to=[public]).close()
    fill(path)  # each append brings a data key, in a PUT between the messages
    hbuf.open(path).erase([4, 30], reason="test")
    sealed = check_equal(path).rows
    assert all(row["encrypted"] and row["body"] is None for row in sealed)
    opened = check_equal(path, identity=alice).rows
    assert [row["body"] for row in opened if not row["erased"]] == [
        each.body for n, each in enumerate(DRAFTS * 3, 1) if n not in (4, 30)
    ]
    refused = check_equal(path, identity=bob)
    assert refused.seqs == [4, 30]
    assert len(refused.damage) == 3 * len(DRAFTS) - 2


def test_encrypted_from_some_message_on(ram_path: Path, new_key: NewKey) -> None:
    alice, public = new_key("alice")
    path = ram_path / "orders"
    hbuf.create(path).close()
    fill(path)
    set_settings(str(path), {}, added=[public], timeout_seconds=20)
    fill(path, number=1000)
    check_equal(path)
    assert check_equal(path, identity=alice).seqs == list(range(1, 6 * len(DRAFTS) + 1))


def test_numbers_get_longer(ram_path: Path) -> None:
    hbuf.create(ram_path / "orders").close()
    with hbuf.open(ram_path / "orders") as buffer:
        buffer.append_many([b"x" * n for n in range(1, 1105)])
    assert check_equal(ram_path / "orders").seqs == list(range(1, 1105))


def test_a_renamed_buffer_has_its_new_name(ram_path: Path) -> None:
    """Its records have two names, within one segment."""
    hbuf.create(ram_path / "orders").close()
    fill(ram_path / "orders")
    (ram_path / "orders").rename(ram_path / "bills")
    fill(ram_path / "bills", number=1000)
    rows = check_equal(ram_path / "bills").rows
    assert {row["buffer"] for row in rows} == {"bills"}
    assert b"POST /b/orders " in (ram_path / "bills/segments/00000000000000000001.http").read_bytes()


def test_tenant_and_buffer_are_those_of_the_directory(ram_path: Path) -> None:
    path = ram_path / "tenants" / "acme" / "buffers" / "orders"
    path.parent.mkdir(parents=True)
    hbuf.create(path).close()
    fill(path)
    assert {(row["tenant"], row["buffer"]) for row in check_equal(path).rows} == {("acme", "orders")}


@pytest.mark.parametrize("index", [True, False])
def test_loose_segments_have_the_name_that_is_in_them(ram_path: Path, index: bool) -> None:
    hbuf.create(ram_path / "orders", segment_messages="7").close()
    fill(ram_path / "orders")
    (ram_path / "copy").mkdir()
    for file in sorted((ram_path / "orders/segments").glob("*.http"))[1:3]:
        shutil.copy(file, ram_path / "copy")
        if index:
            shutil.copy(file.with_suffix(".idx"), ram_path / "copy")
    expected = check_equal(ram_path / "orders")
    found = by_columns(LooseSegments(ram_path / "copy"))
    assert found.rows == expected.rows[7:21]
    assert not found.damage


def test_each_column_alone_is_the_same(ram_path: Path) -> None:
    hbuf.create(ram_path / "orders", segment_messages="20").close()
    fill(ram_path / "orders")
    hbuf.open(ram_path / "orders").erase([5, 9], reason="test")
    rows = check_equal(ram_path / "orders").rows
    for name in rows[0]:
        assert by_columns(ram_path / "orders", names=[name]).rows == [{name: row[name]} for row in rows]
    pair = ["body", "seq"]
    assert by_columns(ram_path / "orders", names=pair).rows == [{name: row[name] for name in pair} for row in rows]


def test_an_index_made_anew_reads_the_same(ram_path: Path) -> None:
    hbuf.create(ram_path / "orders", segment_messages="20").close()
    fill(ram_path / "orders")
    hbuf.open(ram_path / "orders").erase([5, 9], reason="test")
    before = check_equal(ram_path / "orders")
    for file in (ram_path / "orders/segments").glob("*.idx"):
        file.unlink()
    reindex(str(ram_path / "orders"), timeout_seconds=20)
    assert check_equal(ram_path / "orders") == before


_TEXT = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=20)
_DRAFTS = st.lists(
    st.builds(
        lambda body, key, tags, headers: hbuf.draft(body, key=key or None, tags=tags, headers=headers),
        st.binary(max_size=50) | st.sampled_from([each.body for each in DRAFTS]),
        _TEXT,
        st.lists(_TEXT, max_size=4),
        st.lists(st.tuples(st.sampled_from(["content-type", "x-a", "ce-source"]), _TEXT), max_size=3),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(_DRAFTS, min_size=1, max_size=4), erased=st.sets(st.integers(1, 8)), erasable=st.booleans())
def test_any_messages(ram_path: Path, batches: list[list[Draft]], erased: set[int], erasable: bool) -> None:
    path = ram_path / "orders"
    hbuf.create(path, segment_messages="10", erasable=str(erasable).lower()).close()
    with hbuf.open(path) as buffer:
        for batch in batches:
            buffer.append_many(batch)
        numbers = erased & set(range(1, sum(map(len, batches)) + 1))
        if erasable and numbers:
            buffer.erase(numbers, reason="test")
    rows = check_equal(path).rows
    assert len(rows) == sum(map(len, batches))
    shutil.rmtree(path)
