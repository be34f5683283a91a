"""`df.writeStream.format("hbuf")`: killed at each step of a commit, and tried again, every row is stored once."""

import os
import re
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from hbuf import library
from hbuf.ops.pause import pause

from . import dying_sink
from .dying_sink import STEPS, DyingSource
from .numbered_lines import bodies, finish, lines_of, make_small_chunks, put_files, stream, writing


def test_a_stream_is_stored_by_batch_and_row_and_names_its_query(spark: SparkSession, tmp_path: Path) -> None:
    """Fails if Spark no longer tells tasks the query and the batch: they are the producer and its numbers."""
    put_files(tmp_path / "in", 0, 2)
    make_small_chunks(tmp_path / "out")
    query = writing(stream(spark, tmp_path), tmp_path).start(str(tmp_path / "out"))
    assert query.awaitTermination(60)
    assert bodies(tmp_path / "out") == lines_of(0, 2)
    content = b"".join(path.read_bytes() for path in sorted((tmp_path / "out/segments").glob("*.http")))
    assert set(re.findall(rb"x-hbuf-producer: (.*)\r", content)) == {f"spark-{query.id}".encode()}
    numbers = dict.fromkeys(re.findall(rb"x-hbuf-producer-seq: (.*)\r", content))
    last = 2**20 - 1
    assert [int(number) for number in numbers] == [0, 1, last, 2**20, 2**20 + 1, 2**20 + last]
    assert os.listdir(tmp_path / "out/staging") == []
    assert library.open(tmp_path / "out").verify().ok


def test_killed_at_each_step_of_a_commit_every_row_is_stored_once(spark: SparkSession, tmp_path: Path) -> None:
    """One batch for each step. What is computed again differs: a batch is of one computation."""
    # Spark's workers do not find it by its name.
    cloudpickle.register_pickle_by_value(dying_sink)  # type: ignore[no-untyped-call]
    spark.dataSource.register(DyingSource)
    put_files(tmp_path / "in", 0, 1)
    make_small_chunks(tmp_path / "out")
    frame = stream(spark, tmp_path, "concat(value, ' ', uuid()) as body")
    armed = tmp_path / "armed"
    for number, step in enumerate(STEPS):
        put_files(tmp_path / "in", number, number + 1)
        armed.touch()
        query = (writing(frame, tmp_path, "dying").option("dying", step).option("armed", str(armed))).start(
            str(tmp_path / "out")
        )
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(60)
        assert not armed.exists(), step
        before = bodies(tmp_path / "out")
        finish(frame, tmp_path)
        found = bodies(tmp_path / "out")
        assert found[: len(before)] == before
        assert [body.rpartition(" ")[0] for body in found] == lines_of(0, number + 1), step
        assert os.listdir(tmp_path / "out/staging") == []
    assert library.open(tmp_path / "out").verify().ok


def test_a_paused_buffer_stops_the_query_and_a_restart_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    put_files(tmp_path / "in", 0, 1)
    make_small_chunks(tmp_path / "out")
    frame = stream(spark, tmp_path)
    hold = pause(str(tmp_path / "out"), reason="backup", timeout_seconds=1)
    assert hold is not None
    query = writing(frame, tmp_path).option("timeout", "0s").start(str(tmp_path / "out"))
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(60)
    assert f"hbuf: {tmp_path}/out: is paused" in str(caught.value)
    assert bodies(tmp_path / "out") == []
    assert hold.release()
    finish(frame, tmp_path)
    assert bodies(tmp_path / "out") == lines_of(0, 1)


def test_empty_batches_store_nothing(spark: SparkSession, tmp_path: Path) -> None:
    put_files(tmp_path / "in", 0, 3)
    frame = stream(spark, tmp_path).where("body like '1 %'")
    finish(frame, tmp_path)
    assert bodies(tmp_path / "out") == lines_of(1, 2)


def test_complete_mode_and_a_producer_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    put_files(tmp_path / "in", 0, 1)
    frame = stream(spark, tmp_path)
    counted = frame.groupBy("body").count().selectExpr("body")
    for query, said in (
        (writing(counted, tmp_path).outputMode("complete"), "is only appended to"),
        (writing(frame, tmp_path).option("producer", "p").option("batch", "1"), "are not for a stream"),
    ):
        with pytest.raises((StreamingQueryException, AnalysisException)) as caught:
            query.start(str(tmp_path / "out")).awaitTermination(60)
        assert f"hbuf: {tmp_path}/out: " in str(caught.value)
        assert said in str(caught.value)


def test_two_queries_and_another_writer_at_once_each_keep_their_order(spark: SparkSession, tmp_path: Path) -> None:
    make_small_chunks(tmp_path / "out")
    queries = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        put_files(tmp_path / name / "in", 0, 3)
        frame = stream(spark, tmp_path / name, f"concat('{name} ', value) as body")
        queries.append(writing(frame, tmp_path / name).start(str(tmp_path / "out")))
    sent = 0
    with library.open(tmp_path / "out") as other:
        while any(query.isActive for query in queries):
            other.append(b"other %d" % sent)
            sent += 1
    for query in queries:
        assert query.awaitTermination(60)
    found = bodies(tmp_path / "out")
    for name in ("one", "two"):
        own = [body.partition(" ")[2] for body in found if body.startswith(name)]
        assert own == lines_of(0, 3)
    assert [body for body in found if body.startswith("other")] == [f"other {number}" for number in range(sent)]
    assert library.open(tmp_path / "out").verify().ok
