"""A program that streams buffers through Spark into a buffer, from its checkpoint on: FOLDER ROWS PARTITIONS.

It ends when FOLDER/fed is there and everything is processed. A query that fails is started again.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from hbuf.spark.session import local_session

_POLL_SECONDS = 1


def main() -> None:
    folder, rows, partitions = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    settings = {
        "spark.local.dir": str(folder / "spark"),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder / 'spark'}",
        "spark.sql.streaming.minBatchesToRetain": "100000",  # they are compared with what was stored
    }
    # A task that fails is tried four times in all, as on a cluster.
    spark = local_session("soak", settings, master="local[2,4]")
    while not _run(_stage(spark, folder, rows, partitions), folder):
        pass
    spark.stop()


def _stage(spark: SparkSession, folder: Path, rows: str, partitions: int) -> DataFrame:
    """After a shuffle, so that several tasks write."""
    reading = spark.readStream.format("hbuf").option("columns", "buffer,seq,key,body").option("maxRowsPerTrigger", rows)
    frame = reading.load(str(folder / "in")).repartition(partitions, "seq")
    telling = F.udf(_telling(), "binary", useArrow=False).asNondeterministic()
    return frame.select("key", telling("buffer", "seq", "body").alias("body"))


def _telling() -> Callable[[str, int, bytes], bytes]:
    """Each body tells where it is from, and which row of which computation it is; then comes what it was."""
    life = uuid.uuid4().hex
    rows: dict[str, int] = {}  # so far, of each task that a worker has worked on

    def told(buffer: str, seq: int, body: bytes) -> bytes:
        task = TaskContext.get()
        if task is None:
            raise RuntimeError("this is not a task")
        attempt = f"{life}-{task.taskAttemptId()}"
        row = rows[attempt] = rows.get(attempt, -1) + 1
        batch = int(task.getLocalProperty("streaming.sql.batchId") or -1)
        place = {"batch": batch, "partition": task.partitionId(), "row": row, "attempt": attempt}
        return json.dumps(place | {"buffer": buffer, "seq": seq}).encode() + b"\n" + body

    return told


def _run(frame: DataFrame, folder: Path) -> bool:
    """Whether it came to its end."""
    writing = frame.writeStream.format("hbuf").option("checkpointLocation", str(folder / "checkpoint"))
    query = writing.start(str(folder / "out"))
    (folder / f"started-{os.getpid()}").touch()
    try:
        while not (folder / "fed").exists():
            query.awaitTermination(_POLL_SECONDS)
        query.processAllAvailable()
    except StreamingQueryException as error:
        print("the query failed:", str(error).partition("\n")[0], flush=True)
        return False
    query.stop()
    return True


if __name__ == "__main__":
    main()
