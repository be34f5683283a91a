"""A stream with a known order: text files that say which line of which file they have, one a batch."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from hbuf import library

LINES = 50
CHUNK_MESSAGES = 20  # a batch has three chunks, the last of 10


def put_files(folder: Path, start: int, end: int) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(start, end):
        path = folder / f"{number:04d}.txt"
        path.write_text("".join(f"{number} {line}\n" for line in range(LINES)))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def lines_of(start: int, end: int) -> list[str]:
    return [f"{number} {line}" for number in range(start, end) for line in range(LINES)]


def make_small_chunks(buffer: Path) -> None:
    library.create(buffer, segment_messages=str(CHUNK_MESSAGES)).close()


def stream(spark: SparkSession, folder: Path, body: str = "value as body") -> DataFrame:
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in")).selectExpr(body)


def writing(frame: DataFrame, folder: Path, source: str = "hbuf") -> DataStreamWriter:
    checkpoint = str(folder / "checkpoint")
    return frame.writeStream.format(source).option("checkpointLocation", checkpoint).trigger(availableNow=True)


def finish(frame: DataFrame, folder: Path) -> None:
    assert writing(frame, folder).start(str(folder / "out")).awaitTermination(60)


def bodies(buffer: Path) -> list[str]:
    return [message.body.decode() for message in library.open(buffer).read()]
