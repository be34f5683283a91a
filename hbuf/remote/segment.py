"""A segment that lies on a server, read as store.segment_file reads one that lies here: only what is asked for comes.

A compressed one comes whole, since its frames are found from its end.
"""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict
from typing import NamedTuple

from hbuf.errors import NotFound, Unavailable
from hbuf.format.names import COMPRESSED_SUFFIX, parse_segment_file
from hbuf.remote.connection import Connection
from hbuf.store.segment_file import CompressedSegment, Hole, SegmentFile

_BLOCK_BYTES = 64 * 1024
_BLOCKS = 64


class Listed(NamedTuple):
    """A file as the server lists it."""

    file: str
    bytes: int
    etag: str


def list_files(connection: Connection) -> list[Listed]:
    """The files of a buffer: its segments, ascending, and what there is beside them."""
    answer = connection.get("/segments").json()
    listed = answer.get("segments", answer.get("files"))
    if not isinstance(listed, list):
        raise Unavailable(f"{connection.location.shown}: the server's list of segments cannot be read")
    found = []
    for each in listed:
        if not isinstance(each, dict):
            raise Unavailable(f"{connection.location.shown}: the server's list of segments cannot be read")
        file, size, etag = each.get("file"), each.get("bytes"), each.get("etag")
        if not isinstance(file, str) or not isinstance(size, int) or size < 0 or not isinstance(etag, str):
            raise Unavailable(f"{connection.location.shown}: the server's list of segments cannot be read")
        found.append(Listed(file, size, etag))
    return found


class RemoteSegment:
    """A plain segment. The blocks that were read last are kept."""

    def __init__(self, connection: Connection, file: str, length: int) -> None:
        self.length = length
        self._connection = connection
        self._file = file
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def pread(self, length: int, offset: int) -> bytes:
        end = min(offset + length, self.length)
        parts = []
        while offset < end:
            place = offset // _BLOCK_BYTES
            content = self._block(place)
            start = offset - place * _BLOCK_BYTES
            part = content[start : start + end - offset]
            if not part:
                break
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def hole(self, offset: int) -> Hole | None:
        return None

    def close(self) -> None:
        self._blocks.clear()

    def _block(self, place: int) -> bytes:
        if place not in self._blocks:
            start = place * _BLOCK_BYTES
            last = min(start + _BLOCK_BYTES, self.length) - 1
            answer = self._connection.get(f"/segments/{self._file}", headers={"range": f"bytes={start}-{last}"})
            self._blocks[place] = answer.body if answer.status == 206 else answer.body[start : last + 1]
        self._blocks.move_to_end(place)
        while len(self._blocks) > _BLOCKS:
            self._blocks.popitem(last=False)
        return self._blocks[place]


OpenRemote = RemoteSegment | CompressedSegment


class RemoteSegments:
    """The segments of one buffer, opened as they are asked for."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._listed: dict[int, Listed] = {}
        self._open: dict[int, OpenRemote] = {}

    def firsts(self) -> list[int]:
        if not self._listed:
            self.refresh()
        return sorted(self._listed)

    def refresh(self) -> None:
        """Lists them anew: what is open of a file that is another now is let go."""
        before = self._listed
        found = ((parse_segment_file(listed.file), listed) for listed in list_files(self._connection))
        self._listed = {first: listed for first, listed in found if first is not None}
        for first in [first for first in self._open if self._listed.get(first) != before.get(first)]:
            self._open.pop(first).close()

    def file(self, first: int) -> str:
        self.firsts()
        return self._listed[first].file

    def segment(self, first: int) -> SegmentFile:
        if first not in self._open:
            self.firsts()
            try:
                self._open[first] = self._opened(first)
            except NotFound:  # compressed or retired meanwhile
                self.refresh()
                self._open[first] = self._opened(first)
        return self._open[first]

    def close(self) -> None:
        for segment in self._open.values():
            segment.close()
        self._open.clear()

    def _opened(self, first: int) -> OpenRemote:
        listed = self._listed.get(first)
        if listed is None:
            raise NotFound(f"{self._connection.location.shown}: segment {first} is not there any more")
        if not listed.file.endswith(COMPRESSED_SUFFIX):
            return RemoteSegment(self._connection, listed.file, listed.bytes)
        with tempfile.TemporaryFile() as file:
            self._connection.download(f"/segments/{listed.file}", file, lambda count: None)
            file.flush()
            return CompressedSegment(os.dup(file.fileno()))
