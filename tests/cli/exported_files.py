"""What an export wrote, read with other programs' readers: json, gzip, zstandard and pyarrow."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import zstandard


def files(folder: str | Path) -> list[str]:
    """All that is in the directory of an export."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def manifest(folder: str | Path) -> Any:
    return json.loads(Path(folder, "_export.json").read_bytes())


def lines(folder: str | Path) -> list[Any]:
    """The objects of all JSON lines, file by file."""
    found = []
    for name in files(folder):
        content = Path(folder, name).read_bytes()
        if name.endswith(".gz"):
            content = gzip.decompress(content)
        elif name.endswith(".zst"):
            content = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content)).read()
        if ".jsonl" in name:
            found += [json.loads(line) for line in content.splitlines()]
    return found


def rows(folder: str | Path) -> list[dict[str, Any]]:
    """The rows of all Parquet files, with the columns that directories' names tell."""
    found: list[dict[str, Any]] = pq.read_table(folder).to_pylist()
    return found


def bodies(folder: str | Path) -> list[bytes | None]:
    """Of either format, in order."""
    if any(name.endswith(".parquet") for name in files(folder)):
        return [row["body"] for row in rows(folder)]
    return [line["body"].encode() if line["body"] is not None else None for line in lines(folder)]
