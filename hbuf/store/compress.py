"""Compressing sealed segments, and changing bytes of a compressed one.

The new file is whole, on disk and read back before the old one goes. It is built without the buffer's lock, under a
name that is nobody's segment, and held by a lock of its own: one that nobody holds was left by a crash. All that can
change a sealed segment meanwhile is erasing, and the index counts that.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from hbuf.errors import Damaged, HbufError, Locked, StorageFailed
from hbuf.format import names
from hbuf.format.seekable import FRAME_BYTES, encode_table
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.gate import Gate
from hbuf.store.index_file import read_index_header
from hbuf.store.segment_file import CompressedSegment, PlainSegment, open_compressed
from hbuf.store.tail import read_opening
from hbuf.store.whole import scan_whole

DEFAULT_LEVEL = 3
_WINDOW_LOG = FRAME_BYTES.bit_length() - 1  # so that a frame is one piece, whatever the level
_POLL_SECONDS = 0.02


def compress_segment(
    directory: BufferDirectory, first: int, gate: Gate, *, level: int = DEFAULT_LEVEL, timeout_seconds: float
) -> bool:
    """Replaces a plain segment by a compressed one. False where it is the newest, or is compressed already.

    Raises Damaged for a segment that is not whole, which stays as it is. `gate` is not held when this is called.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        with _entered(gate, timeout_seconds):
            if first == directory.segment_firsts()[-1] or not directory.segment(first).exists():
                return False
            before = _state(directory, first)
            fd = _create(directory, first)
        if fd is None:
            if time.monotonic() >= deadline:
                raise Locked(f"{directory.segment_shown(first)}: is being compressed by another process")
            time.sleep(_POLL_SECONDS)
            continue
        with _held(directory, first, fd) as path:
            failure = _build(directory, first, fd, level, lambda: _wait_while_paused(directory, gate, timeout_seconds))
            with _entered(gate, timeout_seconds):
                if _state(directory, first) != before:
                    continue
                if failure is not None:
                    raise failure
                fsops.rename(path, directory.compressed(first))
                fsops.sync_directory(directory.segments)
                fsops.unlink(directory.segment(first))
                fsops.sync_directory(directory.segments)
                return True


def replace_ranges(directory: BufferDirectory, first: int, patches: Sequence[tuple[int, bytes]]) -> None:
    """Puts other bytes at the given offsets of a compressed segment, on disk: all of them, or none after a crash.

    Only the frames that are touched are made anew. The caller holds the buffer's lock. Readers that have the segment
    open go on with what it was: they have to open it again.
    """
    fd = _create(directory, first)
    if fd is None:
        raise Locked(f"{directory.segment_shown(first)}: is being compressed by another process")
    with _held(directory, first, fd) as path, contextlib.closing(open_compressed(directory, first)) as old:
        contents = _patched(old, patches)
        encode = _encoder(DEFAULT_LEVEL)
        stored = (
            (encode(contents[place]) if place in contents else old.read_frame(frame), frame.length)
            for place, frame in enumerate(old.frames)
        )
        _write_frames(fd, stored)
        with contextlib.closing(CompressedSegment(os.dup(fd))) as new:
            for place, (was, frame) in enumerate(zip(old.frames, new.frames, strict=True)):
                right = (
                    new.pread(frame.length, frame.start) == contents[place]
                    if place in contents
                    else new.read_frame(frame) == old.read_frame(was)
                )
                if not right or new.table_fault:
                    raise _read_back_otherwise(directory, first)
        fsops.rename(path, directory.compressed(first))
        fsops.sync_directory(directory.segments)


def remove_abandoned(directory: BufferDirectory) -> None:
    """Removes files that were being built when a process died. Under the buffer's lock.

    A compressed segment beside a plain one is not touched: should the plain one be damaged, it is all that is left.
    """
    files = [directory.segments / file for file in os.listdir(directory.segments) if names.is_new_compressed(file)]
    found = [path for path in files if not _is_held(path)]
    for path in found:
        fsops.unlink(path)
    if found:
        fsops.sync_directory(directory.segments)


def _state(directory: BufferDirectory, first: int) -> tuple[int | None, int, int]:
    """What is another after any change to a sealed segment."""
    header = read_index_header(directory.index(first))
    there = os.stat(directory.segment(first))
    return header.erase_counter if header else None, there.st_mtime_ns, there.st_ino


