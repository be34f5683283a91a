"""hbuf-export: writes buffers, cut at one moment, as Parquet or JSON lines."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated, get_args

import typer

from hbuf.cli.key_options import IdentityKeys, identities_of
from hbuf.cli.program import Buffers, Version, noticer, program, run
from hbuf.cli.progress import progress
from hbuf.cli.spark_session import need_pyarrow, session
from hbuf.errors import Unavailable, UsageError
from hbuf.format.places import FIRST, parse_place
from hbuf.format.times import parse_moment
from hbuf.ops.export import Selection, Watch, bytes_to_read, cut_all, find_sources, manifest_of
from hbuf.ops.export_directory import By, ExportDirectory
from hbuf.ops.export_json import Compression, export_json

NAME = "hbuf-export"
# From here on it pays to start Spark, which takes some seconds.
_SPARK_BYTES = 1024**3


def export_command(
    buffers: Buffers,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Where to: new or empty.", show_default=False)],
    form: Annotated[str, typer.Option("--to", metavar="parquet|jsonl", help="What to write.", show_default=False)],
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="Not later than TIME.")] = None,
    place: Annotated[
        str | None,
        typer.Option("--from", "-o", metavar="PLACE", help="From PLACE on: first, last, end, N, -N, @TIME, @10m."),
    ] = None,
    by: Annotated[str, typer.Option("--by", metavar="day|buffer", help="What makes a directory.")] = "day",
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only messages with this key.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="T", help="Only messages with this tag.")] = None,
    identity: IdentityKeys = None,
    compress: Annotated[
        str | None, typer.Option("--compress", metavar="gzip|zstd", help="Compress JSON lines; Parquet always is.")
    ] = None,
    skip_damaged: Annotated[bool, typer.Option("--skip-damaged", help="Leave out what cannot be read.")] = False,
    spark: Annotated[
        bool | None,
        typer.Option("--spark/--no-spark", help="Write Parquet with Spark; by size if not said.", show_default=False),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    version: Version = False,
) -> None:
    """Export buffers, all cut at the same moment."""
    if form not in ("parquet", "jsonl"):
        raise UsageError(f"--to: '{form}' is not parquet or jsonl")
    if by not in get_args(By):
        raise UsageError(f"--by: '{by}' is not day or buffer")
    if compress is not None and (form != "jsonl" or compress not in get_args(Compression)):
        raise UsageError("--compress is gzip or zstd, and for jsonl")
    if spark and (form != "parquet" or identity or skip_damaged):
        raise UsageError("--spark is for parquet, and goes with neither --identity nor --skip-damaged")
    now_us = time.time_ns() // 1000
    at_us = parse_moment(at, now_us) if at is not None else None
    if at_us is not None and at_us > now_us:
        raise UsageError(f"--at: {at} is yet to come")
    if form == "parquet":
        need_pyarrow()
    selection = Selection(
        at_us,
        parse_place(place, now_us) if place is not None else FIRST,
        key,
        tag,
        identities_of(identity),
        skip_damaged,
    )
    sources = find_sources(buffers)
    target = ExportDirectory(directory)
    target.check()
    cuts = cut_all(sources, selection, lambda: time.time_ns() // 1000)
    spark_session = None
    may_use_spark = form == "parquet" and not identity and not skip_damaged
    if spark is None and may_use_spark and bytes_to_read(cuts) >= _SPARK_BYTES:
        with contextlib.suppress(Unavailable):  # it is no need, only faster
            spark_session = session(NAME)
    elif spark:
        spark_session = session(NAME)
    with progress(quiet, "messages") as shown, target:
        watch = Watch(cuts, shown, noticer(NAME))
        if form == "jsonl":
            tallies = export_json(cuts, selection, target, by, watch, compress)  # type: ignore[arg-type]  # checked above
        elif spark_session is not None:
            from hbuf.spark.export import export_with_spark

            tallies = export_with_spark(spark_session, cuts, selection, target, by, watch)  # type: ignore[arg-type]
        else:
            from hbuf.arrow.export import export_parquet

            tallies = export_parquet(cuts, selection, target, by, watch)  # type: ignore[arg-type]
        target.finish(manifest_of(form, by, now_us if at_us is None else at_us, selection, tallies))


app = program(NAME, export_command, "Example: hbuf-export ./orders --to parquet /backup/orders-2026-11-18 --at 1h")


def main() -> None:
    run(app, NAME)
