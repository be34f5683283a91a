"""What is made of a segment once it is sealed: its tags file, and the producers as of its end. Both rebuildable.

The reading is done without the lock, for a sealed segment does not change; the writing under it.
"""

from __future__ import annotations

import os

from hbuf.format.scan import key_of, tags_of
from hbuf.format.tags import encode_tags, key_term, tag_term
from hbuf.store.directory import BufferDirectory
from hbuf.store.producers import Producers, load_producers
from hbuf.store.segment import read_index, record_at, windows
from hbuf.store.tail import read_opening


def build_tags(directory: BufferDirectory, first: int) -> bytes:
    """The tags file of a segment, from its records."""
    path = directory.segment(first)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        opening = read_opening(fd, path.name)
        terms: dict[bytes, list[int]] = {}
        count = 0
        for window in windows(fd, opening.length, os.fstat(fd).st_size, first - 1):
            for record in window.records:
                if not record.seq:
                    continue
                count += 1
                found = [tag_term(tag) for tag in tags_of(window.data, record)]
                key = key_of(window.data, record)
                if key is not None:
                    found.append(key_term(key))
                for term in dict.fromkeys(found):
                    terms.setdefault(term, []).append(record.seq)
        return encode_tags(first, count, bytes.fromhex(opening.put_id.decode()), terms)
    finally:
        os.close(fd)


def producers_until(directory: BufferDirectory, end_seq: int) -> Producers:
    """What the log says of producers up to and including `end_seq`, reading on from what is saved."""
    producers = load_producers(directory.producers)
    firsts = [first for first in directory.segment_firsts() if first <= end_seq]
    if producers.as_of > end_seq or not _is_in_log(directory, producers, firsts):
        producers = Producers()
    for i, first in enumerate(firsts):
        if i + 1 < len(firsts) and firsts[i + 1] <= producers.as_of + 1:
            continue
        _read_on(directory, first, producers, end_seq)
    return producers


def _read_on(directory: BufferDirectory, first: int, producers: Producers, end_seq: int) -> None:
    path = directory.segment(first)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        start = read_opening(fd, path.name).length
        known = read_index(directory.index(first), first)
        skipped = producers.as_of - first + 1
        if known is not None and 0 < skipped <= known.listed:
            start = known.entry(skipped - 1).end
        for window in windows(fd, start, os.fstat(fd).st_size, max(first - 1, producers.as_of)):
            wanted = [record for record in window.records if producers.as_of < record.seq <= end_seq]
            producers.note(window.data, wanted)
    finally:
        os.close(fd)


def _is_in_log(directory: BufferDirectory, producers: Producers, firsts: list[int]) -> bool:
    """Whether the record that the saved state is as of is there, and is that one."""
    if producers.as_of == 0:
        return True
    holding = [first for first in firsts if first <= producers.as_of]
    if not holding:
        return False
    known = read_index(directory.index(holding[-1]), holding[-1])
    place = producers.as_of - holding[-1]
    if known is None or place >= known.listed:
        return False
    fd = os.open(directory.segment(holding[-1]), os.O_RDONLY | os.O_CLOEXEC)
    try:
        record = record_at(fd, known.entry(place), producers.as_of)
    finally:
        os.close(fd)
    return record is not None and record.id == producers.as_of_id
