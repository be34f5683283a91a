"""/b/{buffer}/segments: the files themselves, byte for byte, with ranges. Only names that the listing has."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from hbuf.daemon import answers, asking
from hbuf.daemon.call import LOG, Call
from hbuf.errors import HbufError, NotFound, WrongRange
from hbuf.format import names
from hbuf.store.fsops import os_errors
from hbuf.store.index_file import read_index_header
from hbuf.store.reader import Reader

_PIECE_BYTES = 256 * 1024
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class File:
    name: str
    path: Path
    bytes: int
    etag: str


async def list_files(call: Call) -> web.StreamResponse:
    asking.parameters(call, ())
    found = await call.serving.buffers.read(call.where, _files)
    return answers.json_answer(
        {"files": [{"file": file.name, "bytes": file.bytes, "etag": f'"{file.etag}"'} for file in found]}
    )


def _files(reader: Reader) -> list[File]:
    with os_errors(reader.directory.shown):
        return list(_each_file(reader))


def _each_file(reader: Reader) -> Iterator[File]:
    directory = reader.directory
    for path in (directory.settings, directory.keys):
        yield from _there(path)
    firsts = directory.segment_firsts()
    for first in firsts:
        newest = reader if first == firsts[-1] else None
        yield from _there(directory.segment_file(first), directory.index(first), newest)
        yield from _there(directory.index(first))
        yield from _there(directory.tags(first))


def _there(path: Path, index: Path | None = None, newest: Reader | None = None) -> Iterator[File]:
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(path)
        header = read_index_header(index) if index is not None else None
        size = found.st_size
        if newest is not None:
            # What is not surely on disk could be taken back: nobody is to have a copy of it.
            shown = header.durable_length if header is not None else newest.view(newest.segment_starts()[-1]).shown
            size = min(size, shown)
        erased = header.erase_counter if header is not None else 0
        yield File(path.name, path, size, f"{found.st_ino:x}-{size:x}-{found.st_mtime_ns:x}-{erased:x}")


def _find(reader: Reader, name: str) -> tuple[File, int]:
    """The file of this name, as the listing has it, open."""
    directory = reader.directory
    with os_errors(directory.shown):
        for file in _each_file(reader):
            if file.name == name:
                with contextlib.suppress(FileNotFoundError):
                    return file, os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    raise NotFound(f"{directory.name}: there is no file '{name}'")


async def read_file(call: Call) -> web.StreamResponse:
    asking.parameters(call, ())
    request = call.request
    if not _is_listed_name(call.rest):
        raise NotFound(f"{call.buffer}: there is no file of this name")
    file, fd = await call.serving.buffers.read(call.where, lambda reader: _find(reader, call.rest))
    try:
        etag = f'"{file.etag}"'
        headers = [*answers.STORED, ("etag", etag), ("accept-ranges", "bytes")]
        if _names(request.headers.get("if-none-match"), etag):
            return answers.nothing(headers, status=304)
        status, start, end = 200, 0, file.bytes
        if "range" in request.headers and request.headers.get("if-range", etag) == etag:
            try:
                found = _range(request.headers["range"], file)
            except WrongRange as error:
                return answers.problem(error, {"content-range": f"bytes */{file.bytes}", "etag": etag})
            if found is not None:
                status, (start, end) = 206, found
                headers.append(("content-range", f"bytes {start}-{end - 1}/{file.bytes}"))
        if end - start <= _PIECE_BYTES:
            data = await _piece(call, fd, start, end)
            return answers.answer(data, answers.OCTETS, headers, status=status)
        return await _stream(call, fd, start, end, headers, status)
    finally:
        os.close(fd)


async def _piece(call: Call, fd: int, start: int, end: int) -> bytes:
    length = min(_PIECE_BYTES, end - start)
    return await call.serving.buffers.run_reading(lambda: os.pread(fd, length, start))


def _is_listed_name(name: str) -> bool:
    return (
        name in (names.SETTINGS, names.KEYS)
        or names.parse_segment_file(name) is not None
        or names.parse_rebuildable_file(name) is not None
    )


def _names(given: str | None, etag: str) -> bool:
    if given is None:
        return False
    tags = [part.strip().removeprefix("W/") for part in given.split(",")]
    return "*" in tags or etag in tags


def _range(text: str, file: File) -> tuple[int, int] | None:
    """From where to where; None where all is to be answered: it is no range, or more than one."""
    found = _RANGE.fullmatch(text.strip())
    if found is None or not (found[1] or found[2]):
        return None
    size = file.bytes
    if found[1]:
        start = int(found[1])
        end = min(int(found[2]) + 1, size) if found[2] else size
        if found[2] and int(found[2]) < start:
            return None
    else:
        start, end = max(size - int(found[2]), 0), size
    if start >= size:
        raise WrongRange(f"{file.name} has {size} bytes")
    return start, end


async def _stream(
    call: Call, fd: int, start: int, end: int, headers: list[tuple[str, str]], status: int
) -> web.StreamResponse:
    response = web.StreamResponse(status=status, headers=answers.headers_of(headers))
    response.headers["content-type"] = answers.OCTETS
    response.content_length = end - start
    await response.prepare(call.request)
    if call.request.method == "HEAD":
        return response
    try:
        while start < end:
            data = await _piece(call, fd, start, end)
            if not data:
                raise EOFError
            start += len(data)
            async with asyncio.timeout(call.serving.config.limits.request_seconds):
                await response.write(data)
    except (OSError, EOFError, TimeoutError, HbufError) as error:
        LOG.info("%s/%s: a file is not sent to its end: %s", call.tenant, call.buffer, type(error).__name__)
        if call.request.transport is not None:
            call.request.transport.abort()
    return response
