"""What a crash or a power cut can do to a buffer's files while nobody writes. Nothing that was acknowledged is taken.

It knows the layout of files, and reads the durable length; it never goes below it.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from hbuf.format import index
from hbuf.format.check import unit_place
from hbuf.format.scan import scan


def tear(what: str, buffer: Path, numbers: random.Random) -> None:
    newest = max((buffer / "segments").glob("*.http"))
    if what == "garbage":
        _append(newest, numbers.randbytes(numbers.randint(1, 5000)))
    elif what == "zeros":
        _append(newest, bytes(numbers.choice([1, 512, 4096])))
    elif what == "half a record":
        record = _some_record(newest, numbers)
        _append(newest, record[: numbers.randrange(1, len(record))])
    elif what == "old record":
        _append(newest, _some_record(newest, numbers))
    elif what == "cut":
        _cut(newest, numbers)
    elif what == "index behind":
        _take_index_back(newest, numbers)
    elif what == "no index":
        numbers.choice(sorted((buffer / "segments").glob("*.idx"))).unlink()
    elif what == "no tags":
        for path in (buffer / "segments").glob("*.tags"):
            path.unlink()
    elif what == "no producers":
        (buffer / "producers").unlink(missing_ok=True)
    else:
        raise ValueError(what)


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def _some_record(segment: Path, numbers: random.Random) -> bytes:
    data = segment.read_bytes()
    record = numbers.choice(scan(data).records)
    return data[record.start : record.end]


def _cut(segment: Path, numbers: random.Random) -> None:
    """Bytes that were not synced are lost from some place on."""
    length = segment.stat().st_size
    header = index.parse_header(segment.with_suffix(".idx").read_bytes())
    if header.durable_length < length:
        os.truncate(segment, numbers.randint(header.durable_length, length))


def _take_index_back(segment: Path, numbers: random.Random) -> None:
    """The index is not synced with each batch: after a power cut it may be as it was after an earlier one."""
    path = segment.with_suffix(".idx")
    if not path.exists():
        return
    data = path.read_bytes()
    header, entries = index.parse_header(data), index.parse_entries(data[index.HEADER_BYTES :])
    ends = [end for end in _batch_ends(segment) if end <= header.durable_length]
    if not ends:
        return
    header = header._replace(durable_length=numbers.choice(ends))
    kept = [entry for entry in entries if entry.end <= header.durable_length]
    path.write_bytes(index.encode_header(header) + b"".join(index.ENTRY.pack(*entry) for entry in kept))


def _batch_ends(segment: Path) -> list[int]:
    """Where a batch can have ended: behind any message, but not inside an atomic unit."""
    places = [(record.end, unit_place(record.own)) for record in scan(segment.read_bytes()).records if record.seq]
    return [end for end, place in places if place is None or place[0] == place[1]]
