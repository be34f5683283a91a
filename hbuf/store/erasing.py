"""Overwriting messages that a DELETE says are erased, and finishing what an interrupted erase left. Under the lock.

The order, each step on disk before the next: `erasing`, the DELETEs, then for each segment the erase counter, the
gone lines, filler and zeros, tags file and index, the counter again; at last `erasing` goes. Until the gone lines are
on disk all else of a message is as it was, so that a salt line that can be read stands for a whole message.

The erase counter of an index is odd while messages of its segment are overwritten, and goes up with each time: who
reads without the lock compares it before and after.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from hbuf.errors import Damaged, HbufError
from hbuf.format import index, names
from hbuf.format.deletes import Erasure
from hbuf.format.erasing import Layout, blank_patches, gone_patch
from hbuf.format.remains import erased_of
from hbuf.format.tags import parse_tags_file, without_numbers
from hbuf.store import fsops
from hbuf.store.deletes import erasures
from hbuf.store.directory import BufferDirectory
from hbuf.store.erasing_file import read_erasing, remove_erasing
from hbuf.store.index_file import pread_all, read_index_header
from hbuf.store.located import SegmentMessages
from hbuf.store.patching import apply_patches
from hbuf.store.remains import Quarantined, remove_unfinished
from hbuf.store.seal import build_tags


class Target(NamedTuple):
    """A message to be overwritten: where it is, and the commitment that its DELETE names."""

    seq: int
    offset: int
    layout: Layout
    commitment: bytes


def overwrite_all(
    directory: BufferDirectory,
    targets: dict[int, list[Target]],
    quarantined: Quarantined,
    notice: Callable[[str], None] | None = None,
) -> None:
    """Overwrites messages, by segment, whose DELETEs are on disk; and what is left of them elsewhere.

    Quarantine comes first: it is searched for what the messages say, as long as they say it. With `notice` a segment
    that turns out to be damaged is named, and the others are done.
    """
    quarantined.overwrite()
    for first, found in sorted(targets.items()):
        try:
            _overwrite(directory, first, found)
        except Damaged as error:
            if notice is None:
                raise
            notice(f"{directory.segment_shown(first)}: an erase cannot be finished here: {error.message}")
    remove_unfinished(directory, targets)
    remove_erasing(directory.erasing)


def finish_erasing(directory: BufferDirectory, notice: Callable[[str], None]) -> None:
    """Finishes an erase that was interrupted: of those of its messages whose DELETE is in the log.

    The others were not touched. What a torn line was to say the DELETE tells.
    """
    numbers = read_erasing(directory.erasing)
    known = erasures(directory, min(numbers, default=0) if numbers else 0)
    wanted = [seq for seq in sorted(known) if numbers is None or seq in numbers]
    quarantined = Quarantined(directory)
    targets: dict[int, list[Target]] = {}
    for first, group in by_segment(directory, wanted):
        if first is None:
            continue  # retired since
        try:
            said = [known[seq] for seq in group]
            found = list(_half_erased(directory, first, said, quarantined, notice))
        except Damaged as error:
            notice(f"an erase was interrupted, and cannot be finished: {error.message}")
            continue
        if found:
            targets[first] = found
    overwrite_all(directory, targets, quarantined, notice)
    done = sum(map(len, targets.values()))
    notice(f"an erase was interrupted: it is finished now, for {done} of its {len(numbers or wanted)} messages")


def by_segment(directory: BufferDirectory, numbers: Iterable[int]) -> Iterator[tuple[int | None, list[int]]]:
    """Numbers, which ascend, by the segment that each would be in; None for what comes before the first."""
    firsts = directory.segment_firsts()
    for place, group in groupby(numbers, lambda seq: bisect.bisect_right(firsts, seq)):
        yield firsts[place - 1] if place else None, list(group)


def _half_erased(
    directory: BufferDirectory,
    first: int,
    wanted: list[Erasure],
    quarantined: Quarantined,
    notice: Callable[[str], None],
) -> Iterator[Target]:
    with SegmentMessages(directory, first) as messages:
        for erasure in wanted:
            place = messages.find_half_erased(erasure.seq, erasure.id)
            located = messages.read(place[0], place[1].end) if place else None
            if located and located.record.salted == b"salt":
                if messages.commitment_of(located) != erasure.commitment:
                    place = None
                quarantined.look_for(erased_of(located.data, located.record))
            if place is None:
                notice(f"an erase was interrupted: message {erasure.seq} is not the one that was to be erased")
            else:
                yield Target(erasure.seq, *place, erasure.commitment)


def _overwrite(directory: BufferDirectory, first: int, targets: list[Target]) -> None:
    """Erases messages of one segment, with one set of syncs."""
    header = read_index_header(directory.index(first))
    if header is None:
        _overwrite_records(directory, first, targets)  # readers without an index take the lock
        return
    index_fd = os.open(directory.index(first), os.O_RDWR | os.O_CLOEXEC)
    try:
        counter = header.erase_counter | 1
        fsops.write_all_at(index_fd, index.LENGTH.pack(counter), index.ERASE_COUNTER_AT)
        fsops.sync_data(index_fd)
        _overwrite_records(directory, first, targets)
        _overwrite_entries(index_fd, first, targets)
        fsops.write_all_at(index_fd, index.LENGTH.pack(counter + 1), index.ERASE_COUNTER_AT)
        fsops.sync_data(index_fd)
    finally:
        os.close(index_fd)


def _overwrite_records(directory: BufferDirectory, first: int, targets: list[Target]) -> None:
    apply_patches(directory, first, [gone_patch(each.layout, each.offset, each.commitment) for each in targets])
    blanks = [patch for each in targets for patch in blank_patches(each.layout, each.offset)]
    if blanks:
        apply_patches(directory, first, blanks)
    _overwrite_tags(directory, first, {each.seq for each in targets})


def _overwrite_entries(index_fd: int, first: int, targets: list[Target]) -> None:
    """An entry of an erased message has no key and no tags."""
    size = index.ENTRY_BYTES
    start = min(each.seq for each in targets) - first
    end = max(each.seq for each in targets) - first + 1
    at = index.HEADER_BYTES + start * size
    entries = bytearray(pread_all(index_fd, (end - start) * size, at))
    for each in targets:
        place = each.seq - first - start
        if (place + 1) * size > len(entries):
            continue
        entry = index.parse_entry(entries, place)
        if entry.offset == each.offset:  # an index that is wrong is left to who makes it anew
            flags = entry.flags | index.FLAG_ERASED
            blank = entry._replace(key_offset=0, key_length=0, tags_length=0, flags=flags)
            index.ENTRY.pack_into(entries, place * size, *blank)
    fsops.write_all_at(index_fd, bytes(entries), at)


def _overwrite_tags(directory: BufferDirectory, first: int, numbers: set[int]) -> None:
    path = directory.tags(first)
    if not path.exists():
        return
    before = path.read_bytes()
    try:
        content = without_numbers(parse_tags_file(before), numbers)
    except HbufError:
        content = build_tags(directory, first)
    if content != before:
        fsops.replace_durably(path, content, names.NEW_TAGS)
