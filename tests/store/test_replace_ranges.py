"""Changing bytes of a compressed segment: the frames that are touched and no others, old or new after a crash."""

import fcntl
import itertools
import shutil
from pathlib import Path

import pytest

from hbuf.errors import Damaged, Locked
from hbuf.store.compress import replace_ranges
from hbuf.store.directory import BufferDirectory
from hbuf.store.segment_file import opened_segment

from .checking import Answers
from .compressed_buffer import BODIES, FRAME_BYTES, CompressedBuffer
from .dying import Moment, work_until

PATCHES = [(100, b"short"), (FRAME_BYTES * 3 - 2, b"over an edge"), (FRAME_BYTES * 5, b"#" * FRAME_BYTES * 2)]


def content(path: Path) -> bytes:
    with opened_segment(BufferDirectory(path), 1) as segment:
        return segment.pread(segment.length, 0)


def patched(plain: bytes) -> bytes:
    changed = bytearray(plain)
    for at, data in PATCHES:
        changed[at : at + len(data)] = data
    return bytes(changed)


def stored_frames(buffer: CompressedBuffer) -> list[bytes]:
    data = buffer.file.read_bytes()
    return [data[frame.at : frame.at + frame.size] for frame in buffer.frames()]


def test_bytes_are_replaced_and_other_frames_stay_as_they_are(compressed: CompressedBuffer) -> None:
    before = stored_frames(compressed)
    mode = compressed.file.stat().st_mode
    replace_ranges(compressed.directory, 1, PATCHES)
    assert content(compressed.path) == patched(compressed.plain)
    after = stored_frames(compressed)
    assert [place for place in range(len(before)) if before[place] != after[place]] == [0, 2, 3, 5, 6]
    assert len(after) == len(before)
    assert compressed.file.stat().st_mode == mode
    assert not list(compressed.path.glob("segments/.new*"))


def test_patches_of_the_same_bytes_are_applied_in_their_order(compressed: CompressedBuffer) -> None:
    replace_ranges(compressed.directory, 1, [(10, b"aaaa"), (12, b"bb"), (11, b"c")])
    assert content(compressed.path)[10:14] == b"acbb"


def test_last_byte_can_be_replaced_and_the_one_behind_it_cannot(compressed: CompressedBuffer) -> None:
    length = len(compressed.plain)
    replace_ranges(compressed.directory, 1, [(length - 1, b"!")])
    assert content(compressed.path) == compressed.plain[:-1] + b"!"
    for patch in ((length - 1, b"!!"), (length, b"!"), (-1, b"!")):
        with pytest.raises(ValueError, match="not in the segment"):
            replace_ranges(compressed.directory, 1, [patch])
    assert content(compressed.path) == compressed.plain[:-1] + b"!"
    assert not list(compressed.path.glob("segments/.new*"))


def test_frame_that_cannot_be_decoded_is_not_written_over(compressed: CompressedBuffer) -> None:
    compressed.change(compressed.frames()[3].at + 20)
    before = compressed.file.read_bytes()
    with pytest.raises(Damaged, match="cannot be decoded"):
        replace_ranges(compressed.directory, 1, PATCHES)
    assert compressed.file.read_bytes() == before
    # Elsewhere it can be: what is damaged stays as it was.
    frame = compressed.frames()[3]
    replace_ranges(compressed.directory, 1, PATCHES[:1])
    assert stored_frames(compressed)[3] == before[frame.at : frame.at + frame.size]


def test_plain_segment_is_not_for_this(compressed: CompressedBuffer) -> None:
    with pytest.raises(FileNotFoundError):
        replace_ranges(compressed.directory, len(BODIES) + 1, [(0, b"x")])
    assert not list(compressed.path.glob("segments/.new*"))


def test_what_another_process_is_building_is_left_alone(compressed: CompressedBuffer) -> None:
    building = compressed.path / "segments" / f".new-compressed-{1:020d}"
    building.write_bytes(b"half")
    with building.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Locked):
            replace_ranges(compressed.directory, 1, PATCHES)
    assert building.read_bytes() == b"half"
    replace_ranges(compressed.directory, 1, PATCHES)
    assert not building.exists()


def _replace(where: Path, answers: Answers) -> None:
    replace_ranges(BufferDirectory(where), 1, PATCHES)
    answers.note_done("replaced")


@pytest.mark.parametrize("moment", ["before", "in the middle of", "after"])
def test_killed_at_every_call_it_leaves_the_old_bytes_or_the_new(
    compressed: CompressedBuffer, ram_path: Path, moment: Moment
) -> None:
    seen = set()
    for point in itertools.count():
        where = ram_path / f"{moment} call {point}"
        shutil.copytree(compressed.path, where)
        outcome = work_until(_replace, where, point, moment)
        found = content(where)
        assert found in (compressed.plain, patched(compressed.plain))
        if "replaced" in outcome.answers.done:
            assert found == patched(compressed.plain)
        seen.add(found)
        replace_ranges(BufferDirectory(where), 1, PATCHES)
        assert content(where) == patched(compressed.plain)
        assert not list(where.glob("segments/.new*"))
        shutil.rmtree(where)
        if not outcome.died:
            break
    assert len(seen) == 2
    assert point > len(compressed.frames())
