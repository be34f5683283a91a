"""The options of `spark.read` and `spark.readStream`, checked, as one value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hbuf.arrow.reading import ALL_COLUMNS
from hbuf.arrow.wanted import Wanted
from hbuf.errors import UsageError
from hbuf.format.settings import parse_size_bytes

DEFAULT_COLUMNS = tuple(name for name in ALL_COLUMNS if name != "headers")
CORRUPT = "_corrupt_record"

TYPES = {
    "tenant": "string",
    "buffer": "string",
    "seq": "bigint",
    "time": "timestamp",
    "id": "string",
    "key": "string",
    "tags": "array<string>",
    "headers": "array<struct<name:string,value:string>>",
    "body": "binary",
    "erased": "boolean",
    "encrypted": "boolean",
    CORRUPT: "string",
}

Mode = Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"]

_KNOWN = {
    "path",
    "paths",
    "from",
    "to",
    "key",
    "tag",
    "columns",
    "identity",
    "mode",
    "splitbytes",
    "pushdown",
    "failondataloss",
    "maxrowspertrigger",
}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    paths: tuple[str, ...]
    columns: tuple[str, ...]
    start: str = "first"
    end: str | None = None
    wanted: Wanted = Wanted()  # noqa: RUF009  # it is frozen
    identity: str | None = None
    mode: Mode = "FAILFAST"
    split_bytes: int = 256 * 1024**2
    pushdown: bool = False
    fail_on_data_loss: bool = True
    max_rows: int | None = None  # in one micro-batch

    @property
    def ddl(self) -> str:
        """The schema as Spark takes it."""
        return ", ".join(f"{name} {TYPES[name]}" for name in self.columns)


def parse_read_options(given: Mapping[str, str]) -> ReadOptions:
    """Raises UsageError for an option that is unknown, or has a value that it cannot have."""
    options = {name.lower(): value for name, value in given.items()}
    unknown = sorted(name for name in given if name.lower() not in _KNOWN)
    if unknown:
        raise UsageError(f"there is no option '{unknown[0]}'", hint=f"there are {', '.join(sorted(_KNOWN))}")
    mode = _mode(options.get("mode", "FAILFAST"))
    key = options.get("key")
    return ReadOptions(
        paths=_paths(options),
        columns=_columns(options.get("columns"), mode),
        start=options.get("from", "first"),
        end=options.get("to"),
        wanted=Wanted(frozenset([key]) if key is not None else None, options.get("tag")),
        identity=options.get("identity"),
        mode=mode,
        split_bytes=_positive("splitBytes", parse_size_bytes("splitBytes", options.get("splitbytes", "256MiB"))),
        pushdown=_boolean("pushdown", options.get("pushdown", "false")),
        fail_on_data_loss=_boolean("failOnDataLoss", options.get("failondataloss", "true")),
        max_rows=_rows(options.get("maxrowspertrigger")),
    )


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    if "paths" in options:
        return _listed(options["paths"])
    if "path" in options:
        return (options["path"],)
    raise UsageError("no path was given", hint='spark.read.format("hbuf").load("/path/of/a/buffer")')


def _listed(text: str) -> tuple[str, ...]:
    """`load([…])` comes as JSON."""
    try:
        paths = json.loads(text)
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
        raise UsageError(f"paths is a list of paths, not '{text}'", hint="spark.read.format('hbuf').load([PATH, …])")
    return tuple(paths)


def _columns(text: str | None, mode: Mode) -> tuple[str, ...]:
    columns = tuple(name.strip() for name in text.split(",")) if text is not None else DEFAULT_COLUMNS
    for name in columns:
        if name not in TYPES:
            raise UsageError(f"there is no column '{name}'", hint=f"there are {', '.join(TYPES)}")
    if len(set(columns)) < len(columns):
        raise UsageError("a column is asked for twice")
    # As with JSON and CSV, what cannot be read has a column of its own where rows are to be kept.
    return (*columns, CORRUPT) if mode == "PERMISSIVE" and CORRUPT not in columns else columns


def _mode(text: str) -> Mode:
    for mode in ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"):
        if text.upper() == mode:
            return mode
    raise UsageError(f"mode cannot be '{text}'", hint="it is FAILFAST, PERMISSIVE or DROPMALFORMED")


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UsageError(f"{name} is true or false, not '{text}'")
    return text.lower() == "true"


def _positive(name: str, value: int) -> int:
    if value <= 0:
        raise UsageError(f"{name} must be more than 0")
    return value


def _rows(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal():
        raise UsageError(f"maxRowsPerTrigger is a number, not '{text}'")
    return _positive("maxRowsPerTrigger", int(text))
