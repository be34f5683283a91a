"""The table behind compressed frames, and the frames themselves: exactly as they must be, or damaged."""

import struct

import pytest
import zstandard

from hbuf.errors import Damaged
from hbuf.format.seekable import (
    FOOTER_BYTES,
    LARGEST_FRAME_BYTES,
    Frame,
    content_bytes,
    encode_table,
    parse_footer,
    parse_table,
    walk_frames,
)

CONTENTS = [b"first " * 2000, b"abcdef" * 2000, bytes(range(250)) * 48, b"the last of them, and a short one"]
COMPRESSOR = zstandard.ZstdCompressor(level=3, write_checksum=True, write_content_size=True)
FRAMES = [COMPRESSOR.compress(content) for content in CONTENTS]
SIZES = [(len(frame), len(content)) for frame, content in zip(FRAMES, CONTENTS, strict=True)]
TABLE = encode_table(SIZES)
FILE = b"".join(FRAMES) + TABLE


def test_table_has_the_documented_layout() -> None:
    entries = b"".join(struct.pack("<II", *sizes) for sizes in SIZES)
    footer = struct.pack("<I", len(SIZES)) + b"\0" + bytes.fromhex("b1ea928f")
    assert bytes.fromhex("5e2a4d18") + struct.pack("<I", len(entries) + 9) + entries + footer == TABLE


def test_table_is_read_as_it_was_written() -> None:
    assert parse_footer(TABLE[-FOOTER_BYTES:]) == len(TABLE)
    frames = parse_table(TABLE, len(FILE))
    assert [(frame.size, frame.length) for frame in frames] == SIZES
    assert [FILE[frame.at : frame.at + frame.size] for frame in frames] == FRAMES
    assert [b"".join(CONTENTS)[frame.start : frame.end] for frame in frames] == CONTENTS


@pytest.mark.parametrize("at", range(len(TABLE)))
def test_every_flipped_bit_of_the_table_is_noticed_but_in_what_the_last_frame_holds(at: int) -> None:
    """That is compared with the frame itself."""
    tells_last_length = len(TABLE) - FOOTER_BYTES - 4 <= at < len(TABLE) - FOOTER_BYTES
    for bit in range(8):
        flipped = bytearray(TABLE)
        flipped[at] ^= 1 << bit
        try:
            found = parse_table(bytes(flipped), len(FILE))
        except Damaged:
            continue
        assert tells_last_length
        assert [frame.length for frame in found[:-1]] == [length for _, length in SIZES[:-1]]


@pytest.mark.parametrize("file_bytes", [len(FILE) - 1, len(FILE) + 1])
def test_byte_more_or_less_than_frames_and_table_is_noticed(file_bytes: int) -> None:
    with pytest.raises(Damaged, match="other frames than the file has"):
        parse_table(TABLE, file_bytes)


@pytest.mark.parametrize("sizes", [[], [(0, 5)], [(5, 0)], [(5, LARGEST_FRAME_BYTES + 1)]])
def test_table_of_frames_that_cannot_be_is_refused(sizes: list[tuple[int, int]]) -> None:
    table = encode_table(sizes)
    with pytest.raises(Damaged, match="of a size that cannot be"):
        parse_table(table, len(table) + sum(size for size, _ in sizes))


@pytest.mark.parametrize("data", [b"", TABLE[-8:], b"x" * FOOTER_BYTES])
def test_file_that_does_not_end_in_a_footer_has_no_table(data: bytes) -> None:
    with pytest.raises(Damaged, match="the seek table"):
        parse_footer(data[-FOOTER_BYTES:])


@pytest.mark.parametrize("length", [1, 255, 256, 65_791, 65_792, 1024 * 1024])
def test_header_tells_how_much_a_frame_holds(length: int) -> None:
    assert content_bytes(COMPRESSOR.compress(b"\1" * length).ljust(14, b"\0")) == length


@pytest.mark.parametrize(
    "frame",
    [
        zstandard.ZstdCompressor(write_checksum=False).compress(b"x" * 500),
        zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(b"x" * 500),
        struct.pack("<II", 0x184D2A50, 20) + b"x" * 20,
        b"",
        FRAMES[0][:4],
        COMPRESSOR.compress(b"x" * (LARGEST_FRAME_BYTES + 1)),
    ],
    ids=["no checksum", "no size", "skippable", "empty", "cut", "too large"],
)
def test_frame_that_is_not_written_here_is_refused(frame: bytes) -> None:
    with pytest.raises(Damaged):
        content_bytes(frame)


def test_every_flipped_bit_of_a_header_is_noticed_or_gives_another_size() -> None:
    frame = FRAMES[1]
    for bit in range(7 * 8):  # magic, descriptor, a size of two bytes
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert content_bytes(bytes(flipped)) != len(CONTENTS[1])
        except Damaged:
            continue


def test_frames_are_found_without_a_table() -> None:
    expected = parse_table(TABLE, len(FILE))
    assert walk_frames(FILE) == expected
    assert walk_frames(FILE[: -len(TABLE)]) == expected


@pytest.mark.parametrize("cut", [1, 3, len(FRAMES[-1]) + 1, len(FRAMES[-1]) + 100])
def test_frame_that_is_cut_short_is_the_last_and_takes_the_rest(cut: int) -> None:
    data = FILE[: -len(TABLE)][:-cut]
    *whole, last = walk_frames(data)
    assert whole == parse_table(TABLE, len(FILE))[: len(whole)]
    assert last.at + last.size == len(data)
    assert len(whole) == (3 if cut < len(FRAMES[-1]) else 2)


@pytest.mark.parametrize("data", [b"", b"POST /b/orders HTTP/1.1\r\n", TABLE])
def test_no_frames_are_found_where_there_are_none(data: bytes) -> None:
    assert walk_frames(data) == []


def test_incompressible_and_repeated_contents_are_walked_over() -> None:
    """Their blocks are stored as they are, and as runs."""
    contents = [bytes(300_000), struct.pack("<100000d", *(1 / (n + 1) for n in range(100_000)))]
    frames = [COMPRESSOR.compress(content) for content in contents]
    assert walk_frames(b"".join(frames)) == [
        Frame(0, len(frames[0]), 0, 300_000),
        Frame(len(frames[0]), len(frames[1]), 300_000, 800_000),
    ]
