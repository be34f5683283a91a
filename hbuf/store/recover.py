"""Opening the end of a buffer for appending, and putting right what a crash left there.

By a writer, under the lock, never while paused. Three rules:
- What lies beyond the durable length may be in the cache only: it is written again and synced before it counts.
- What follows the last whole, verified, complete record beyond the durable length is copied to quarantine/,
  synced, and only then cut.
- Damage below the durable length is never cut, and without an index neither is damage with a record behind it:
  the segment stays as it is, for hbuf-verify to name, and a new one is opened behind it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hbuf.errors import Damaged
from hbuf.format import index, names
from hbuf.format.scan import Record
from hbuf.format.times import parse_time
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import IndexFile, opened_index, pread_all, read_index_header
from hbuf.store.segment import record_at, windows
from hbuf.store.segment_file import PlainSegment
from hbuf.store.tail import Opening, Tail, index_header, read_opening
from hbuf.store.whole import found_by_index, found_by_put, is_of, scan_on

_COPY_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Stranded:
    """A newest segment that cannot be appended to. A new one goes behind it, with this number and id before."""

    opening: Opening
    next_seq: int
    prev: bytes
    last_time_us: int

    def follow(self, record: Record) -> None:
        self.prev = record.id
        self.last_time_us = max(self.last_time_us, parse_time(record.time.decode()))


def open_tail(
    directory: BufferDirectory, first: int, notice: Callable[[str], None], admit: Callable[[Opening], None]
) -> Tail | Stranded:
    """The newest segment, ready to be appended to. `notice` is told, a line each, what had to be put right.

    `admit` raises where the writer may not append: then nothing is put right either.
    """
    path = directory.segment(first)
    if not path.exists() and directory.compressed(first).exists():
        raise Damaged(
            f"{directory.segment_shown(first)}: the newest segment is never compressed: one is missing behind it",
            hint="restore it from a backup; to go on without it, unpack this one with zstd -d",
        )
    segment_fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        opening = read_opening(PlainSegment(segment_fd), directory.segment_shown(first))
        admit(opening)
        return _open_tail(directory, first, path, segment_fd, opening, notice)
    except BaseException:
        os.close(segment_fd)
        raise


def _open_tail(
    directory: BufferDirectory,
    first: int,
    path: Path,
    segment_fd: int,
    opening: Opening,
    notice: Callable[[str], None],
) -> Tail | Stranded:
    segment = PlainSegment(segment_fd)
    if opening.first != first:
        raise Damaged(
            f"{directory.segment_shown(first)}: byte 0: the segment says that its first number is {opening.first}"
        )
    length = segment.length
    header = read_index_header(directory.index(first))
    if header is not None and not is_of(header, opening):
        header = None
    durable = header.durable_length if header else 0
    with opened_index(directory.index(first), first) as index_file:
        found = found_by_index(segment, index_file, opening, length) if index_file else None
        listed = index_file.count if index_file and found else None
    found = found or found_by_put(opening)
    if found.end < length:
        scan_on(segment, found, opening, length)
    if found.end < durable or (header is None and found.record_behind):
        stranded = _strand(directory, first, segment, opening, length)
        notice(
            f"{path.name}: damaged at byte {found.end}; nothing was cut, and messages go on"
            f" from {stranded.next_seq} in a new segment"
        )
        os.close(segment_fd)
        return stranded
    if found.end > durable:
        write_again(segment_fd, durable, found.end)
    if found.end > durable or found.state.next_seq == first:
        # Who made it may have died before its name was on disk: nothing is built upon it, and no key dropped, before.
        fsops.sync_directory(directory.segments)
    if found.end < length:
        kept = _set_aside(directory, first, segment_fd, found.end, length)
        notice(f"{path.name}: {length - found.end} bytes of an unfinished append were set aside in {kept}")
    tail = Tail(
        first,
        segment_fd,
        -1,
        opening,
        found.state.prev,
        found.state.next_seq,
        found.last_time_us,
        found.end,
        found.end,
        found.state.next_seq - first,
    )
    tail.index_fd = _open_index(directory, tail, listed, b"".join(found.entries))
    return tail


def _strand(directory: BufferDirectory, first: int, segment: PlainSegment, opening: Opening, length: int) -> Stranded:
    """Where messages go on behind a damaged segment: past every number that it or its index knows."""
    stranded = Stranded(opening, first, opening.last_id, opening.last_time_us)
    start = opening.length
    with opened_index(directory.index(first), first) as listed:
        if listed and is_of(listed.header, opening) and index.joins(index.parse_entries(listed.entries()), start):
            # The index tells where records begin: what looks like one inside a damaged body is not believed.
            _strand_behind(stranded, listed, segment)
            start = listed.header.durable_length
    for window in windows(segment, start, length, stranded.next_seq - 1):
        for record in window.records:
            if record.seq >= stranded.next_seq:
                stranded.next_seq = record.seq + 1
                stranded.follow(record)
    # Where not one number is left: the damaged segment keeps its own.
    stranded.next_seq = max(stranded.next_seq, first + 1)
    return stranded


def _strand_behind(stranded: Stranded, listed: IndexFile, segment: PlainSegment) -> None:
    """Behind all that the index lists, following the last of it that can be read."""
    first = stranded.next_seq
    stranded.next_seq = first + listed.count
    for place in reversed(range(listed.count)):
        record = record_at(segment, listed.entry(place), first + place)
        if record is not None:
            stranded.follow(record)
            return


def write_again(segment_fd: int, start: int, end: int) -> None:
    """Puts bytes on disk that a killed process may have left in the cache only.

    After a sync that failed, the cache may hold them as clean: only writing them again makes them dirty.
    """
    at = start
    while at < end:
        data = pread_all(segment_fd, min(_COPY_BYTES, end - at), at)
        if not data:
            raise Damaged(f"the segment ends at byte {at}, while it is being recovered")
        fsops.write_all_at(segment_fd, data, at)
        at += len(data)
    fsops.sync_data(segment_fd)


def _set_aside(directory: BufferDirectory, first: int, segment_fd: int, start: int, end: int) -> str:
    """Copies bytes to quarantine/, on disk, and only then cuts them off the segment."""
    if not directory.quarantine.is_dir():
        fsops.make_directory(directory.quarantine)
        fsops.sync_directory(directory.path)
    kept = _free_name(directory.quarantine, f"{names.segment_stem(first)}-{start}")
    copy_fd = fsops.create_file(kept)
    try:
        at = start
        while at < end:
            data = pread_all(segment_fd, min(_COPY_BYTES, end - at), at)
            if not data:
                break
            fsops.write_all_at(copy_fd, data, at - start)
            at += len(data)
        fsops.sync_data(copy_fd)
    finally:
        os.close(copy_fd)
    fsops.sync_directory(directory.quarantine)
    fsops.truncate(segment_fd, start)
    fsops.sync_data(segment_fd)
    return f"{names.QUARANTINE}/{kept.name}"


def _free_name(folder: Path, stem: str) -> Path:
    """A name that no earlier quarantine has: nothing that was set aside is written over."""
    number = 0
    while (path := folder / f"{stem}{f'-{number}' if number else ''}.torn").exists():
        number += 1
    return path


def _open_index(directory: BufferDirectory, tail: Tail, listed: int | None, entries: bytes) -> int:
    """The index of `tail`, open, saying what the segment says. Written anew unless it was only behind."""
    path = directory.index(tail.first)
    if listed is None:
        fsops.replace_durably(path, index.encode_header(index_header(tail)) + entries, names.NEW_INDEX)
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    index_fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        end = index.HEADER_BYTES + listed * index.ENTRY_BYTES
        if os.fstat(index_fd).st_size > end:
            fsops.truncate(index_fd, end)
        if entries:
            fsops.write_all_at(index_fd, entries, end)
            fsops.write_all_at(index_fd, index.LENGTH.pack(tail.durable), index.DURABLE_LENGTH_AT)
    except BaseException:
        os.close(index_fd)
        raise
    return index_fd