def _build(
    directory: BufferDirectory, first: int, fd: int, level: int, before_write: Callable[[], None]
) -> HbufError | None:
    """Writes the compressed segment, syncs it, and compares it with its source.

    Returns what is wrong with the one or the other, which may be that the source was being changed.
    """
    where = directory.segment(first).name
    source = PlainSegment(os.open(directory.segment(first), os.O_RDONLY | os.O_CLOEXEC))
    with contextlib.closing(source):
        length = source.length
        try:
            found = scan_whole(source, read_opening(source, where), length)
        except Damaged as error:
            return error
        listed = read_index_header(directory.index(first))
        if found.end < length or (listed and listed.durable_length > length):
            return Damaged(f"{where}: damaged at byte {found.end}; it is left as it is")
        encode = _encoder(level)
        contents = (source.pread(FRAME_BYTES, at) for at in range(0, length, FRAME_BYTES))
        _write_frames(fd, ((encode(content), len(content)) for content in contents), before_write)
        with contextlib.closing(CompressedSegment(os.dup(fd))) as new:
            ats = range(0, length, FRAME_BYTES)
            same = all(new.pread(FRAME_BYTES, at) == source.pread(FRAME_BYTES, at) for at in ats)
            if new.table_fault or new.length != length or not same:
                return _read_back_otherwise(directory, first)
    return None


def _patched(old: CompressedSegment, patches: Sequence[tuple[int, bytes]]) -> dict[int, bytearray]:
    """The contents of the frames that patches touch, by their place, with the patches."""
    contents: dict[int, bytearray] = {}
    for offset, data in patches:
        if offset < 0 or offset + len(data) > old.length:
            raise ValueError(f"byte {offset} to {offset + len(data)} are not in the segment")
        at, end = offset, offset + len(data)
        while at < end:
            place = old.place_of(at)
            frame = old.frames[place]
            if place not in contents:
                contents[place] = bytearray(old.pread(frame.length, frame.start))
            hole = old.hole(at)
            if hole is not None:
                raise Damaged(hole.reason)
            until = min(end, frame.end)
            contents[place][at - frame.start : until - frame.start] = data[at - offset : until - offset]
            at = until
    return contents


def _encoder(level: int) -> Callable[[bytes | bytearray], bytes]:
    import zstandard

    parameters = zstandard.ZstdCompressionParameters.from_level(
        level, source_size=FRAME_BYTES, window_log=_WINDOW_LOG, write_checksum=1, write_content_size=1
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress


def _write_frames(
    fd: int, frames: Iterable[tuple[bytes, int]], before_write: Callable[[], None] = lambda: None
) -> None:
    """Frames, each with the number of bytes it holds, and their table are on disk."""
    sizes = []
    at = 0
    for frame, length in frames:
        before_write()
        fsops.write_all_at(fd, frame, at)
        sizes.append((len(frame), length))
        at += len(frame)
    fsops.write_all_at(fd, encode_table(sizes), at)
    fsops.sync_data(fd)


def _create(directory: BufferDirectory, first: int) -> int | None:
    """A new file to build segment `first` in, held; None while another process holds it. Under the buffer's lock."""
    path = directory.segments / names.new_compressed(first)
    if _is_held(path):
        return None
    fd = fsops.create_file(path)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


@contextlib.contextmanager
def _held(directory: BufferDirectory, first: int, fd: int) -> Iterator[Path]:
    """The name of a file that is being built. What did not get another name is removed, but not during a pause."""
    path = directory.segments / names.new_compressed(first)
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(path), os.fstat(fd)) and not directory.paused.exists():
                fsops.unlink(path)
        os.close(fd)


def _is_held(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@contextlib.contextmanager
def _entered(gate: Gate, timeout_seconds: float) -> Iterator[None]:
    gate.enter(timeout_seconds, even_closed=True)
    try:
        yield
    finally:
        gate.leave()


def _wait_while_paused(directory: BufferDirectory, gate: Gate, timeout_seconds: float) -> None:
    """What is being built holds still for a backup, too."""
    if directory.paused.exists():
        with _entered(gate, timeout_seconds):
            pass


def _read_back_otherwise(directory: BufferDirectory, first: int) -> StorageFailed:
    return StorageFailed(f"{directory.segment_shown(first)}: compressed, it reads back otherwise; it is left as it is")
