"""Buffers with all kinds of messages, read in both ways: in columns, and message by message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import hbuf
from hbuf.arrow.reading import ALL_COLUMNS, ColumnReader
from hbuf.arrow.wanted import EVERYTHING, Wanted
from hbuf.format.message import Draft, Message
from hbuf.format.times import datetime_of
from hbuf.ops.filter import EVERYTHING as ALL_MESSAGES
from hbuf.ops.filter import Filter
from hbuf.ops.tail import messages
from hbuf.store.data_keys import Identity
from hbuf.store.directory import BufferDirectory
from hbuf.store.opener import Opener
from hbuf.store.reader import Reader

Row = dict[str, object]
NewKey = Callable[..., tuple[Path, str]]  # the fixture `new_key`
Damage = dict[tuple[int, int], str]


class Rows(NamedTuple):
    rows: list[Row]
    damage: Damage

    @property
    def seqs(self) -> list[object]:
        return [row["seq"] for row in self.rows]


FAKE = (
    b"POST /b/orders HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: 3\r\nx-hbuf-time: 2026-11-18T04:51:00.123456Z\r\n"
    b"x-hbuf-data-key: " + b"0" * 64 + b" 0\r\ncontent-length: 2\r\nx-hbuf-key: fake\r\nx-hbuf-tag: fake\r\n"
    b"x-hbuf-id: " + b"0" * 64 + b"\r\n\r\nhi\r\n"
)

# One of each kind, and those whose bodies look like what they are not.
DRAFTS: list[Draft] = [
    hbuf.draft(b"plain"),
    hbuf.draft(b""),
    hbuf.draft(b"with a key", key="user-17"),
    hbuf.draft(b"with a tag", tags=["host=web1"]),
    hbuf.draft(b"with many", key="k", tags=["a", "", "b=c: d", "a"]),
    hbuf.draft(b"empty tags", tags=["", ""]),
    hbuf.draft("grüße 😀".encode(), key="schlüssel 😀", tags=["größe=10", "\u3042"]),
    hbuf.draft(b"with headers", headers=[("content-type", "text/plain"), ("x-empty", "")]),
    hbuf.draft(b"with all", key="user-17", tags=["host=web2"], headers=[("x-a", "ä"), ("x-a", "again")]),
    hbuf.draft(b"from a producer", producer="sensor", producer_seq=1),
    hbuf.draft(b"from a producer", key="user-18", producer="sensor", producer_seq=20),
    hbuf.draft(b"\x00\x01\r\n\r\n\xff" * 3, tags=["binary"]),
    hbuf.draft(FAKE, tags=["fake"]),
    hbuf.draft(b"\r\n" + FAKE * 2, key="fakes"),
    hbuf.draft(b"x\r\nx-hbuf-data-key: " + b"1" * 64 + b" 12\r\n"),
    hbuf.draft(b"x-hbuf-tag: no tag\r\nx-hbuf-gone: nothing\r\n", headers=[("ce-id", "x-hbuf-id: 1")]),
    hbuf.draft(b"long " * 500, key="k" * 300, tags=[f"tag-{n}" for n in range(50)]),
]


def by_columns(
    path: Path | BufferDirectory,
    start: int = 1,
    end: int | None = None,
    *,
    names: Sequence[str] = ALL_COLUMNS,
    wanted: Wanted = EVERYTHING,
    identity: Path | None = None,
) -> Rows:
    """What a ColumnReader gives. Messages that cannot be opened are damage at byte 0."""
    damage: Damage = {}
    with Reader(path if isinstance(path, BufferDirectory) else BufferDirectory(path)) as reader:
        opener = _opener(reader, identity, damage)
        rows: list[Row] = []
        for batch in ColumnReader(reader, names, wanted, opener).batches(start, end or reader.end_seq):
            batch.validate(full=True)
            rows += batch.to_pylist()
        return Rows(rows, damage | reader.damage)


def by_messages(
    path: Path,
    start: int = 1,
    end: int | None = None,
    *,
    wanted: Filter = ALL_MESSAGES,
    identity: Path | None = None,
) -> Rows:
    """The same by `hbuf-tail`'s way of reading."""
    damage: Damage = {}
    with Reader(BufferDirectory(path)) as reader:
        opener = _opener(reader, identity, damage)
        found = list(messages(reader, start, end or reader.end_seq, wanted, opener))
        return Rows([row_of(message) for message in found], damage | reader.damage)


def row_of(message: Message) -> Row:
    values = message._asdict()
    del values["time_us"]
    return values | {
        "time": datetime_of(message.time_us),
        "tags": list(message.tags),
        "headers": [{"name": name, "value": value} for name, value in message.headers],
        "body": None if message.erased or message.encrypted else message.body,
    }


def _opener(reader: Reader, identity: Path | None, damage: Damage) -> Opener | None:
    if identity is None:
        return None
    return Opener(reader, [Identity(identity)], lambda error: damage.__setitem__((error.seq or 0, 0), error.message))


def check_equal(path: Path, *, identity: Path | None = None) -> Rows:
    """All rows, all columns; and from and to some places in between."""
    expected = by_messages(path, identity=identity)
    found = by_columns(path, identity=identity)
    assert found.rows == expected.rows
    assert found.damage == expected.damage
    for start, end in ((2, None), (1, 3), (5, 9)):
        part = by_columns(path, start, end, identity=identity)
        assert part.rows == [row for row in found.rows if _is_between(row, start, end)]
    return found


def _is_between(row: Row, start: int, end: int | None) -> bool:
    seq = row["seq"]
    assert isinstance(seq, int)
    return start <= seq and (end is None or seq < end)
