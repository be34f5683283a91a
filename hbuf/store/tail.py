"""The end of a buffer, as a writer needs it: found in constant time, however long the buffer is."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field

from hbuf.errors import Damaged, NewerFormat
from hbuf.format import index
from hbuf.format.chain import HASH_NAMES, Hasher, hasher_named
from hbuf.format.check import ChainState, Keys, keys_of, keys_reason
from hbuf.format.grammar import MAX_SECTION_BYTES
from hbuf.format.record import FORMAT_VERSION
from hbuf.format.scan import Record, own_values, parse_record
from hbuf.format.settings import Settings, parse_settings
from hbuf.format.times import parse_time
from hbuf.store.directory import BufferDirectory
from hbuf.store.segment_file import SegmentFile, opened_segment

# One PUT has about a thousand; more is read where that is not enough.
_USUAL_BYTES = 4096


@dataclass(slots=True)
class Opening:
    """What the PUTs at the head of a segment say. Settings are those of the newest."""

    settings: Settings
    hash_name: str
    put_id: bytes  # hex, of the first PUT: the one that the index names
    prev: bytes  # the id that the first PUT follows
    last_id: bytes  # of the newest PUT: what the first message follows
    first: int
    epoch: int
    time_us: int  # of the first PUT: a segment's age counts from it
    last_time_us: int
    length: int  # of all of them
    earlier: Settings | None  # of the PUT before the newest, where there are two
    first_put: Record  # positions count from the start of the segment
    first_keys: Keys
    keys: Keys  # of the newest PUT
    is_signed_inside: bool  # whether each PUT but the first is signed as it must be by the keys of the one before

    @property
    def hasher(self) -> Hasher:
        """Loaded only where something is hashed: reading needs none."""
        return hasher_named(self.hash_name)


@dataclass(slots=True)
class Tail:
    """The newest segment, open for appending, and what its next record must follow."""

    first: int
    segment_fd: int
    index_fd: int
    opening: Opening
    prev: bytes
    next_seq: int
    last_time_us: int
    length: int  # of the segment's file
    durable: int  # of it, what is surely on disk
    listed: int  # entries in the index
    unlisted: list[bytes] = field(default_factory=list)  # entries of records that were not synced

    @property
    def count(self) -> int:
        return self.next_seq - self.first

    def close(self) -> None:
        os.close(self.segment_fd)
        os.close(self.index_fd)


def is_where_it_was(tail: Tail, directory: BufferDirectory) -> bool:
    """Any writer since would have made the segment longer, or opened the one that follows it.

    Or have made the index anew, as hbuf-reindex does: what went on in the old one nobody would see.
    """
    try:
        there = os.stat(directory.segment(tail.first))
        listed = os.stat(directory.index(tail.first))
    except FileNotFoundError:
        return False
    if not os.path.samestat(listed, os.fstat(tail.index_fd)):
        return False
    mine = os.fstat(tail.segment_fd)
    if (there.st_dev, there.st_ino, there.st_size) != (mine.st_dev, mine.st_ino, tail.length):
        return False
    return not (tail.count and directory.has_segment(tail.next_seq))


def read_opening(segment: SegmentFile, where: str) -> Opening:
    """Reads the PUTs that a segment begins with. Raises Damaged where there is none."""
    size = _USUAL_BYTES
    data = segment.pread(size, 0)
    puts: list[tuple[bytes, Record]] = []
    at = 0
    while True:
        record = parse_record(data, at)
        if not isinstance(record, Record):
            if record.needed and len(data) == size:
                size = at + max(record.needed, MAX_SECTION_BYTES) * 2
                data = segment.pread(size, 0)
                continue
            break
        if record.method != b"PUT" or not is_full_put(record):
            break
        if puts and own_values(record.own)[b"x-hbuf-prev"] != puts[-1][1].id:
            break  # torn bytes that look like a PUT: whoever scans on says what they are
        puts.append((data, record))
        at = record.end
    if not puts:
        raise Damaged(
            f"{where}: byte 0: the record that opens the segment is damaged",
            hint="restore the segment from a backup; what is in it can still be read",
        )
    return _opening_of(puts, where)


def is_full_put(record: Record) -> bool:
    return record.own.startswith(b"x-hbuf-format: ")


def _opening_of(puts: list[tuple[bytes, Record]], where: str) -> Opening:
    all_settings = []
    for data, put in puts:
        version = int(own_values(put.own)[b"x-hbuf-format"])
        if version > FORMAT_VERSION:
            raise NewerFormat(
                f"{where}: format {version} is newer than this version of hbuf, which reads {FORMAT_VERSION}"
            )
        try:
            all_settings.append(parse_settings(data[put.section_end : put.body_end]))
        except Damaged as error:
            raise Damaged(f"{where}: byte {put.start}: {error.message}") from None
    first_put, last_put = puts[0][1], puts[-1][1]
    values = own_values(first_put.own)
    last_values = own_values(last_put.own)
    hash_name = values[b"x-hbuf-hash"].decode()
    if hash_name not in HASH_NAMES:
        raise NewerFormat(f"{where}: '{hash_name}' is not a hash that this version of hbuf knows")
    return Opening(
        all_settings[-1],
        hash_name,
        first_put.id,
        values[b"x-hbuf-prev"],
        last_put.id,
        int(last_values[b"x-hbuf-first"]),
        int(last_values[b"x-hbuf-epoch"]),
        parse_time(first_put.time.decode()),
        parse_time(last_put.time.decode()),
        last_put.end,
        all_settings[-2] if len(puts) > 1 else None,
        first_put,
        keys_of(first_put) or Keys(None, None),
        keys_of(last_put) or Keys(None, None),
        all(
            keys_reason(put, keys_of(before) or Keys(None, None), ChainState()) is None
            for (_, before), (_, put) in itertools.pairwise(puts)
        ),
    )


def index_header(tail: Tail, erase_counter: int) -> index.Header:
    return index.Header(tail.first, tail.durable, erase_counter, bytes.fromhex(tail.opening.put_id.decode()))


def newest_opening(directory: BufferDirectory) -> Opening:
    """The opening of the newest segment: what the settings are now."""
    newest = directory.segment_firsts()[-1]
    with opened_segment(directory, newest) as segment:
        return read_opening(segment, directory.segment_shown(newest))
