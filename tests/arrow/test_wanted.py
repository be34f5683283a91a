"""Keys and tags are found with and without tags files, rare and frequent."""

from pathlib import Path

import pytest

import hbuf
from hbuf.arrow.block import Block, cut_block
from hbuf.arrow.wanted import Wanted
from hbuf.ops.filter import Filter
from hbuf.store.directory import BufferDirectory
from hbuf.store.reader import Reader, _near

from .read_buffers import by_columns, by_messages

COUNT = 2000


@pytest.fixture
def orders(ram_path: Path) -> Path:
    """Two sealed segments with tags files, and the newest. Some keys and tags are rare, one is in every message."""
    path = ram_path / "orders"
    hbuf.create(path, segment_messages="900").close()
    with hbuf.open(path) as buffer:
        buffer.append_many(
            hbuf.draft(
                b"%d" % n,
                key=f"key-{n % 7}" if n % 500 else "rare",
                tags=["all", f"tag-{n % 3}", *(["rare"] if n % 700 == 1 else [])],
            )
            for n in range(1, COUNT + 1)
        )
    with hbuf.open(path) as buffer:
        buffer.append_many([])
    assert len(list(path.glob("segments/*.tags"))) == 2
    return path


WANTED = [
    (Wanted(frozenset(["rare"])), Filter(key=b"rare"), 4),
    (Wanted(frozenset(["key-3"])), Filter(key=b"key-3"), 285),
    (Wanted(tag="rare"), Filter(tag=b"rare"), 3),
    (Wanted(tag="all"), Filter(tag=b"all"), COUNT),
    (Wanted(tag="tag-1"), Filter(tag=b"tag-1"), 667),
    (Wanted(frozenset(["key-1"]), "rare"), Filter(key=b"key-1", tag=b"rare"), 3),
    (Wanted(frozenset(["key-1"]), "none"), Filter(key=b"key-1", tag=b"none"), 0),
    (Wanted(frozenset(["no such key"])), Filter(key=b"no such key"), 0),
]


@pytest.mark.parametrize("tags_files", [True, False])
@pytest.mark.parametrize(("wanted", "same", "count"), WANTED, ids=[str(count) for *_, count in WANTED])
def test_keys_and_tags(orders: Path, wanted: Wanted, same: Filter, count: int, tags_files: bool) -> None:
    if not tags_files:
        for file in orders.glob("segments/*.tags"):
            file.unlink()
    found = by_columns(orders, wanted=wanted)
    assert len(found.rows) == count
    assert found == by_messages(orders, wanted=same)
    part = by_columns(orders, 300, 1700, wanted=wanted)
    assert part == by_messages(orders, 300, 1700, wanted=same)


def test_any_of_several_keys(orders: Path) -> None:
    both = by_columns(orders, wanted=Wanted(frozenset(["rare", "key-3"]))).seqs
    each = [by_columns(orders, wanted=Wanted(frozenset([key]))).seqs for key in ("rare", "key-3")]
    assert both == sorted(each[0] + each[1])  # type: ignore[type-var]
    assert by_columns(orders, wanted=Wanted(frozenset())).rows == []


def test_what_is_erased_has_no_key_and_no_tag(orders: Path) -> None:
    hbuf.open(orders).erase([500, 501, 1999], reason="test")
    assert by_columns(orders, wanted=Wanted(frozenset(["rare"]))).seqs == [1000, 1500, 2000]
    assert len(by_columns(orders, wanted=Wanted(tag="all")).rows) == COUNT - 3


def test_rare_messages_are_read_without_the_others(orders: Path) -> None:
    with Reader(BufferDirectory(orders)) as reader:
        wanted = Wanted(frozenset(["rare"]))
        pieces = list(reader.pieces(1, 1801, cut_block, wanted.numbers))
        assert [(piece.first, piece.count) for piece in pieces if isinstance(piece, Block)] == [
            (500, 1),
            (1000, 1),
            (1500, 1),
        ]
        everywhere = list(reader.pieces(1, 1801, cut_block, Wanted(frozenset(["key-3"])).numbers))
        assert len(everywhere) == 2  # one for each segment, not one for each message


def test_near_numbers_are_read_together() -> None:
    assert _near([], 1) == range(0)
    assert not _near([5], 6)
    assert _near([5], 1) == range(5, 6)
    assert _near([5], 5) == range(5, 6)
    assert _near([5, 10, 74, 139, 300], 1) == range(5, 75)  # 64 apart are near, 65 are not
    assert _near([5, 10, 74, 139, 300], 11) == range(74, 75)
    assert _near([5, 10, 74, 139, 300], 200) == range(300, 301)
    assert _near(list(range(1, 30_000)), 1) == range(1, 10_001)
