"""hbuf-import: stores the messages of Parquet and JSON lines files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import typer

from hbuf.cli.key_options import SignKey, signer_of
from hbuf.cli.program import Timeout, Version, noticer, program, run, seconds
from hbuf.cli.progress import progress
from hbuf.cli.spark_session import need_pyarrow
from hbuf.cli.streams import complain, counted
from hbuf.errors import HbufError, NotFound, UsageError
from hbuf.format.fields import encode_producer
from hbuf.ops.append import Sending
from hbuf.ops.create import create
from hbuf.ops.import_files import ImportFile, find_files, sources_of
from hbuf.ops.import_json import import_json
from hbuf.ops.import_messages import Columns, Counts, Importing, Piece
from hbuf.store.directory import BufferDirectory
from hbuf.store.signing import Signer
from hbuf.store.writer import Writer

NAME = "hbuf-import"


def import_command(
    target: Annotated[str, typer.Argument(metavar="BUF", help="A buffer's directory.", show_default=False)],
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="Files, or directories of them.", show_default=False)
    ] = None,
    into: Annotated[
        str | None, typer.Option("--into", metavar="DIR", help="A buffer in DIR for each; then no BUF is given.")
    ] = None,
    buffer: Annotated[
        str | None, typer.Option("--buffer", metavar="NAME", help="Only what was in this one: NAME or TENANT/NAME.")
    ] = None,
    body: Annotated[str, typer.Option("--body", metavar="COLUMN", help="The column with the bodies.")] = "body",
    key: Annotated[str, typer.Option("--key", metavar="COLUMN", help="The column with the keys.")] = "key",
    as_json: Annotated[bool, typer.Option("--json", help="Whole rows as bodies, in JSON.")] = False,
    producer: Annotated[
        str | None, typer.Option("--producer", metavar="NAME", help="Who sends, so that importing again is safe.")
    ] = None,
    sign: SignKey = None,
    timeout: Timeout = "30s",
    no_create: Annotated[bool, typer.Option("--no-create", help="Do not make a missing buffer.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress, and no word on what was left out.")
    ] = False,
    version: Version = False,
) -> None:
    """Import messages from Parquet and JSON lines, such as those of hbuf-export."""
    given = [*([target] if into is not None else []), *(paths or [])]
    if not given:
        raise UsageError("there is no file to import", hint=f"{NAME} --help")
    if into is not None and sign is not None:
        raise UsageError("--sign does not go with --into: a key serves one buffer")
    if as_json and (body != "body" or buffer is not None or into is not None):
        raise UsageError("--body, --buffer and --into do not go with --json")
    if producer is not None:
        encode_producer(producer)
    if into is None:
        BufferDirectory(target)  # refuses what cannot be a buffer's name
    files = find_files(given)
    if any(file.kind == "parquet" for file in files):
        need_pyarrow()
    sources = sources_of(given)
    if into is None and buffer is None and not as_json and len(sources) > 1:
        hint = "--buffer NAME takes those of one, --into DIR makes a buffer for each"
        raise UsageError(f"there are messages of {len(sources)} buffers", hint=hint)
    with _Targets(seconds(timeout), signer_of(sign), may_create=not no_create) as targets:
        if into is None:
            targets.open(target)
        importing = Importing(
            targets.open, target if into is None else None, into or "", buffer, producer, targets.counts
        )
        try:
            with progress(quiet, "bytes") as shown:
                _import(files, importing, Columns(body, key, as_json), shown)
            if buffer is not None and targets.counts.nothing_came():
                raise NotFound(
                    f"no row says that it is of buffer '{buffer}'", hint="_export.json names those of an export"
                )
        except HbufError as error:
            error.message += f"; {counted(targets.counts.stored, 'message was', 'messages were')} stored"
            raise
    if not quiet:
        _say_what_was_left_out(targets.counts, into or target)


class _Targets:
    """The buffers that are written to, opened when a message comes for them."""

    def __init__(self, timeout_seconds: float, signer: Signer | None, *, may_create: bool) -> None:
        self.counts = Counts()
        self._timeout_seconds = timeout_seconds
        self._signer = signer
        self._may_create = may_create
        self._open: dict[str, Sending] = {}
        self._writers = contextlib.ExitStack()

    def __enter__(self) -> _Targets:
        return self

    def __exit__(self, *_: object) -> None:
        self._writers.close()

    def open(self, path: str) -> Sending:
        if path not in self._open:
            if self._may_create and not BufferDirectory(path).exists():
                create(path, may_exist=True, signer=self._signer)
            writer = Writer(
                BufferDirectory(path),
                timeout_seconds=self._timeout_seconds,
                notice=noticer(f"{NAME}: {path}"),
                signer=self._signer,
            )
            self._writers.enter_context(writer)
            self._open[path] = Sending(writer, timeout_seconds=self._timeout_seconds, receipts=self.counts.note)
        return self._open[path]


def _import(
    files: Sequence[ImportFile], importing: Importing, columns: Columns, shown: Callable[[int, int], None]
) -> None:
    total = sum(file.size for file in files)
    before = 0
    for file in files:

        def reached(done: int, before: int = before) -> None:
            shown(before + done, total)

        for piece in _pieces(file, columns, reached):
            importing.take(piece)
        importing.file_done()
        before += file.size


def _pieces(file: ImportFile, columns: Columns, shown: Callable[[int], None]) -> Iterator[Piece]:
    if file.kind != "parquet":
        return import_json(file, columns, shown)
    from hbuf.arrow.import_parquet import import_parquet

    return import_parquet(file, columns, shown)


def _say_what_was_left_out(counts: Counts, where: str) -> None:
    if counts.duplicates:
        complain(NAME, f"{where}: {counted(counts.duplicates, 'message was', 'messages were')} there already")
    if counts.erased:
        complain(NAME, f"{where}: {counted(counts.erased, 'message is', 'messages are')} erased, and cannot come back")


app = program(NAME, import_command, "Example: hbuf-import ./orders /backup/orders-2026-11-18 --producer restore")


def main() -> None:
    run(app, NAME)
