"""Index entries of records as a scan finds them: the same bytes that encoding them gave."""

from __future__ import annotations

from collections.abc import Iterable

from hbuf.format import index
from hbuf.format.scan import Record
from hbuf.format.sealing import is_encrypted
from hbuf.format.times import parse_time


class EntryBuilder:
    """Entries of numbered records as they come. `end` is where the last record ended, `time_us` its time."""

    def __init__(self, end: int = 0) -> None:
        self.end = end
        self.time_us = 0
        self._time = b""

    def encode_entries(self, records: Iterable[Record], base: int) -> bytes:
        """Entries of `records`, whose window begins at `base` of the segment. A PUT has none, and makes a gap."""
        entries: list[bytes] = []
        append, pack = entries.append, index.ENTRY.pack
        end, known_time, time_us = self.end, self._time, self.time_us
        for record in records:
            start, head_end, fields_end, section_end, record_end, method, seq, time, own = record[:9]
            if not seq:
                continue
            if time != known_time:
                known_time, time_us = time, parse_time(time.decode())
            flags = 0
            if own or method != b"POST" or record.salted == b"gone" or record.sig:
                flags = _flags(record)
            if base + start != end:
                flags |= index.FLAG_GAP
            key_at = key_length = tags_length = 0
            if head_end != fields_end:
                (key_start, key_end), (tags_start, tags_end) = record.key, record.tags
                tags_length = tags_end - tags_start
                if key_start >= 0:
                    key_at, key_length = key_start - start, key_end - key_start
            append(
                pack(time_us, base + start, record_end - 2 - section_end, section_end - start, head_end - start,
                     key_at, key_length, tags_length, flags, int(record.id[:8], 16))
            )  # fmt: skip
            end = base + record_end
        self.end, self._time, self.time_us = end, known_time, time_us
        return b"".join(entries)


def _flags(record: Record) -> int:
    flags = 0
    if record.method == b"DELETE":
        flags |= index.FLAG_DELETE
    if record.salted == b"gone":
        flags |= index.FLAG_ERASED
    if record.sig:
        flags |= index.FLAG_SIGNED
    if is_encrypted(record.own):
        flags |= index.FLAG_ENCRYPTED
    if record.own.startswith(b"x-hbuf-batch: "):
        flags |= index.FLAG_UNIT
    return flags
