"""Exporting as JSON lines, the same that `hbuf-tail --json` writes."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from itertools import groupby
from typing import Literal, Protocol

from hbuf.format.jsonlines import encode_json
from hbuf.format.message import Message, message_of
from hbuf.ops.export import Cut, Refusals, Selection, Tally, Watch
from hbuf.ops.export_directory import By, ExportDirectory, NewFile, Partitions, day_of
from hbuf.ops.filter import Filter
from hbuf.ops.tail import select_chunks
from hbuf.store.opener import Opener
from hbuf.store.reader import Reader
from hbuf.store.view import Chunk

Compression = Literal["gzip", "zstd"]

_SUFFIXES: dict[Compression | None, str] = {None: ".jsonl", "gzip": ".jsonl.gz", "zstd": ".jsonl.zst"}
_GZIP = 16 + zlib.MAX_WBITS


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class _JsonFile:
    """Lines, compressed or not."""

    def __init__(self, file: NewFile, compression: Compression | None) -> None:
        self._file = file
        self._compressor: _Compressor | None = None
        if compression == "gzip":
            self._compressor = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
        elif compression == "zstd":
            from zstandard import ZstdCompressor

            self._compressor = ZstdCompressor(write_checksum=True).compressobj()

    def add(self, rows: bytes) -> None:
        self._file.write(self._compressor.compress(rows) if self._compressor else rows)

    def finish(self) -> None:
        if self._compressor:
            self._file.write(self._compressor.flush())


def export_json(
    cuts: Sequence[Cut],
    selection: Selection,
    target: ExportDirectory,
    by: By,
    watch: Watch,
    compression: Compression | None = None,
) -> list[Tally]:
    tallies = []
    for place, cut in enumerate(cuts):
        tally = Tally(*cut.source)
        parts = Partitions(
            target, by, _SUFFIXES[compression], place, cut.source, lambda file: _JsonFile(file, compression)
        )
        with Reader(cut.directory) as reader, parts:
            refusals = Refusals(reader, skip_damaged=selection.skip_damaged)
            opener = Opener(reader, selection.identities, refusals.notice) if selection.identities else None
            for chunk, places in select_chunks(reader, cut.start, cut.end, _filter(selection), opener):
                messages = _messages(reader, chunk, places)
                refusals.check()
                _write(messages, parts, tally)
                watch.reached(cut, chunk.seqs().stop)
            refusals.finish(tally, watch.notice)
        tallies.append(tally)
    return tallies


def _filter(selection: Selection) -> Filter:
    key, tag = selection.key, selection.tag
    return Filter(os.fsencode(key) if key is not None else None, os.fsencode(tag) if tag is not None else None)


def _messages(reader: Reader, chunk: Chunk, places: Sequence[int]) -> list[Message]:
    tenant, name = reader.directory.tenant, reader.directory.name
    found = []
    for i in places:
        record = chunk.parse(i)
        if record is None:
            reader.note_damage(chunk, i)
        else:
            found.append(message_of(chunk.data, record, tenant, name))
    return found


def _write(messages: list[Message], parts: Partitions, tally: Tally) -> None:
    for day, group in groupby(messages, lambda message: day_of(message.time_us)):
        of_day = list(group)
        parts.add(day, b"".join([encode_json(message) + b"\n" for message in of_day]), len(of_day))
    if messages:
        tally.add(len(messages), messages[0].seq, messages[-1].seq, messages[-1].id)
        tally.erased += sum(message.erased for message in messages)
        tally.encrypted += sum(message.encrypted and not message.erased for message in messages)
