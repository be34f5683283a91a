"""Damage to a compressed segment: it is named, and every message that has no byte in it stays readable."""

import struct
from collections.abc import Callable

import pytest

import hbuf
from hbuf.errors import Damaged
from hbuf.format.seekable import encode_table
from hbuf.ops.filter import Filter, compile_pattern
from hbuf.ops.head import head
from hbuf.ops.ls import list_buffer
from hbuf.ops.reindex import reindex
from hbuf.ops.tail import messages
from hbuf.store.reader import Reader
from hbuf.store.segment_file import decode_frame

from .checking import append_to, read_all, stored_of
from .compressed_buffer import BODIES, FURTHER_SEQ, CompressedBuffer

# Where in a frame a bit is flipped: the magic, the header, the first block's header, the middle, the checksum.
CLASSES: dict[str, Callable[[int], int]] = {
    "magic": lambda size: 0,
    "descriptor": lambda size: 4,
    "content size": lambda size: 5,
    "block header": lambda size: 8,
    "block": lambda size: size // 2,
    "checksum": lambda size: size - 1,
}


@pytest.mark.parametrize("place", [1, 4, -1])
@pytest.mark.parametrize("part", CLASSES)
def test_damaged_frame_is_named_and_what_has_no_byte_in_it_is_read(
    compressed: CompressedBuffer, part: str, place: int
) -> None:
    frame = compressed.frames()[place]
    compressed.change(frame.at + CLASSES[part](frame.size))
    [fault, *_] = [fault for fault in compressed.faults() if fault.kind == "bytes"]
    assert fault.file == compressed.file.name
    assert f"the frame at byte {frame.at} of the compressed file " in fault.reason
    assert fault.at <= frame.start or fault.at < frame.end
    left = compressed.without([frame])
    assert 0 < len(left) < FURTHER_SEQ
    assert stored_of(read_all(compressed.path)) == left
    with pytest.raises(Damaged, match=compressed.file.name):
        list(hbuf.open(compressed.path).read("first"))


@pytest.mark.parametrize("place", [0, 2, 7, -2])
def test_without_an_index_too_what_is_not_damaged_is_read(compressed: CompressedBuffer, place: int) -> None:
    frame = compressed.frames()[place]
    left = compressed.without([frame])
    compressed.change(frame.at + 20)
    compressed.directory.index(1).unlink()
    assert stored_of(read_all(compressed.path)) == left


def test_frames_next_to_each_other_and_apart_are_stepped_over(compressed: CompressedBuffer) -> None:
    frames = [compressed.frames()[place] for place in (0, 3, 4, 8)]
    left = compressed.without(frames)
    for frame in frames:
        compressed.change(frame.at + 20)
    assert stored_of(read_all(compressed.path)) == left
    with Reader(compressed.directory) as reader:
        lost = {stored.seq for stored in compressed.stored} - {stored.seq for stored in left}
        for seq in range(1, FURTHER_SEQ + 1):
            assert [message.seq for message in messages(reader, seq, seq + 1)] == ([] if seq in lost else [seq])
        assert reader.damage


def test_message_with_a_damaged_frame_inside_its_body_is_not_shown(compressed: CompressedBuffer) -> None:
    """Its head and its end are whole: only the frame tells."""
    start = compressed.plain.index(BODIES[40])
    frame = next(frame for frame in compressed.frames() if frame.start > start)
    assert frame.end < start + len(BODIES[40])
    compressed.change(frame.at + 20)
    assert [stored.seq for stored in compressed.without([frame])] == [*range(1, 41), *range(42, FURTHER_SEQ + 1)]
    assert stored_of(read_all(compressed.path)) == compressed.without([frame])


def test_search_says_that_it_could_not_look_everywhere(compressed: CompressedBuffer) -> None:
    frame = compressed.frames()[4]
    compressed.change(frame.at + 20)
    with Reader(compressed.directory) as reader:
        wanted = Filter(pattern=compile_pattern("no such text"))
        assert list(messages(reader, 1, FURTHER_SEQ + 1, wanted)) == []
        assert reader.damage


def test_writer_and_listing_go_on_beside_a_damaged_frame(compressed: CompressedBuffer) -> None:
    frame = compressed.frames()[0]
    compressed.change(frame.at + 20)
    append_to(compressed.path, b"further")
    assert list_buffer(compressed.directory).last == FURTHER_SEQ + 1
    assert list_buffer(compressed.directory).state == "damaged"


def flipped_table_bytes(size: int) -> list[int]:
    """Of a table of `size` bytes, from the file's end: its start, its first and last entries, its footer."""
    return [*range(1, 9 + 16 + 1), *range(size - 8 - 16 + 1, size + 1)]


