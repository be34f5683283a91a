"""What is damaged: an error that names the place, a row that does, or nothing; and each place is told once."""

from collections.abc import Callable
from pathlib import Path

import pytest

import hbuf
import hbuf.store.compress
from hbuf.ops.compress import compress
from hbuf.ops.set import set_settings

from .reading import change, corrupt, error_of, plan, read, seqs

COUNT = 60
SEALED, NEWEST = "segments/00000000000000000001.http", "segments/00000000000000000041.http"


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Forty messages in a sealed segment, twenty in the newest."""
    path = tmp_path / "orders"
    hbuf.create(path, segment_messages="40").append_many(
        hbuf.draft(b"body %d" % n, key="k") for n in range(1, COUNT + 1)
    )
    return path


def damage_message(path: Path, file: str, seq: int) -> None:
    change(path / file, lambda content: content.replace(b"x-hbuf-seq: %d\r\n" % seq, b"x-hbuf-seq; %d\r\n" % seq))


def without(*numbers: int) -> list[int]:
    return [seq for seq in range(1, COUNT + 1) if seq not in numbers]


def damage_two(path: Path) -> None:
    damage_message(path, SEALED, 17)
    damage_message(path, NEWEST, 50)


def damage_opening(path: Path) -> None:
    change(path / SEALED, lambda content: content.replace(b"host: hbuf", b"host: hxuf", 1))


def damage_newest_opening(path: Path) -> None:
    change(path / NEWEST, lambda content: content.replace(b"host: hbuf", b"host: hxuf", 1))


def damage_without_index(path: Path) -> None:
    damage_message(path, SEALED, 17)
    (path / SEALED).with_suffix(".idx").unlink()


KINDS: list[tuple[Callable[[Path], None], list[int], list[int | None]]] = [
    (damage_two, [17, 50], [17, 50]),
    (damage_opening, [], [None]),
    (damage_newest_opening, [], [None]),
    (damage_without_index, [17], [None]),
]
SPLITS = ["64MiB", "2KiB"]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(("make", "lost", "told"), KINDS, ids=lambda kind: getattr(kind, "__name__", ""))
def test_modes(orders: Path, make: Callable[[Path], None], lost: list[int], told: list[int | None], split: str) -> None:
    make(orders)
    if split != "64MiB":
        assert len(plan(orders, splitBytes=split)) >= 4
    assert seqs(orders, mode="DROPMALFORMED", splitBytes=split) == without(*lost)
    line = error_of(orders, splitBytes=split)
    assert line.startswith("hbuf: ")
    assert ".http: byte " in line
    assert line.endswith("(mode=PERMISSIVE or DROPMALFORMED reads the rest)")
    rows = read(orders, mode="PERMISSIVE", splitBytes=split)
    assert [row["seq"] for row in rows if row["_corrupt_record"] is None] == without(*lost)
    assert [seq for seq, _ in corrupt(rows)] == told
    for row in rows:
        if row["_corrupt_record"] is not None:
            assert {"tenant": row["tenant"], "buffer": row["buffer"]} == {"tenant": "default", "buffer": "orders"}
            assert row["body"] is row["time"] is row["key"] is row["tags"] is row["erased"] is None
            assert str(orders) in str(row["_corrupt_record"])


def test_damage_is_told_of_by_the_range_that_it_is_in(orders: Path) -> None:
    damage_two(orders)
    assert seqs(orders, from_="18", to="50") == list(range(18, 50))
    assert "message 17 is damaged" in error_of(orders, from_="17", to="18")
    assert corrupt(read(orders, from_="18", mode="PERMISSIVE"))[0][0] == 50


def test_damage_without_a_number_is_not_told_of_by_later_ranges(orders: Path) -> None:
    damage_without_index(orders)
    assert seqs(orders, from_="18") == list(range(18, COUNT + 1))
    assert len(corrupt(read(orders, from_="10", to="20", mode="PERMISSIVE"))) == 1
    assert error_of(orders, from_="16")


def test_a_segment_that_is_lost_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    hbuf.create(path, segment_messages="10").append_many([b"x"] * 35)
    for file in path.glob("segments/*11.*"):
        file.unlink()
    lost = set(range(11, 21))
    assert set(seqs(path, mode="DROPMALFORMED")) == set(range(1, 36)) - lost
    assert "messages 11 to 20 should follow, and are not there" in error_of(path)
    assert [seq for seq, _ in corrupt(read(path, mode="PERMISSIVE", splitBytes="1KiB"))] == [11]
    assert "messages 15 to 17 should follow" in error_of(path, from_="15", to="18")
    assert seqs(path, from_="21") == list(range(21, 36))


def test_segments_outside_a_buffer_may_have_gaps(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    hbuf.create(path, segment_messages="10").append_many([b"x"] * 35)
    for file in path.glob("segments/*11.*"):
        file.unlink()
    (path / "segments").rename(tmp_path / "loose")
    assert seqs(tmp_path / "loose") == [*range(1, 11), *range(21, 36)]


def test_only_the_column_of_what_is_corrupt(orders: Path) -> None:
    damage_two(orders)
    rows = read(orders, mode="PERMISSIVE", columns="_corrupt_record")
    assert len(rows) == COUNT
    assert len([row for row in rows if row["_corrupt_record"] is not None]) == 2


def test_corrupt_rows_have_no_place_where_the_column_is_not_asked_for(orders: Path) -> None:
    damage_two(orders)
    assert read(orders, mode="DROPMALFORMED", columns="seq") == [{"seq": seq} for seq in without(17, 50)]


def test_torn_frame_of_a_compressed_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that lies within a body, and one with many messages."""
    monkeypatch.setattr(hbuf.store.compress, "FRAME_BYTES", 4096)
    path = tmp_path / "orders"
    bodies = [b"%d " % n * 20 for n in range(60)]
    bodies[30] = b"".join(b"%d " % n for n in range(6000))
    hbuf.create(path).append_many(bodies)
    set_settings(str(path), {"segment_messages": "1000"}, timeout_seconds=20)  # opens a new segment
    hbuf.open(path).append(b"the last")
    assert compress(str(path), timeout_seconds=20)
    [file] = path.glob("segments/*.zst")
    size = len(file.read_bytes())
    for at in range(10, size - 200, size // 12):
        content = file.read_bytes()
        change(file, lambda content, at=at: content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])  # type: ignore[misc]
        rows = read(path, mode="PERMISSIVE")
        lost = [seq for seq, _ in corrupt(rows)]
        whole = [row for row in rows if row["_corrupt_record"] is None]
        assert lost, at
        if None not in lost:  # the first frame has the opening in it, and without that there are no numbers
            assert [row["seq"] for row in whole] == [seq for seq in range(1, 62) if seq not in lost]
        assert all(row["body"] == [*bodies, b"the last"][int(str(row["seq"])) - 1] for row in whole)
        assert "byte " in error_of(path)
        file.write_bytes(content)


@pytest.mark.parametrize("bit", [0, 3, 9, 12, 20])
def test_wrong_offsets_in_an_index_give_no_message_twice(orders: Path, bit: int) -> None:
    """Ranges are planned by the index."""
    from hbuf.format import index

    file = (orders / SEALED).with_suffix(".idx")
    content = file.read_bytes()
    for entry in range(0, 40, 3):
        changed = bytearray(content)
        at = index.HEADER_BYTES + entry * index.ENTRY_BYTES + 8
        changed[at + bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        assert seqs(orders, splitBytes="1KiB") == without(), entry
