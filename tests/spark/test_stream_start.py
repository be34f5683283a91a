"""Where a stream begins: the reader is asked as Spark asks it."""

from pathlib import Path

import pytest

import hbuf
from hbuf.errors import UsageError
from hbuf.spark.options import DEFAULT_COLUMNS, parse_read_options
from hbuf.spark.stream import StreamReader


@pytest.fixture
def buffers(tmp_path: Path) -> Path:
    """Two buffers, with three messages each."""
    for name in ("orders", "returns"):
        with hbuf.open(tmp_path / name, create=True) as buffer:
            buffer.append_many([b"one", b"two", b"three"])
    return tmp_path


def first_offset(buffers: Path, start: str) -> dict[str, int]:
    reader = StreamReader(DEFAULT_COLUMNS, parse_read_options({"path": str(buffers), "from": start}))
    try:
        return reader.initialOffset()
    finally:
        reader.stop()


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("last", {"default/orders": 3, "default/returns": 3}),
        ('{"default/orders": 2}', {"default/orders": 2, "default/returns": 1}),
        ('{"default/orders": 4, "default/returns": 3}', {"default/orders": 4, "default/returns": 3}),
        ('{"default/gone": 7}', {"default/orders": 1, "default/returns": 1}),
        ("{}", {"default/orders": 1, "default/returns": 1}),
    ],
)
def test_stream_begins_at_a_place_or_at_a_number_for_each_buffer(
    buffers: Path, start: str, expected: dict[str, int]
) -> None:
    assert first_offset(buffers, start) == expected


@pytest.mark.parametrize("start", ["soon", "{", '{"default/orders": 0}', '{"default/orders": "2"}', '{"a": true}'])
def test_start_that_is_none_is_refused(buffers: Path, start: str) -> None:
    with pytest.raises(UsageError, match="is not "):
        first_offset(buffers, start)
