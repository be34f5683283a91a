"""Listing buffers: one, or all in a tree, with numbers, sizes, times and state."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hbuf.errors import Damaged, HbufError, NotFound, Unavailable
from hbuf.format.times import encode_time, parse_time
from hbuf.remote.buffer import RemoteBuffer
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors, translated
from hbuf.store.markers import read_marker
from hbuf.store.reader import Reader
from hbuf.store.segment_file import opened_segment


@dataclass(frozen=True, slots=True)
class Listing:
    shown: str  # the path as it was asked for
    path: str
    tenant: str
    name: str
    first: int
    last: int  # first - 1 where there is no message
    messages: int
    bytes: int
    segments: int
    oldest_us: int | None
    newest_us: int | None
    state: str  # open, paused, closed, damaged
    stale_pause: bool  # a pause that was left behind, and does not hold


def listing_values(listing: Listing) -> dict[str, Any]:
    """A listing as JSON says it."""
    return {
        "path": listing.path,
        "tenant": listing.tenant,
        "buffer": listing.name,
        "first": listing.first,
        "last": listing.last,
        "messages": listing.messages,
        "bytes": listing.bytes,
        "segments": listing.segments,
        "oldest": None if listing.oldest_us is None else encode_time(listing.oldest_us),
        "newest": None if listing.newest_us is None else encode_time(listing.newest_us),
        "state": listing.state,
        "stale_pause": listing.stale_pause,
    }


def find_listings(path: str | RemoteBuffer, notice: Callable[[HbufError], None]) -> Iterator[Listing]:
    """The buffer at `path`, or all buffers below it, by name. `notice` is told of what cannot be looked into."""
    if isinstance(path, RemoteBuffer):
        from hbuf.remote.listing import find_remote

        for shown, values in find_remote(path):
            yield _listing_of(shown, values)
        return
    for directory in find_buffers(path, notice):
        yield list_buffer(directory)


def _listing_of(shown: str, values: Mapping[str, Any]) -> Listing:
    """What a server says of a buffer."""
    try:
        oldest, newest = ((parse_time(values[name]) if values[name] else None) for name in ("oldest", "newest"))
        first, last, messages, size, segments = (
            int(values[name]) for name in ("first", "last", "messages", "bytes", "segments")
        )
        tenant, name, state = (str(values[name]) for name in ("tenant", "buffer", "state"))
    except (KeyError, TypeError, ValueError):
        raise Unavailable(f"{shown}: what the server says of it cannot be read") from None
    stale = values.get("stale_pause") is True
    return Listing(shown, shown, tenant, name, first, last, messages, size, segments, oldest, newest, state, stale)


def find_buffers(path: str, notice: Callable[[HbufError], None]) -> Iterator[BufferDirectory]:
    """The directories of these."""
    directory = BufferDirectory(path)
    if directory.exists():
        yield directory
        return
    if not directory.path.is_dir():
        raise NotFound(f"{path}: there is no such buffer")

    def unreadable(error: OSError) -> None:
        notice(translated(error, path))

    for above, folders, _ in os.walk(path, onerror=unreadable):
        folders.sort()
        for folder in list(folders):
            found = BufferDirectory(os.path.normpath(os.path.join(above, folder)))
            try:
                if found.exists():
                    folders.remove(folder)
                    yield found
            except HbufError as error:
                folders.remove(folder)
                notice(error)


def list_buffer(directory: BufferDirectory) -> Listing:
    with os_errors(directory.shown):
        while True:
            before = directory.segment_firsts()
            try:
                return _list_buffer(directory)
            except FileNotFoundError:
                if directory.segment_firsts() == before:
                    raise  # otherwise a segment was retired meanwhile


def _bytes_on_disk(directory: BufferDirectory, first: int) -> int:
    with opened_segment(directory, first) as segment:
        return os.fstat(segment.fd).st_size


def _list_buffer(directory: BufferDirectory) -> Listing:
    state = "open"
    pause = read_marker(directory.paused)
    if pause is not None and not pause.stale:
        state = "paused"
    elif read_marker(directory.closed) is not None:
        state = "closed"
    firsts = directory.segment_firsts()
    size = sum(_bytes_on_disk(directory, first) for first in firsts)
    first, last, oldest, newest = firsts[0], firsts[-1] - 1, None, None
    try:
        with Reader(directory) as reader:
            last = reader.end_seq - 1
            oldest = reader.time_of(first) if last >= first else None
            newest = reader.time_of(last) if last >= first else None
            if reader.damage:
                state = "damaged"
    except Damaged:
        state = "damaged"
    return Listing(
        directory.shown,
        str(directory.path),
        directory.tenant,
        directory.name,
        first,
        last,
        last - first + 1,
        size,
        len(firsts),
        oldest,
        newest,
        state,
        pause is not None and pause.stale,
    )
