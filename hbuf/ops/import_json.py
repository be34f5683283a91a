"""Importing JSON lines, compressed or not: those of an export, and anyone's."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from hbuf.errors import BadInput
from hbuf.format.fields import NO_FIELDS
from hbuf.format.jsonlines import draft_of, parse_object
from hbuf.format.message import Draft
from hbuf.ops.import_files import ImportFile, Kind, Source
from hbuf.ops.import_messages import Columns, Piece
from hbuf.ops.inputs import LineParser
from hbuf.store.fsops import os_errors
from hbuf.store.outgoing import Outgoing

_READ_BYTES = 1024 * 1024
_READ_PACKED_BYTES = 16 * 1024
_BATCH_BYTES = 4 * 1024 * 1024
_MOST_LINE_BYTES = 1024**3  # what a message may have is for its buffer to say
_GZIP = 16 + zlib.MAX_WBITS


class _Row(NamedTuple):
    source: Source | None
    number: int
    draft: Draft | None  # None: it was erased


def import_json(file: ImportFile, columns: Columns, progress: Callable[[int], None]) -> Iterator[Piece]:
    """`progress` is told how many bytes were read. Every line is a row, and an empty one is none."""
    parser = LineParser(b"\n", _MOST_LINE_BYTES)
    rows = 0
    for data in _blocks(file, progress):
        lines = parser.feed(data) if data else parser.close()
        found = []
        for line in lines:
            rows += 1
            if line.strip():
                found.append(_row(line, rows, columns, file))
        yield from _pieces(found)
        if parser.failed:
            raise BadInput(f"{file.shown}: line {rows + 1}: {parser.failed.message}")


def _pieces(rows: list[_Row]) -> Iterator[Piece]:
    for source, group in groupby(rows, lambda row: row.source):
        of_source = list(group)
        kept = [(row.number, row.draft) for row in of_source if row.draft is not None]
        fields = [draft.fields for _, draft in kept]
        outgoing = Outgoing(
            [draft.body for _, draft in kept], fields if any(each is not NO_FIELDS for each in fields) else NO_FIELDS
        )
        yield Piece(source, [number for number, _ in kept], outgoing, len(of_source) - len(kept))


def _row(line: bytes, number: int, columns: Columns, file: ImportFile) -> _Row:
    try:
        values = parse_object(line)
        if columns.as_json:
            draft = draft_of({"body": "", "key": _key(values, columns.key)})
            return _Row(None, number, draft._replace(body=line.strip()) if draft else None)
        source, seq = _source(values, file), values.get("seq")
        if source is None or not isinstance(seq, int) or seq < 1:
            source, seq = None, number
        return _Row(source, seq, draft_of(_as_message(values, columns)))
    except BadInput as error:
        raise BadInput(f"{file.shown}: line {number}: {error.message}", hint=error.hint) from None


def _source(values: dict[str, Any], file: ImportFile) -> Source | None:
    tenant, buffer = values.get("tenant"), values.get("buffer")
    return (tenant, buffer) if isinstance(tenant, str) and isinstance(buffer, str) else file.source


def _as_message(values: dict[str, Any], columns: Columns) -> dict[str, Any]:
    """The line as one of `hbuf-tail --json`: what is no text is given as JSON."""
    message = {**values, "key": _key(values, columns.key)}
    if columns.body != "body":
        message.pop("body_base64", None)
    elif "body_base64" in values:
        return message
    if columns.body not in values:
        raise BadInput(f"there is no '{columns.body}'", hint="--body COLUMN names another, --json takes whole lines")
    body = values[columns.body]
    message["body"] = body if body is None or isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return message


def _key(values: dict[str, Any], name: str) -> Any:
    key = values.get(name)
    return str(key) if isinstance(key, int) and not isinstance(key, bool) else key


def _blocks(file: ImportFile, progress: Callable[[int], None]) -> Iterator[bytes]:
    """What the file holds, in pieces that make a batch, and an empty one at the end."""
    gathered: list[bytes] = []
    size = 0
    for piece in _unpacked(file, progress):
        gathered.append(piece)
        size += len(piece)
        if size >= _BATCH_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)
    yield b""


def _unpacked(file: ImportFile, progress: Callable[[int], None]) -> Iterator[bytes]:
    unpacker = _unpacker(file.kind)
    whole = True
    with os_errors(file.shown), open(file.shown, "rb") as opened:
        # What is packed may become a thousand times as long.
        while data := opened.read(_READ_BYTES if unpacker is None else _READ_PACKED_BYTES):
            progress(opened.tell())
            if unpacker is None:
                yield data
            while unpacker is not None and data:
                try:
                    yield unpacker.decompress(data)
                except Exception as error:  # each library has its own
                    raise BadInput(f"{file.shown}: cannot be decompressed: {error}") from None
                data, whole = unpacker.unused_data, unpacker.eof
                if whole:
                    unpacker = _unpacker(file.kind)  # another one may follow
    if not whole:
        raise BadInput(f"{file.shown}: ends too early")


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _unpacker(kind: Kind) -> _Unpacker | None:
    if kind == "gzip":
        return zlib.decompressobj(_GZIP)
    if kind == "zstd":
        from zstandard import ZstdDecompressor

        return ZstdDecompressor().decompressobj()
    return None
