"""What is made of a segment once it is sealed: its tags file, and the producers as of its end. Both rebuildable.

The reading is done without the lock, for a sealed segment does not change; the writing under it.
"""

from __future__ import annotations

from hbuf.format.scan import Record, key_of, tags_of
from hbuf.format.tags import encode_tags, key_term, tag_term
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import opened_index
from hbuf.store.producers import Producers, load_producers, save_producers
from hbuf.store.segment import WINDOW_BYTES, record_at, windows
from hbuf.store.segment_file import SegmentFile, opened_segment
from hbuf.store.tail import read_opening

_TERM_LINES = (b"\r\nx-hbuf-key: ", b"\r\nx-hbuf-tag: ")
_PRODUCER_LINES = (b"\r\nx-hbuf-producer: ",)
_NEWEST = 2**62  # no message has a greater number


def build_tags(directory: BufferDirectory, first: int) -> bytes:
    """The tags file of a segment, from its records."""
    with opened_segment(directory, first) as segment:
        opening = read_opening(segment, directory.segment_file(first).name)
        put_id = bytes.fromhex(opening.put_id.decode())
        length = segment.length
        with opened_index(directory.index(first), first) as listed:
            if listed and listed.header.durable_length == length and not _mentions(segment, length, _TERM_LINES):
                return encode_tags(first, listed.count, put_id, {})
        terms: dict[bytes, list[int]] = {}
        count = 0
        for window in windows(segment, opening.length, length, first - 1):
            for record in window.records:
                count += record.seq > 0
                if record.seq >= first:
                    for term in terms_of(window.data, record):
                        terms.setdefault(term, []).append(record.seq)
        return encode_tags(first, count, put_id, terms)


def terms_of(data: bytes, record: Record) -> list[bytes]:
    """What a record is listed under in a tags file: its key and its tags, each once."""
    if record.head_end == record.fields_end:
        return []
    found = [tag_term(tag) for tag in tags_of(data, record)]
    key = key_of(data, record)
    return list(dict.fromkeys(found if key is None else [*found, key_term(key)]))


def producers_until(directory: BufferDirectory, end_seq: int, *, anew: bool = False) -> Producers:
    """What the log says of producers up to and including `end_seq`, reading on from what is saved.

    With `anew`, or where what is saved does not fit, only that is taken from it which the log cannot tell any more.
    """
    producers = load_producers(directory.producers)
    listed = directory.segment_firsts()
    firsts = [first for first in listed if first <= end_seq]
    if anew or producers.as_of > end_seq or not _is_in_log(directory, producers, firsts):
        producers = _of_retired(producers, listed[0] if listed else 1)
    for i, first in enumerate(firsts):
        if i + 1 < len(firsts) and firsts[i + 1] <= producers.as_of + 1:
            continue
        _read_on(directory, first, producers, end_seq)
    return producers


def _read_on(directory: BufferDirectory, first: int, producers: Producers, end_seq: int) -> None:
    with opened_segment(directory, first) as segment:
        start = read_opening(segment, directory.segment_file(first).name).length
        length = segment.length
        with opened_index(directory.index(first), first) as listed:
            if listed and first <= producers.as_of < first + listed.count:
                start = listed.entry(producers.as_of - first).end
            if listed and not _mentions(segment, length, _PRODUCER_LINES, start):
                last_seq = min(first + listed.count - 1, end_seq)
                last = (
                    record_at(segment, listed.entry(last_seq - first), last_seq) if last_seq > producers.as_of else None
                )
                if last:
                    producers.as_of, producers.as_of_id = last_seq, last.id
                    return
        for window in windows(segment, start, length, max(first - 1, producers.as_of)):
            wanted = [record for record in window.records if producers.as_of < record.seq <= end_seq]
            producers.note(window.data, wanted)


def _mentions(segment: SegmentFile, length: int, lines: tuple[bytes, ...], start: int = 0) -> bool:
    """Whether one of `lines` may be in any record: much faster than parsing, for the many segments without."""
    overlap = max(map(len, lines))
    for at in range(start, length, WINDOW_BYTES):
        data = segment.pread(WINDOW_BYTES + overlap, at)
        if any(line in data for line in lines):
            return True
    return False


def _is_in_log(directory: BufferDirectory, producers: Producers, firsts: list[int]) -> bool:
    """Whether the record that the saved state is as of is there, and is that one."""
    if producers.as_of == 0:
        return True
    holding = [first for first in firsts if first <= producers.as_of]
    if not holding:
        return False
    first = holding[-1]
    with opened_index(directory.index(first), first) as listed:
        place = producers.as_of - first
        if listed is None or place >= listed.count:
            return False
        entry = listed.entry(place)
    with opened_segment(directory, first) as segment:
        record = record_at(segment, entry, producers.as_of)
    return record is not None and record.id == producers.as_of_id


def _of_retired(producers: Producers, first_seq: int) -> Producers:
    """Of what is saved, that which retired messages said."""
    last = {name: place for name, place in producers.last.items() if place[1] < first_seq}
    return Producers(first_seq - 1, last=last)


def keep_producers(directory: BufferDirectory, end_seq: int) -> None:
    """Before messages up to `end_seq` go: what they say of producers is saved, as of a message that stays."""
    saved = load_producers(directory.producers)
    if saved.as_of > end_seq and _is_in_log(directory, saved, directory.segment_firsts()):
        return
    save_producers(directory.producers, producers_until(directory, _NEWEST))
