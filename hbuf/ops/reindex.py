"""Making everything rebuildable anew from the segments: indexes, tags files, the producers file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from hbuf.format import index, names
from hbuf.store import fsops
from hbuf.store.compress import replace_ranges
from hbuf.store.directory import BufferDirectory
from hbuf.store.gate import Gate
from hbuf.store.index_file import read_index_header
from hbuf.store.producers import save_producers
from hbuf.store.recover import write_again
from hbuf.store.seal import build_tags, producers_until
from hbuf.store.segment_file import CompressedSegment, PlainSegment, opened_segment
from hbuf.store.tail import newest_opening, read_opening
from hbuf.store.whole import is_of, scan_whole
from hbuf.store.writer import Writer


def reindex(path: str, *, timeout_seconds: float, notice: Callable[[str], None] = lambda line: None) -> bool:
    """Returns whether all of it could be made: not where a segment is damaged.

    An index that knew of more than its segment has goes to quarantine/: it may be all that is left to tell.
    """
    directory = BufferDirectory(path)
    directory.require()
    gate = Gate(directory, notice)
    whole = True
    try:
        with fsops.os_errors(directory.shown):
            gate.enter(timeout_seconds, even_closed=True)
            firsts = directory.segment_firsts()
            for first in firsts:
                whole = _reindex_segment(directory, first, notice) and whole
                if first != firsts[-1]:
                    fsops.replace_durably(directory.tags(first), build_tags(directory, first), names.NEW_TAGS)
            save_producers(directory.producers, producers_until(directory, 2**62, anew=True))
    finally:
        gate.close()
    if not directory.closed.exists() and newest_opening(directory).keys.sign is None:
        with Writer(directory, timeout_seconds=timeout_seconds, notice=notice) as writer, writer.locked():
            pass  # opening the tail puts right what a crash left there; a signed one needs its key for that
    return whole


def _reindex_segment(directory: BufferDirectory, first: int, notice: Callable[[str], None]) -> bool:
    path = directory.segment_file(first)
    with opened_segment(directory, first) as segment:
        length = segment.length
        opening = read_opening(segment, path.name)
        old = read_index_header(directory.index(first))
        if old is not None and not is_of(old, opening):
            old = None
        durable = old.durable_length if old else 0
        found = scan_whole(segment, opening, length)
        if found.record_behind or (found.end < durable and found.end < length):
            # An index has no way to say which numbers are missing; readers scan where it does not fit.
            notice(f"{path.name}: damaged at byte {found.end}; its index is left as it is")
            return False
    if found.end > durable and isinstance(segment, PlainSegment):
        _write_again(path, durable, found.end)
    if isinstance(segment, CompressedSegment) and segment.table_fault:
        replace_ranges(directory, first, ())
    if durable > length:
        _keep(directory, first, notice)
    header = index.Header(first, found.end, old.erase_counter if old else 0, bytes.fromhex(opening.put_id.decode()))
    content = index.encode_header(header) + b"".join(found.entries)
    fsops.replace_durably(directory.index(first), content, names.NEW_INDEX)
    return True


def _write_again(path: Path, start: int, end: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        write_again(fd, start, end)
    finally:
        os.close(fd)


def _keep(directory: BufferDirectory, first: int, notice: Callable[[str], None]) -> None:
    if not directory.quarantine.is_dir():
        fsops.make_directory(directory.quarantine)
        fsops.sync_directory(directory.path)
    content = directory.index(first).read_bytes()
    kept = directory.quarantine / f"{names.segment_stem(first)}-{len(content)}{names.INDEX_SUFFIX}"
    fsops.replace_durably(kept, content)
    notice(f"{directory.index(first).name}: knew of more than its segment has; kept in {names.QUARANTINE}/{kept.name}")
