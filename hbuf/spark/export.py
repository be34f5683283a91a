"""Exporting as Parquet with Spark: one job a buffer, in parallel by segments.

Spark syncs nothing and names files by task, so each file is synced here and then gets its name. What is written is the
same as `hbuf.arrow.export` writes, but that a partition may have several files.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from hbuf import errors
from hbuf.arrow.export import SUFFIX, columns_in_files, count
from hbuf.errors import HbufError, StorageFailed
from hbuf.ops.export import Cut, Selection, Tally, Watch
from hbuf.ops.export_directory import DAY_US, By, ExportDirectory, part, partition
from hbuf.store import fsops
from hbuf.store.reader import Reader

_WORK = "_spark"  # in the export's directory: files are moved from there by renaming
_COUNTED = ["seq", "id", "erased", "encrypted"]
_RAISED = re.compile(r"^(?:hbuf\.[a-z_.]+\.)(\w+): (.*)$", re.MULTILINE)


def export_with_spark(
    spark: SparkSession, cuts: Sequence[Cut], selection: Selection, target: ExportDirectory, by: By, watch: Watch
) -> list[Tally]:
    tallies = []
    # Otherwise Spark may write times in a form of its own.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    work = target.path / _WORK
    try:
        for place, cut in enumerate(cuts):
            tally = Tally(*cut.source)
            if cut.start < cut.end:
                _write(_frame(spark, cut, selection), work, by)
                _take_over(work, target, place, cut, by, tally)
                shutil.rmtree(work)
            _say_retired(cut, watch)
            watch.reached(cut, cut.end)
            tallies.append(tally)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return tallies


def _frame(spark: SparkSession, cut: Cut, selection: Selection) -> DataFrame:
    options = {
        "from": str(cut.start),
        "to": str(cut.end),
        "columns": ",".join(columns_in_files("day")),
        "failOnDataLoss": "false",  # what was retired is said at the end
    }
    if selection.key is not None:
        options["key"] = selection.key
    if selection.tag is not None:
        options["tag"] = selection.tag
    return spark.read.format("hbuf").options(**options).load(str(cut.directory.path))


def _write(frame: DataFrame, work: Path, by: By) -> None:
    names = columns_in_files(by)
    if by == "day":
        # Not to_date(), which goes by the session's time zone.
        day = f.date_add(f.lit("1970-01-01").cast("date"), f.floor(f.unix_micros("time") / DAY_US).cast("int"))
        rows = frame.select(*names, day.alias("day")).sortWithinPartitions("day", "seq")
        writer = rows.write.partitionBy("day")
    else:
        writer = frame.select(*names).sortWithinPartitions("seq").write
    try:
        # Spark takes the path letter by letter: as_uri() would write %20 for a blank.
        writer.option("compression", "zstd").parquet(f"file://{work}")
    except PySparkException as error:
        raise _translated(error) from error


def _translated(error: PySparkException) -> HbufError:
    """What a task raised, as it was; of anything else what Spark says first."""
    raised = _RAISED.search(str(error))
    if raised is None:
        return StorageFailed(f"Spark: {str(error).partition(chr(10))[0]}")
    kind = getattr(errors, raised[1], StorageFailed)
    return kind(raised[2]) if issubclass(kind, HbufError) else StorageFailed(raised[2])


def _take_over(work: Path, target: ExportDirectory, place: int, cut: Cut, by: By, tally: Tally) -> None:
    """Gives the files their names, in the order of their messages."""
    with fsops.os_errors(target.shown):
        files = sorted((first, file) for file in work.rglob("part-*.parquet") if (first := _first_seq(file)))
        for number, (_, file) in enumerate(files):
            folder = file.parent.name if by == "day" else partition(by, 0, cut.source)
            name = f"{folder}/{part(place, number)}{SUFFIX}"
            before = tally.messages
            _count(file, tally)
            target.take_over(file, name)
            target.note(name, tally.messages - before)


def _first_seq(file: Path) -> int:
    """The number of the first message, or 0 where a file has none."""
    with pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(1, columns=["seq"]):
            return int(batch.column("seq")[0].as_py())
    return 0


def _count(file: Path, tally: Tally) -> None:
    with pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(columns=_COUNTED):
            count(tally, batch)


def _say_retired(cut: Cut, watch: Watch) -> None:
    with Reader(cut.directory) as reader:
        first = reader.first_seq
    if cut.start < min(first, cut.end):
        watch.notice(f"{cut.directory.shown}: messages up to {first - 1} are retired; the first is {first}")
