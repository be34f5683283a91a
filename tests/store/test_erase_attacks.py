"""Whoever can write to the files makes a message vanish, or brings one back: it is told from an erase by rule."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hbuf.errors import Damaged
from hbuf.format.deletes import Erasure, encode_delete
from hbuf.format.erasing import blank_patches, gone_patch, layout_of_record
from hbuf.format.record import encode_deletes
from hbuf.ops.create import create
from hbuf.ops.report import Report
from hbuf.ops.verify import verify
from hbuf.store.clock import draw_salts
from hbuf.store.directory import BufferDirectory
from hbuf.store.located import SegmentMessages
from hbuf.store.patching import apply_patches
from hbuf.store.recover import open_tail
from hbuf.store.signing import Signer
from hbuf.store.tail import Tail

from .checking import append_to
from .erase_scenarios import SECRETS, erase_in, store_secrets
from .signed_scenarios import KEY, make_key


@pytest.fixture
def path(ram_path: Path) -> Path:
    create(str(ram_path / "orders"))
    store_secrets(ram_path / "orders", SECRETS)
    return ram_path / "orders"


@pytest.fixture
def signed_path(ram_path: Path) -> Path:
    create(str(ram_path / "signed"), signer=Signer(make_key(ram_path, KEY)))
    store_secrets(ram_path / "signed", SECRETS, key=ram_path / KEY)
    return ram_path / "signed"


def segment_of(path: Path) -> Path:
    return path / "segments" / f"{1:020d}.http"


def change(path: Path, pattern: bytes, replacement: bytes | Callable[[re.Match[bytes]], bytes]) -> None:
    """Changes the segment where a pattern matches, once, and keeps its length."""
    before = segment_of(path).read_bytes()
    after, count = re.subn(pattern, replacement, before, count=1, flags=re.DOTALL)
    assert count == 1
    assert len(after) == len(before)
    segment_of(path).write_bytes(after)


def make_it_look_erased(path: Path, seq: int) -> Erasure:
    """Without a DELETE, as somebody does who has read the format. Returns what a DELETE would say."""
    directory = BufferDirectory(path)
    with SegmentMessages(directory, 1) as messages:
        located = messages.find(seq)
        assert located is not None
        commitment = messages.commitment_of(located)
    layout = layout_of_record(located.record)
    patches = [gone_patch(layout, located.offset, commitment), *blank_patches(layout, located.offset)]
    apply_patches(directory, 1, patches)
    return Erasure(seq, located.record.id, commitment)


def append_delete_by_hand(path: Path, erasure: Erasure) -> None:
    """Chained as it must be, and not signed."""
    tail = open_tail(BufferDirectory(path), 1, lambda line: None, lambda opening: None)
    assert isinstance(tail, Tail)
    line = encode_delete(erasure, b"mallory@here", b"because")
    batch = encode_deletes(
        tail.opening.hasher, "signed", tail.prev, tail.next_seq, tail.last_time_us, draw_salts(1), [line],
        offset=tail.length,
    )  # fmt: skip
    tail.close()
    with segment_of(path).open("ab") as segment:
        segment.write(batch.data)


def checked(path: Path) -> Report:
    report = verify(str(path), jobs=1)
    assert not report.ok
    return report


def test_message_that_only_looks_erased_is_tampered(path: Path) -> None:
    make_it_look_erased(path, 2)
    report = checked(path)
    assert report.verdicts["chain"]["tampered"] == 1
    assert report.verdicts["chain"]["erased"] == 0
    assert [fault.reason for fault in report.faults if fault.kind == "chain"] == [
        "the message is gone, and nothing says that it was erased"
    ]


def test_message_that_came_back_is_unerased(path: Path) -> None:
    before = segment_of(path).read_bytes()
    erase_in(path, 2)
    after = segment_of(path).read_bytes()
    segment_of(path).write_bytes(before + after[len(before) :])
    report = checked(path)
    assert report.verdicts["chain"]["unerased"] == 1
    assert report.verdicts["chain"]["erased"] == 0


def test_delete_that_was_cut_off_leaves_a_message_that_is_tampered(path: Path) -> None:
    erase_in(path, 2)
    content = segment_of(path).read_bytes()
    segment_of(path).write_bytes(content[: content.index(b"DELETE /b/")])
    report = checked(path)
    assert report.verdicts["chain"]["tampered"] == 1
    assert report.verdicts["completeness"]["incomplete"] == 1  # the index knew of the DELETE


def test_delete_that_names_another_message_does_not_count(path: Path) -> None:
    erasure = make_it_look_erased(path, 2)
    append_delete_by_hand(path, erasure._replace(seq=3))
    report = checked(path)
    assert report.verdicts["chain"]["tampered"] == 1
    assert report.verdicts["chain"]["unerased"] == 1


@pytest.mark.parametrize("part", ["id", "commitment"])
def test_delete_with_another_id_or_commitment_does_not_count(path: Path, part: str) -> None:
    seq, record_id, commitment = make_it_look_erased(path, 2)
    other = b"0" * 64
    said = Erasure(seq, other, commitment) if part == "id" else Erasure(seq, record_id, other)
    append_delete_by_hand(path, said)
    report = checked(path)
    assert report.verdicts["chain"]["tampered"] == 1
    assert report.verdicts["chain"]["erased"] == 0


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (rb"x-hbuf-gone: (.)", lambda found: b"x-hbuf-gone: " + (b"A" if found[1] != b"A" else b"B")),
        (rb"\0\0\0\0", b"\0boo"),
        (rb"x: -{20}", b"x: ------was-here------"),
        (rb"x: -", b"y: -"),
        (rb"x: --", b"x-a: "),
        (rb"x-hbuf-gone: ", b"x-hbuf-salt: "),
        (rb"x-hbuf-reason: a", b"x-hbuf-reason: A"),
        (rb"x-hbuf-by: m", b"x-hbuf-by: M"),
    ],
    ids=["commitment", "body", "filler", "filler's name", "no filler", "salt again", "reason", "by"],
)
def test_any_change_to_an_erased_message_or_its_delete_is_tampered(
    path: Path, pattern: bytes, replacement: bytes | Callable[[re.Match[bytes]], bytes]
) -> None:
    erase_in(path, 2)
    assert verify(str(path), jobs=1).ok
    change(path, pattern, replacement)
    report = checked(path)
    assert report.fault_count("bytes") + report.fault_count("chain") > 0


def test_unsigned_delete_does_not_count_in_a_signed_buffer(signed_path: Path) -> None:
    append_delete_by_hand(signed_path, make_it_look_erased(signed_path, 2))
    report = checked(signed_path)
    assert report.fault_count("signatures") == 1


def test_writer_does_not_sign_over_a_delete_that_was_slipped_in(signed_path: Path, ram_path: Path) -> None:
    erasure = make_it_look_erased(signed_path, 2)
    append_delete_by_hand(signed_path, erasure)
    append_to(signed_path, b"one more", key=ram_path / KEY)
    kept = [file.read_bytes() for file in (signed_path / "quarantine").iterdir()]
    assert [b"x-hbuf-by: mallory@here" in content for content in kept] == [True]
    assert [fault.reason for fault in checked(signed_path).faults if fault.kind == "chain"] == [
        "the message is gone, and nothing says that it was erased"
    ]


def test_forged_file_erasing_erases_nothing_in_a_signed_buffer(signed_path: Path, ram_path: Path) -> None:
    before = segment_of(signed_path).read_bytes()
    (signed_path / "erasing").write_bytes(b"1-6\n")
    append_to(signed_path, b"one more", key=ram_path / KEY)
    assert segment_of(signed_path).read_bytes().startswith(before)
    assert verify(str(signed_path), jobs=1).ok


def test_message_behind_one_that_was_changed_is_not_erased_over(path: Path) -> None:
    """Its own bytes are right, but the chain before it is not: the commitment could not be shown to be right."""
    change(path, rb"host: hbuf\r\nx-hbuf-seq: 2", b"host: HBUF\r\nx-hbuf-seq: 2")
    with pytest.raises(Damaged):
        erase_in(path, 3)
