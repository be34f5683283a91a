"""The files of an import: which there are, in which order, what is in them, and what their directories' names tell."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import unquote

from hbuf.errors import BadInput, NotFound
from hbuf.ops.export_directory import MANIFEST, UNFINISHED
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors

Kind = Literal["parquet", "json", "gzip", "zstd"]
Source = tuple[str, str]  # tenant and name of the buffer that a message was in

_SUFFIXES = (
    ".parquet",
    *(lines + packed for lines in (".jsonl", ".ndjson", ".json") for packed in ("", ".gz", ".zst")),
)
_STARTS: dict[bytes, Kind] = {b"PAR1": "parquet", b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True, slots=True)
class ImportFile:
    shown: str
    kind: Kind
    size: int
    source: Source | None  # where the names of its directories tell it, as in tenant=default/buffer=orders


class _Manifest(NamedTuple):
    files: list[str]
    sources: list[Source]  # those that have messages


def find_files(paths: Sequence[str]) -> list[ImportFile]:
    """Files as they are given; those of a directory sorted by name, which is by day, buffer and number in an export."""
    found: list[str] = []
    for path in paths:
        with os_errors(path):
            if os.path.isdir(path):
                found += _in_directory(path)
            else:
                found.append(path)
    return [_look_at(path) for path in found]


def sources_of(paths: Sequence[str]) -> list[Source]:
    """The buffers that the manifests of exports name."""
    found: dict[Source, None] = {}
    for path in paths:
        manifest = _manifest(path) if os.path.isdir(path) else None
        found.update(dict.fromkeys(manifest.sources if manifest else ()))
    return list(found)


def _in_directory(path: str) -> list[str]:
    if BufferDirectory(path).exists():
        raise BadInput(f"{path}: is a buffer", hint="hbuf-export writes files that can be imported")
    manifest = _manifest(path)
    if manifest is None and os.path.exists(os.path.join(path, UNFINISHED)):
        raise BadInput(f"{path}: holds an export that was not finished", hint="remove it, and export again")
    files = manifest.files if manifest else list(_files_below(path))
    if not files and not manifest:
        raise NotFound(f"{path}: there is no Parquet and no JSON lines in it")
    missing = [file for file in files if not os.path.exists(os.path.join(path, file))]
    if missing:
        raise BadInput(f"{path}: {missing[0]} is missing")
    return [os.path.join(path, file) for file in sorted(files)]


def _manifest(path: str) -> _Manifest | None:
    try:
        content = Path(path, MANIFEST).read_bytes()
    except FileNotFoundError:
        return None
    try:
        values = json.loads(content)
        sources = [(each["tenant"], each["buffer"]) for each in values["buffers"] if each["messages"]]
        return _Manifest([file["path"] for file in values["files"]], sources)
    except (ValueError, TypeError, KeyError):
        raise BadInput(f"{path}: {MANIFEST} is not that of an export") from None


def _files_below(path: str) -> Iterator[str]:
    """Names that start with `_` or `.` are left out, as Spark and pyarrow do."""
    for above, folders, files in os.walk(path):
        folders[:] = [folder for folder in folders if not folder.startswith(("_", "."))]
        for file in files:
            if file.endswith(_SUFFIXES) and not file.startswith(("_", ".")):
                yield os.path.relpath(os.path.join(above, file), path)


def _look_at(path: str) -> ImportFile:
    with os_errors(path), open(path, "rb") as file:
        start = file.read(4)
        kind: Kind = next((kind for magic, kind in _STARTS.items() if start.startswith(magic)), "json")
        return ImportFile(path, kind, os.fstat(file.fileno()).st_size, _source_in_path(path))


def _source_in_path(path: str) -> Source | None:
    folders = Path(os.path.abspath(path)).parent.parts
    for tenant, buffer in pairwise(folders):
        if tenant.startswith("tenant=") and buffer.startswith("buffer="):
            return unquote(tenant.removeprefix("tenant=")), unquote(buffer.removeprefix("buffer="))
    return None
