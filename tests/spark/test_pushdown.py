"""Filters that Spark hands over narrow what is read, and never more than they say."""

import os
import sys
import time
import types
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

import hbuf
from hbuf.spark.batch import BatchReader, Part, PushdownReader, reader_class
from hbuf.spark.pushdown import Bounds, bounds_of

from .reading import options_of

MOMENT = datetime(2026, 11, 18, 4, 51, 0, 123456, tzinfo=UTC)
MOMENT_US = 1_794_977_460_123_456
PUSHES = "pyspark.sql.worker.data_source_pushdown_filters"


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([], Bounds()),
        ([EqualTo(("seq",), 5)], Bounds(5, 5)),
        ([EqualNullSafe(("seq",), 5)], Bounds(5, 5)),
        ([GreaterThan(("seq",), 5)], Bounds(first_seq=5)),
        ([GreaterThanOrEqual(("seq",), 5), LessThan(("seq",), 9)], Bounds(5, 9)),
        ([GreaterThan(("seq",), 5), GreaterThan(("seq",), 3), LessThanOrEqual(("seq",), 9), LessThan(("seq",), 20)],
         Bounds(5, 9)),
        ([In(("seq",), (9, 3, None, 5))], Bounds(3, 9)),
        ([GreaterThan(("seq",), 0), GreaterThan(("seq",), -7)], Bounds(first_seq=-7)),
        ([GreaterThanOrEqual(("time",), MOMENT)], Bounds(first_us=MOMENT_US)),
        ([LessThan(("time",), MOMENT.astimezone(timezone(timedelta(hours=-5))))], Bounds(last_us=MOMENT_US)),
        ([EqualTo(("time",), MOMENT)], Bounds(first_us=MOMENT_US, last_us=MOMENT_US)),
        ([EqualTo(("key",), "a")], Bounds(keys=frozenset(["a"]))),
        ([In(("key",), ("a", "b", None)), In(("key",), ("b", "c"))], Bounds(keys=frozenset(["b"]))),
        ([In(("key",), (None,))], Bounds(keys=frozenset())),
        ([EqualTo(("buffer",), "orders"), EqualTo(("tenant",), "acme")],
         Bounds(buffers=frozenset(["orders"]), tenants=frozenset(["acme"]))),
        # None of these is understood, and none narrows anything.
        ([EqualTo(("seq",), None), EqualNullSafe(("key",), None)], Bounds()),
        ([Not(EqualTo(("seq",), 5)), IsNotNull(("seq",)), StringStartsWith(("key",), "a")], Bounds()),
        ([EqualTo(("body",), b"x"), GreaterThan(("key",), "a"), LessThan(("id",), "b")], Bounds()),
        ([EqualTo(("headers", "name"), "seq")], Bounds()),
    ],
    ids=str,
)  # fmt: skip
def test_bounds(filters: list[Filter], bounds: Bounds) -> None:
    assert bounds_of(filters) == bounds


def test_a_time_without_a_zone_is_in_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        local = datetime(2026, 11, 18, 13, 51, 0, 123456)
        assert bounds_of([LessThan(("time",), local)]) == Bounds(last_us=MOMENT_US)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("orders", "bills"):
        with hbuf.create(tmp_path / name, segment_messages="10") as buffer:
            for start in (1, 26):
                buffer.append_many(hbuf.draft(b"%d" % n, key=f"k{n % 2}") for n in range(start, start + 25))
                time.sleep(0.002)
    return tmp_path


def pushed(path: Path, *filters: Filter, **options: str) -> tuple[list[tuple[str, int, int]], list[tuple[str, int]]]:
    """What is planned, as first and last numbers of each buffer, and the rows that are read."""
    reader = PushdownReader(["buffer", "seq"], options_of(path, pushdown="true", **options))
    assert list(reader.pushFilters(list(filters))) == list(filters)  # Spark still applies them
    parts = [part for part in reader.partitions() if isinstance(part, Part)]
    ranges = [each for part in parts for each in part.ranges]
    planned = [
        (os.path.basename(path), min(each.start for each in ranges if each.path == path),
         max(each.end - 1 for each in ranges if each.path == path))
        for path in dict.fromkeys(each.path for each in ranges)
    ]  # fmt: skip
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    return planned, [(row["buffer"], row["seq"]) for row in rows]


def test_what_is_pushed_narrows_what_is_read(root: Path) -> None:
    times = [message.time for message in hbuf.open(root / "orders").read()]
    assert times[24] < times[25]
    assert pushed(root)[0] == [("bills", 1, 50), ("orders", 1, 50)]
    by_number = GreaterThan(("seq",), 12), LessThan(("seq",), 20)
    assert pushed(root, *by_number)[0] == [("bills", 12, 20), ("orders", 12, 20)]
    orders = EqualTo(("buffer",), "orders")
    assert pushed(root, orders, *by_number)[0] == [("orders", 12, 20)]
    assert pushed(root, orders, GreaterThanOrEqual(("time",), times[25]))[0] == [("orders", 26, 50)]
    assert pushed(root, orders, LessThanOrEqual(("time",), times[24]))[0] == [("orders", 1, 25)]
    assert pushed(root, EqualTo(("tenant",), "acme"))[0] == []
    assert pushed(root, orders, EqualTo(("seq",), 1000))[0] == []
    assert pushed(root, orders, EqualTo(("seq",), -3))[0] == []
    _, rows = pushed(root, orders, EqualTo(("key",), "k1"))
    assert rows == [("orders", seq) for seq in range(1, 51, 2)]
    assert pushed(root, orders, EqualTo(("key",), "k1"), key="k0")[1] == []
    assert pushed(root, orders, EqualTo(("key",), "k1"), key="k1", from_="40")[1] == [
        ("orders", seq) for seq in range(41, 51, 2)
    ]


def test_which_reader_is_asked_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reader_class(options_of(root)) is BatchReader
    assert reader_class(options_of(root, pushdown="true")) is BatchReader
    assert "pushFilters" not in vars(BatchReader)  # Spark refuses it where pushing is switched off
    monkeypatch.setitem(sys.modules, PUSHES, types.ModuleType(PUSHES))
    assert reader_class(options_of(root)) is BatchReader
    assert reader_class(options_of(root, pushdown="true")) is PushdownReader
