"""Bodies and fields of every kind come back as they were given, and what looks like a record inside of one is none."""

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import hbuf
from hbuf.errors import TooLarge, UsageError
from hbuf.format.message import Draft
from hbuf.ops.create import create

from .checking import Stored, append, append_to, check_survived, check_verifies, open_writer, read_all, stored_of

KINDS = [
    pytest.param({"hash": hashed, "erasable": erasable}, id=f"{hashed}, {'' if erasable == 'true' else 'not '}erasable")
    for hashed in ("blake3", "sha256")
    for erasable in ("true", "false")
]
LIMIT_BYTES = 100_000


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A whole record, number 2 of a buffer of the same name."""
    return fake_record(tmp_path_factory.mktemp("fake"), 2)


def fake_record(where: Path, seq: int) -> bytes:
    """Record `seq` of another buffer of the same name: whole and well-formed, and none of this one."""
    path = where / f"made for {seq}" / "orders"
    create(str(path))
    append_to(path, *[b"fake %d" % n for n in range(seq)])
    segment = next(path.glob("segments/*.http")).read_bytes()
    return segment[segment.rindex(b"POST /b/orders") :]


def nasty_bodies(fake: bytes) -> list[bytes]:
    return [
        b"",
        b"\0",
        b"\0" * 5000,
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\r",
        b"no end\r",
        b"\r\nPOST /b/orders HTTP/1.1\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        fake,
        b"\r\n" + fake,
        fake * 3,
        fake[:-1],
        fake[1:],
        bytes(range(256)),
        b"\xff\xfe" * 100,
        b"x-hbuf-id: " + b"0" * 64 + b"\r\n\r\n",
        "Łódź ☃".encode(),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_nasty_bodies_come_back_as_they_were(ram_path: Path, kind: dict[str, str], fake: bytes) -> None:
    path = ram_path / "orders"
    create(str(path), kind)
    bodies = nasty_bodies(fake)
    stored = append_to(path, *bodies)
    with open_writer(path) as writer:
        for body in bodies:
            stored += append(writer, [body + b"again"])
    assert stored_of(read_all(path)) == stored
    for index in path.glob("segments/*.idx"):
        index.unlink()
    # Without an index all is found by the records' own lengths.
    assert stored_of(read_all(path)) == stored
    check_survived(path, stored)


@pytest.mark.parametrize("kind", KINDS)
def test_body_of_the_largest_size_is_taken_and_one_more_byte_is_not(ram_path: Path, kind: dict[str, str]) -> None:
    path = ram_path / "orders"
    create(str(path), {**kind, "max_message_bytes": str(LIMIT_BYTES), "segment_bytes": "64KiB"})
    with open_writer(path) as writer:
        stored = append(writer, [b""])
        stored += append(writer, [b"y" * LIMIT_BYTES])
        for bodies in ([b"x" * (LIMIT_BYTES + 1)], [b"fits", b"x" * (LIMIT_BYTES + 1)]):
            with pytest.raises(TooLarge) as refused:
                append(writer, bodies)
            assert (refused.value.exit_code, refused.value.stored) == (65, 0)
        stored += append(writer, [b"z" * LIMIT_BYTES])
    check_survived(path, stored)


# Fake records next to damage


def damaged_with_fake(ram_path: Path, body: bytes, place: int) -> tuple[Path, list[Stored]]:
    """Four messages, of which number `place` has `body` and a damaged head. Returns those that are not damaged."""
    path = ram_path / "damaged" / "orders"
    create(str(path))
    bodies = [b"body %d" % n for n in range(1, 5)]
    bodies[place - 1] = body
    stored = append_to(path, *bodies)
    segment = next(path.glob("segments/*.http"))
    data = bytearray(segment.read_bytes())
    number = data.index(b"x-hbuf-seq: %d\r\n" % place)
    data[number] ^= 1
    segment.write_bytes(data)
    return path, [each for each in stored if each.seq != place]


@pytest.mark.parametrize("index", [True, False], ids=["with index", "without index"])
@pytest.mark.parametrize("place", [1, 2, 3, 4])
@pytest.mark.parametrize("number", [1000, 10])
def test_fake_record_with_a_number_of_the_future_is_not_believed(
    ram_path: Path, number: int, place: int, index: bool
) -> None:
    path, stored = damaged_with_fake(ram_path, fake_record(ram_path, number), place)
    if not index:
        next(path.glob("segments/*.idx")).unlink()
    assert stored_of(read_all(path)) == stored
    [further] = append_to(path, b"further")
    # Without an index nobody can know that there was a damaged message at the very end.
    assert further.seq == (5 if index or place < 4 else 4)
    assert stored_of(read_all(path)) == [*stored, further]


@pytest.mark.parametrize("place", [1, 2, 3, 4])
@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_fake_record_with_a_number_that_could_follow_is_not_shown(ram_path: Path, ahead: int, place: int) -> None:
    """The index tells where the true ones begin."""
    path, stored = damaged_with_fake(ram_path, fake_record(ram_path, place + ahead), place)
    assert stored_of(read_all(path)) == stored
    [further] = append_to(path, b"further")
    assert further.seq == 5
    assert stored_of(read_all(path)) == [*stored, further]


@pytest.mark.parametrize("ahead", [0, 1, 2, 100])
def test_fake_record_in_an_unfinished_append_is_set_aside_with_it(ram_path: Path, ahead: int) -> None:
    path = ram_path / "orders"
    create(str(path))
    stored = append_to(path, b"one", b"two")
    segment, index = (next(path.glob(f"segments/*.{suffix}")) for suffix in ("http", "idx"))
    listed, length = index.read_bytes(), segment.stat().st_size
    append_to(path, fake_record(ram_path, 3 + ahead) + b"and more")
    index.write_bytes(listed)
    torn = segment.read_bytes()[:-5]
    segment.write_bytes(torn)
    check_survived(path, stored)
    assert [file.read_bytes() for file in (path / "quarantine").iterdir()] == [torn[length:]]


# Every kind of message


def texts(most: int) -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=most).map(str.strip)


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    names = st.sampled_from(["content-type", "traceparent", "ce-id", "x-a", "x-long-name"])
    try:
        return hbuf.draft(
            draw(st.binary(max_size=300) | st.just(b"\r\n\r\nPOST /b/orders HTTP/1.1\r\n")),
            key=draw(st.none() | texts(20).filter(bool)),
            tags=draw(st.lists(texts(10), max_size=3)),
            headers=draw(st.lists(st.tuples(names, texts(20)), max_size=3)),
        )
    except UsageError:
        assume(False)
        raise


@st.composite
def kinds_of_buffer(draw: st.DrawFn) -> dict[str, str]:
    return {
        "hash": draw(st.sampled_from(["blake3", "sha256"])),
        "erasable": draw(st.sampled_from(["true", "false"])),
        "segment_messages": draw(st.sampled_from(["none", "1", "2", "3"])),
        "segment_bytes": draw(st.sampled_from(["4096", "64MiB"])),
    }


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(batches=st.lists(st.tuples(st.lists(drafts(), max_size=5), st.booleans()), max_size=4), kind=kinds_of_buffer())
def test_any_message_comes_back_as_it_was_given(batches: list[tuple[list[Draft], bool]], kind: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder, hbuf.create(f"{folder}/orders", **kind) as buffer:
        receipts = [receipt for batch, unit in batches for receipt in buffer.append_many(batch, atomic=unit)]
        sent = [draft for batch, _ in batches for draft in batch]
        found = list(buffer.read())
        assert [(message.seq, message.id) for message in found] == [(each.seq, each.id) for each in receipts]
        assert [message.seq for message in found] == list(range(1, len(sent) + 1))
        assert [hbuf.draft(m.body, key=m.key, tags=m.tags, headers=m.headers) for m in found] == sent
        check_verifies(Path(folder) / "orders", len(sent))


# When segments are rolled


def segments_of(path: Path) -> list[int]:
    return [int(file.stem) for file in sorted(path.glob("segments/*.http"))]


def test_segments_are_rolled_by_count_however_batches_are_cut(ram_path: Path) -> None:
    path = ram_path / "orders"
    create(str(path), {"segment_messages": "4"})
    stored: list[Stored] = []
    with open_writer(path) as writer:
        for n, size in enumerate([1, 2, 9, 1, 4, 3]):
            stored += append(writer, [b"%d.%d" % (n, i) for i in range(size)])
    assert segments_of(path) == [1, 5, 9, 13, 17]
    check_survived(path, stored)


def test_segments_are_rolled_by_size_and_a_large_message_has_one_to_itself(ram_path: Path) -> None:
    path = ram_path / "orders"
    create(str(path), {"segment_bytes": "8KiB"})
    with open_writer(path) as writer:
        stored = append(writer, [b"%d " % n + b"." * 1000 for n in range(20)])
        stored += append(writer, [b"large" * 10_000, b"small"])
    firsts = segments_of(path)
    assert {21, 22} <= set(firsts)
    for first in firsts:
        assert first == 21 or (path / "segments" / f"{first:020d}.http").stat().st_size <= 8192
    check_survived(path, stored)


def test_unit_is_not_split_over_segments(ram_path: Path) -> None:
    path = ram_path / "orders"
    create(str(path), {"segment_messages": "4", "segment_bytes": "8KiB"})
    with open_writer(path) as writer:
        stored = append(writer, [b"one", b"two", b"three"])
        stored += append(writer, [b"unit %d" % n for n in range(6)], unit=True)
        stored += append(writer, [b"large unit %d " % n + b"." * 5000 for n in range(3)], unit=True)
    for first in segments_of(path):
        segment = (path / "segments" / f"{first:020d}.http").read_bytes()
        assert segment.count(b"\r\nx-hbuf-batch: 1/") == segment.count(b"\r\nx-hbuf-batch: 6/6") + segment.count(
            b"\r\nx-hbuf-batch: 3/3"
        )
    check_survived(path, stored)


# Opening


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many bytes were read of files with each suffix."""
    counts: Counter[str] = Counter()

    def counted(call: Callable[..., bytes]) -> Callable[..., bytes]:
        def called(file: int | Path, *arguments: Any) -> bytes:
            data = call(file, *arguments)
            path = file if isinstance(file, Path) else Path(os.readlink(f"/proc/self/fd/{file}"))
            counts[path.suffix] += len(data)
            return data

        return called

    monkeypatch.setattr(os, "pread", counted(os.pread))
    monkeypatch.setattr(os, "read", counted(os.read))
    monkeypatch.setattr(Path, "read_bytes", counted(Path.read_bytes))
    return counts


def test_opening_to_append_reads_no_more_of_a_long_segment_than_of_a_short_one(
    ram_path: Path, bytes_read: Counter[str]
) -> None:
    read = {}
    for count in (1000, 20_000):
        path = ram_path / f"of-{count}"
        create(str(path))
        append_to(path, *[b"%d" % n for n in range(count)])
        assert len(list(path.glob("segments/*.http"))) == 1
        bytes_read.clear()
        append_to(path, b"one more")
        read[count] = dict(bytes_read)
    assert 0 < read[20_000][".http"] <= read[1000][".http"] + 1024
    # The index may be looked through once, which is a twentieth of the segment here.
    assert sum(read[20_000].values()) < 33 * 20_000 + sum(read[1000].values())
