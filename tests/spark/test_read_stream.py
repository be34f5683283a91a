"""`spark.readStream.format("hbuf")`: every message once, over restarts, new buffers, limits and retention."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import hbuf
from hbuf.ops.compress import compress
from hbuf.ops.retire import retire

Seen = list[list[tuple[str, int]]]


def make(path: Path, count: int, **settings: str) -> None:
    with hbuf.create(path, segment_messages="4", **settings) as buffer:
        buffer.append_many([b"%d" % n for n in range(count)])


def append(path: Path, count: int) -> None:
    with hbuf.open(path) as buffer:
        buffer.append_many([b"more"] * count)


def numbers(buffer: str, start: int, end: int) -> list[tuple[str, int]]:
    return [(buffer, seq) for seq in range(start, end)]


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Callable[..., Seen]:
    """run(path, option=…): reads what there is now, from where it was left. Returns the rows of each batch."""

    def ran(path: Path, during: Callable[[], None] = lambda: None, **options: str) -> Seen:
        seen: Seen = []

        def see(batch: DataFrame, number: int) -> None:
            seen.append(sorted((row.buffer, row.seq) for row in batch.select("buffer", "seq").collect()))
            during()

        frame = spark.readStream.format("hbuf").options(**options).load(str(path))
        query = (
            frame.writeStream.foreachBatch(see)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()
        return seen

    return ran


def offsets(tmp_path: Path) -> dict[str, int]:
    """Where the stream is, as its checkpoint says."""
    newest = max((tmp_path / "checkpoint/offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    found: dict[str, int] = json.loads(newest.read_text().splitlines()[-1])
    return found


def test_restarts_new_buffers_limits_and_what_changes_meanwhile(tmp_path: Path, run: Callable[..., Seen]) -> None:
    root = tmp_path / "root"
    root.mkdir()
    make(root / "orders", 10)
    seen = run(root, lambda: append(root / "orders", 3), maxRowsPerTrigger="6")
    assert seen == [numbers("orders", 1, 7), numbers("orders", 7, 11)]  # and not what others appended meanwhile
    assert offsets(tmp_path) == {"default/orders": 11}
    make(root / "bills", 2)
    hbuf.open(root / "orders").erase([2, 11], reason="test")
    assert compress(str(root / "orders"), timeout_seconds=20)
    assert run(root) == [[*numbers("bills", 1, 3), *numbers("orders", 11, 17)]]
    assert run(root) == []
    assert offsets(tmp_path) == {"default/bills": 3, "default/orders": 19}


def test_from_the_end_is_decided_once(tmp_path: Path, run: Callable[..., Seen]) -> None:
    make(tmp_path / "orders", 10)
    assert run(tmp_path / "orders", **{"from": "end"}) in ([], [[]])
    append(tmp_path / "orders", 2)
    assert run(tmp_path / "orders", **{"from": "end"}) == [numbers("orders", 11, 13)]


def test_retention_that_passed_the_start_is_told_of_or_passed_over(tmp_path: Path, run: Callable[..., Seen]) -> None:
    make(tmp_path / "orders", 6, retention_messages="5")
    assert run(tmp_path / "orders") == [numbers("orders", 1, 7)]
    append(tmp_path / "orders", 14)
    retire(str(tmp_path / "orders"), timeout_seconds=20)
    kept = next(iter(hbuf.open(tmp_path / "orders").read())).seq
    assert kept > 7
    with pytest.raises(PySparkException, match=rf"hbuf: default/orders: messages 7 to {kept - 1} were retired"):
        run(tmp_path / "orders")
    assert run(tmp_path / "orders", failOnDataLoss="false") == [numbers("orders", kept, 21)]


def test_an_option_that_a_stream_cannot_have(tmp_path: Path, run: Callable[..., Seen]) -> None:
    make(tmp_path / "orders", 1)
    with pytest.raises(PySparkException, match="hbuf: a stream has no end"):
        run(tmp_path / "orders", to="5")
