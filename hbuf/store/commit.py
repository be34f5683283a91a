"""Putting bytes at the end of a segment: on disk first, listed after, or cut back as if nothing had been."""

from __future__ import annotations

import os

from hbuf.errors import Damaged
from hbuf.format import index, names
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import SYNC_EVERY
from hbuf.store.tail import Tail


def write_records(tail: Tail, data: bytes, entries: bytes) -> None:
    """The records are in the cache. `sync_and_list` puts them on disk and shows them."""
    fsops.write_all_at(tail.segment_fd, data, tail.length)
    tail.length += len(data)
    tail.unlisted.append(entries)


def sync_and_list(tail: Tail) -> None:
    """Segment to disk, then the entries, then the durable length: readers never see what is not on disk."""
    if tail.durable == tail.length:
        return
    fsops.sync_data(tail.segment_fd)
    entries = b"".join(tail.unlisted)
    fsops.write_all_at(tail.index_fd, entries, index.HEADER_BYTES + tail.listed * index.ENTRY_BYTES)
    listed = tail.listed + len(entries) // index.ENTRY_BYTES
    if listed // SYNC_EVERY > tail.listed // SYNC_EVERY:
        fsops.sync_data(tail.index_fd)
    fsops.write_all_at(tail.index_fd, index.LENGTH.pack(tail.length), index.DURABLE_LENGTH_AT)
    tail.listed = listed
    tail.unlisted.clear()
    tail.durable = tail.length


def cut_back(tail: Tail, length: int) -> None:
    """Takes back what was written behind `length`, on disk too. Raises where even that fails."""
    fsops.write_all_at(tail.index_fd, index.LENGTH.pack(tail.durable), index.DURABLE_LENGTH_AT)
    fsops.truncate(tail.index_fd, index.HEADER_BYTES + tail.listed * index.ENTRY_BYTES)
    fsops.truncate(tail.segment_fd, length)
    fsops.sync_data(tail.segment_fd)


def create_segment(directory: BufferDirectory, first: int, put: bytes, put_id: bytes) -> None:
    """A new segment with its index, on disk, under names that appear when both are whole."""
    if directory.has_segment(first):
        raise Damaged(f"{directory.segment_shown(first)}: is there already, where a new segment was to be opened")
    header = index.encode_header(index.Header(first, len(put), 0, bytes.fromhex(put_id.decode())))
    for temporary, data in ((names.NEW_SEGMENT, put), (names.NEW_INDEX, header)):
        fd = fsops.create_file(directory.segments / temporary)
        try:
            fsops.write_all_at(fd, data, 0)
            fsops.sync_data(fd)
        finally:
            os.close(fd)
    # The index first: a segment is never seen without it.
    fsops.rename(directory.segments / names.NEW_INDEX, directory.index(first))
    fsops.rename(directory.segments / names.NEW_SEGMENT, directory.segment(first))
    fsops.sync_directory(directory.segments)
