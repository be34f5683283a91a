"""Reading as Spark does, without it: planned on the driver, and then read range by range."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from hbuf.arrow.reading import ALL_COLUMNS
from hbuf.errors import HbufError
from hbuf.spark.batch import BatchReader, Part
from hbuf.spark.options import CORRUPT, ReadOptions, parse_read_options

Row = dict[str, object]
NewKey = Callable[..., tuple[Path, str]]  # the fixture `new_key`
Change = Callable[[bytes], bytes]


def options_of(*paths: Path | str, **options: str) -> ReadOptions:
    named = {"from_": "from"}
    given = {named.get(name, name): value for name, value in options.items()}
    if len(paths) == 1:
        return parse_read_options({"path": str(paths[0]), **given})
    return parse_read_options({"paths": json.dumps([str(path) for path in paths]), **given})


def plan(*paths: Path | str, **options: str) -> list[Part]:
    reader = _reader(*paths, **options)
    return [part for part in reader.partitions() if isinstance(part, Part)]


def read(*paths: Path | str, **options: str) -> list[Row]:
    """All rows. Raises what Spark would show."""
    reader = _reader(*paths, **options)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def seqs(*paths: Path | str, **options: str) -> list[object]:
    return [row["seq"] for row in read(*paths, **options)]


def error_of(*paths: Path | str, **options: str) -> str:
    """The line that is raised, by whoever finds out."""
    try:
        read(*paths, **options)
    except HbufError as error:
        return error.message
    raise AssertionError("nothing was raised")


def corrupt(rows: list[Row]) -> list[tuple[object, str]]:
    return [(row["seq"], str(row[CORRUPT])) for row in rows if row[CORRUPT] is not None]


def change(file: Path, by: Change) -> None:
    before = file.read_bytes()
    after = by(before)
    assert after != before
    file.write_bytes(after)


def _reader(*paths: Path | str, **options: str) -> BatchReader:
    parsed = options_of(*paths, **options)
    columns = (
        parsed.columns if "columns" in options else [*ALL_COLUMNS, *([CORRUPT] if CORRUPT in parsed.columns else [])]
    )
    return BatchReader(list(columns), parsed)
