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
from dataclasses import dataclass, field, replace
from pathlib import Path

from hbuf.errors import Damaged
from hbuf.format import index, names
from hbuf.format.check import ChainState, check_records
from hbuf.format.entries import EntryBuilder
from hbuf.format.times import encode_time, parse_time
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import IndexFile, opened_index, pread_all, read_index_header
from hbuf.store.segment import record_at, windows
from hbuf.store.tail import Opening, Tail, index_header, read_opening

_COPY_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Stranded:
    """A newest segment that cannot be appended to. A new one goes behind it, with this number and id before."""

    opening: Opening
    next_seq: int
    prev: bytes
    last_time_us: int


@dataclass(slots=True)
class Found:
    """What a scan from some place of the segment on has shown to be whole, verified and complete."""

    end: int
    state: ChainState
    last_time_us: int
    entries: list[bytes] = field(default_factory=list)
    record_behind: bool = False  # a well-formed record lies behind the damage that ended the scan

    def accept(self, entries: bytes, state: ChainState, end: int, time_us: int) -> None:
        self.entries.append(entries)
        self.state = state
        self.end = end
        self.last_time_us = max(self.last_time_us, time_us)


def open_tail(directory: BufferDirectory, first: int, notice: Callable[[str], None]) -> Tail | Stranded:
    """The newest segment, ready to be appended to. `notice` is told, a line each, what had to be put right."""
    path = directory.segment(first)
    segment_fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return _open_tail(directory, first, path, segment_fd, notice)
    except BaseException:
        os.close(segment_fd)
        raise


def _open_tail(
    directory: BufferDirectory, first: int, path: Path, segment_fd: int, notice: Callable[[str], None]
) -> Tail | Stranded:
    opening = read_opening(segment_fd, directory.segment_shown(first))
    if opening.first != first:
        raise Damaged(
            f"{directory.segment_shown(first)}: byte 0: the segment says that its first number is {opening.first}"
        )
    length = os.fstat(segment_fd).st_size
    header = read_index_header(directory.index(first))
    if header is not None and not is_of(header, opening):
        header = None
    durable = header.durable_length if header else 0
    with opened_index(directory.index(first), first) as index_file:
        found = _found_by_index(segment_fd, index_file, opening, length) if index_file else None
        listed = index_file.count if index_file and found else None
    found = found or _found_by_put(opening)
    if found.end < length:
        _scan_on(segment_fd, found, opening, length)
    if found.end < durable or (header is None and found.record_behind):
        stranded = _strand(directory, first, segment_fd, opening, length)
        notice(
            f"{path.name}: damaged at byte {found.end}; nothing was cut, and messages go on"
            f" from {stranded.next_seq} in a new segment"
        )
        os.close(segment_fd)
        return stranded
    if found.end > durable:
        write_again(segment_fd, durable, found.end)
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


def is_of(header: index.Header, opening: Opening) -> bool:
    """Whether an index is that of the segment which begins with `opening`."""
    return header.first == opening.first and header.put_id.hex().encode() == opening.put_id


def _found_by_index(segment_fd: int, listed: IndexFile, opening: Opening, length: int) -> Found | None:
    """What the index lists, if it belongs to this segment and its last entry is really there: no scan is needed."""
    durable = listed.header.durable_length
    if not is_of(listed.header, opening) or durable > length:
        return None
    last = listed.last
    if last is None:
        return _found_by_put(opening) if durable == opening.length else None
    seq = opening.first + listed.count - 1
    record = record_at(segment_fd, last, seq)
    return Found(durable, ChainState(record.id, seq + 1, record.time), last.time_us) if record else None


def _found_by_put(opening: Opening) -> Found:
    time = encode_time(opening.last_time_us).encode()
    return Found(opening.length, ChainState(opening.last_id, opening.first, time), opening.last_time_us)


def scan_whole(segment_fd: int, opening: Opening, length: int) -> Found:
    """All that is whole, verified and complete from the opening on, as if there were no index."""
    found = _found_by_put(opening)
    _scan_on(segment_fd, found, opening, length)
    return found


def _scan_on(segment_fd: int, found: Found, opening: Opening, length: int) -> None:
    """Moves `found` on over all that is whole, verified and complete."""
    builder = EntryBuilder(found.end)
    state = replace(found.state)
    pending: list[bytes] = []  # entries of a unit that is not complete yet
    rest = windows(segment_fd, found.end, length, found.state.next_seq - 1)
    for window in rest:
        if window.damage:
            found.record_behind = window.damage.end < length
            return
        # A whole window at once; one that has a fault or leaves a unit open, record by record.
        ahead = replace(state)
        together = not check_records(opening.hasher, window.data, window.records, ahead, window.base)
        steps = [window.records] if together and not ahead.unit_size else [[record] for record in window.records]
        for i, records in enumerate(steps):
            if check_records(opening.hasher, window.data, records, state, window.base):
                found.record_behind = i + 1 < len(steps) or any(later.records for later in rest)
                return
            pending.append(builder.encode_entries(records, window.base))
            if not state.unit_size:
                found.accept(b"".join(pending), replace(state), window.base + records[-1].end, builder.time_us)
                pending.clear()


def _strand(directory: BufferDirectory, first: int, segment_fd: int, opening: Opening, length: int) -> Stranded:
    """Where messages go on behind a damaged segment: past every number that it or its index knows."""
    stranded = Stranded(opening, first, opening.last_id, opening.last_time_us)
    for window in windows(segment_fd, opening.length, length, first - 1):
        for record in window.records:
            if record.seq >= stranded.next_seq:
                stranded.next_seq, stranded.prev = record.seq + 1, record.id
                stranded.last_time_us = max(stranded.last_time_us, parse_time(record.time.decode()))
    with opened_index(directory.index(first), first) as known:
        if known is not None:
            stranded.next_seq = max(stranded.next_seq, first + known.count)
    return stranded


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
