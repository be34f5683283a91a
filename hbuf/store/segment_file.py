"""A segment's bytes, wherever they are: in a plain file or in compressed frames. Offsets are those of the plain bytes.

It gives bytes and says where they are damaged; what they mean it does not know.
"""

from __future__ import annotations

import bisect
import contextlib
import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from hbuf.errors import Damaged
from hbuf.format.seekable import (
    FOOTER_BYTES,
    HEADER_BYTES,
    Frame,
    content_bytes,
    parse_footer,
    parse_table,
    walk_frames,
)
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import pread_all


class Hole(NamedTuple):
    """Bytes that cannot be had, up to `end`, and why."""

    end: int
    reason: str


class SegmentFile(Protocol):
    """What reading a segment needs."""

    @property
    def length(self) -> int: ...

    def pread(self, length: int, offset: int) -> bytes:
        """`length` bytes at `offset`, or fewer where the segment or what can be read of it ends."""

    def hole(self, offset: int) -> Hole | None:
        """What keeps `offset` from being read, or None where that is the segment's end or nothing."""


class PlainSegment:
    """A segment as it is written. The file stays the caller's to close."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @property
    def length(self) -> int:
        return os.fstat(self.fd).st_size

    def pread(self, length: int, offset: int) -> bytes:
        return pread_all(self.fd, length, offset)

    def hole(self, offset: int) -> Hole | None:
        return None

    def close(self) -> None:
        os.close(self.fd)


class CompressedSegment:
    """A sealed segment in Zstandard frames. Only the frames that are asked for are decoded."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.table_fault: str | None = None
        size = os.fstat(fd).st_size
        try:
            self.frames = _read_table(fd, size)
            if not self._agrees(self.frames[0]) or not self._agrees(self.frames[-1]):
                raise Damaged("the seek table names other sizes than its frames have")
        except Damaged as error:
            self.table_fault = error.message
            self.frames = walk_frames(pread_all(fd, size, 0))
        self.length = self.frames[-1].end if self.frames else 0
        self._starts = [frame.start for frame in self.frames]
        self._faults: dict[int, str] = {}  # of frames that cannot be decoded, by their place

    def pread(self, length: int, offset: int) -> bytes:
        parts = []
        end = min(offset + length, self.length)
        place = self.place_of(offset)
        while offset < end:
            content = self._content(place)
            if content is None:
                break
            start = self._starts[place]
            parts.append(content[offset - start : end - start])
            place += 1
            offset = start + len(content)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def hole(self, offset: int) -> Hole | None:
        place = self.place_of(offset)
        if offset >= self.length or self._content(place) is not None:
            return None
        frame = self.frames[place]
        return Hole(frame.end, f"the frame at byte {frame.at} of the compressed file {self._faults[place]}")

    def place_of(self, offset: int) -> int:
        """Which frame holds `offset`."""
        return bisect.bisect_right(self._starts, offset) - 1

    def read_frame(self, frame: Frame) -> bytes:
        """A frame as it is stored."""
        return pread_all(self.fd, frame.size, frame.at)

    def close(self) -> None:
        os.close(self.fd)
        for place in range(len(self.frames)):
            _recent.pop((self, place), None)

    def _agrees(self, frame: Frame) -> bool:
        """False where a frame is whole and holds another number of bytes than the table says."""
        try:
            length = content_bytes(pread_all(self.fd, HEADER_BYTES, frame.at))
            return length == frame.length or not decode_frame(self.read_frame(frame), length)
        except Damaged:
            return True  # it is the frame that is damaged

    def _content(self, place: int) -> bytes | None:
        """What a frame holds, or None where it cannot be decoded."""
        if place in self._faults:
            return None
        content = _recent.pop((self, place), None)
        if content is None:
            try:
                content = decode_frame(self.read_frame(self.frames[place]), self.frames[place].length)
            except Damaged as error:
                self._faults[place] = error.message
                return None
        _recent[self, place] = content
        while len(_recent) > _RECENT_FRAMES:
            with contextlib.suppress(KeyError):  # another thread took the last
                _recent.popitem(last=False)
        return content


# What was decoded last, of all segments together: a reader may have a thousand open.
_RECENT_FRAMES = 4
_recent: OrderedDict[tuple[CompressedSegment, int], bytes] = OrderedDict()


def decode_frame(data: bytes, length: int) -> bytes:
    """The content of one frame, `length` bytes. Raises Damaged where `data` is not exactly that."""
    import zstandard

    if content_bytes(data) != length:
        raise Damaged("holds another number of bytes than the seek table says")
    try:
        # Decoding compares the checksum too.
        return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError:
        raise Damaged("cannot be decoded") from None


def _read_table(fd: int, size: int) -> list[Frame]:
    table_bytes = parse_footer(pread_all(fd, FOOTER_BYTES, max(size - FOOTER_BYTES, 0)))
    return parse_table(pread_all(fd, min(table_bytes, size), max(size - table_bytes, 0)), size)


OpenSegment = PlainSegment | CompressedSegment


def open_segment(directory: BufferDirectory, first: int) -> OpenSegment:
    """A segment, open for reading: the plain file where it is there, else the compressed one.

    In this order: a segment that is compressed right now has its new file before it loses the old one.
    """
    try:
        return PlainSegment(os.open(directory.segment(first), os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError as missing:
        try:
            return open_compressed(directory, first)
        except FileNotFoundError:
            raise missing from None


def open_compressed(directory: BufferDirectory, first: int) -> CompressedSegment:
    fd = os.open(directory.compressed(first), os.O_RDONLY | os.O_CLOEXEC)
    try:
        return CompressedSegment(fd)
    except BaseException:
        os.close(fd)
        raise


@contextlib.contextmanager
def opened_segment(directory: BufferDirectory, first: int) -> Iterator[OpenSegment]:
    """A segment, open for reading."""
    segment = open_segment(directory, first)
    try:
        yield segment
    finally:
        segment.close()