def test_every_flipped_byte_of_the_table_is_named_and_all_is_read(compressed: CompressedBuffer) -> None:
    whole = compressed.file.read_bytes()
    size = len(encode_table([(0, 0)] * len(compressed.frames())))
    for back in flipped_table_bytes(size):
        compressed.change(len(whole) - back, back % 8)
        faults = [fault for fault in compressed.faults() if fault.kind == "bytes"]
        assert faults, f"{back} bytes from the end"
        assert faults[0].file == compressed.file.name
        assert "seek table" in faults[0].reason
        assert stored_of(read_all(compressed.path)) == compressed.stored
        compressed.file.write_bytes(whole)


def test_damaged_table_is_made_anew(compressed: CompressedBuffer) -> None:
    whole = compressed.file.read_bytes()
    compressed.file.write_bytes(whole[:-5])
    assert compressed.faults()
    assert reindex(str(compressed.path), timeout_seconds=20)
    assert compressed.file.read_bytes() == whole
    assert not compressed.faults()


def test_table_is_not_made_anew_for_damaged_frames(compressed: CompressedBuffer) -> None:
    compressed.change(compressed.frames()[3].at + 20)
    damaged = compressed.file.read_bytes()[:-5]
    compressed.file.write_bytes(damaged)
    assert not reindex(str(compressed.path), timeout_seconds=20)
    assert compressed.file.read_bytes() == damaged


SKIPPABLE = struct.pack("<II", 0x184D2A50, 5) + b"12345"


@pytest.mark.parametrize("where", ["before", "between", "before the table", "behind"])
@pytest.mark.parametrize("extra", [b"\0", SKIPPABLE], ids=["a byte", "a frame"])
def test_bytes_that_belong_to_nothing_are_named(compressed: CompressedBuffer, where: str, extra: bytes) -> None:
    frames = compressed.frames()
    at = {"before": 0, "between": frames[3].at, "before the table": frames[-1].at + frames[-1].size}
    whole = compressed.file.read_bytes()
    cut = at.get(where, len(whole))
    compressed.file.write_bytes(whole[:cut] + extra + whole[cut:])
    assert next(fault.file for fault in compressed.faults() if fault.kind == "bytes") == compressed.file.name


@pytest.mark.parametrize("place", [0, 3])
def test_frame_that_hides_in_the_size_of_another_is_named(compressed: CompressedBuffer, place: int) -> None:
    """The table tells of it, so that all fits together: but a frame is exactly one."""
    frames, whole = compressed.frames(), compressed.file.read_bytes()
    end = frames[place].at + frames[place].size
    sizes = [(frame.size + len(SKIPPABLE) * (i == place), frame.length) for i, frame in enumerate(frames)]
    body = whole[: frames[-1].at + frames[-1].size]
    compressed.file.write_bytes(body[:end] + SKIPPABLE + body[end:] + encode_table(sizes))
    assert [fault for fault in compressed.faults() if "cannot be decoded" in fault.reason]


def test_file_that_was_cut_is_read_as_far_as_it_goes(compressed: CompressedBuffer) -> None:
    frames, whole = compressed.frames(), compressed.file.read_bytes()
    for place in (1, 5, len(frames) - 1):
        compressed.file.write_bytes(whole[: frames[place].at + frames[place].size // 2])
        kinds = {fault.kind for fault in compressed.faults()}
        assert "bytes" in kinds
        assert stored_of(read_all(compressed.path)) == compressed.without(frames[place:])
    compressed.file.write_bytes(b"")
    assert {fault.kind for fault in compressed.faults()} >= {"bytes"}
    assert stored_of(read_all(compressed.path)) == compressed.stored[-1:]


def test_content_of_a_frame_that_was_changed_whole_is_named(compressed: CompressedBuffer) -> None:
    """Whoever compresses other bytes has a right frame and a wrong chain."""
    from hbuf.store.compress import replace_ranges

    at = compressed.plain.index(b"body 7 ")
    replace_ranges(compressed.directory, 1, [(at, b"BODY 7 ")])
    assert [(fault.kind, fault.seq) for fault in compressed.faults()] == [("chain", 8)]


def test_every_flipped_bit_of_a_frame_is_noticed_or_changes_nothing(compressed: CompressedBuffer) -> None:
    frame = compressed.frames()[2]
    stored = compressed.file.read_bytes()[frame.at : frame.at + frame.size]
    content = compressed.plain[frame.start : frame.end]
    unnoticed = 0
    for bit in range(len(stored) * 8):
        flipped = bytearray(stored)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert decode_frame(bytes(flipped), frame.length) == content
            unnoticed += 1
        except Damaged:
            continue
    assert unnoticed < len(stored) * 8 // 50


def test_head_of_a_signed_buffer_is_not_asked_of_compressed_segments(compressed: CompressedBuffer) -> None:
    """The newest message is in a plain segment: all others may be damaged."""
    compressed.file.write_bytes(b"")
    with pytest.raises(hbuf.errors.NotAllowed, match="is not signed"):
        head(str(compressed.path))
