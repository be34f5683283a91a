"""A buffer that another process appends to: what is seen is whole, and in order."""

import subprocess
import sys
from pathlib import Path

import hbuf
from hbuf.arrow.reading import ColumnReader
from hbuf.ops.compress import compress
from hbuf.store.directory import BufferDirectory
from hbuf.store.reader import Reader

APPENDING = """
import sys
import hbuf

with hbuf.open(sys.argv[1]) as buffer:
    for n in range(300):
        buffer.append_many([b"%d " % (10 * n + i) * (i + 1) for i in range(10)], atomic=n % 2 == 0)
"""


def test_messages_are_seen_whole_and_in_order_while_another_process_appends(ram_path: Path) -> None:
    path = ram_path / "orders"
    hbuf.create(path, segment_messages="70").close()
    appending = subprocess.Popen([sys.executable, "-c", APPENDING, str(path)])
    seen = 0
    with Reader(BufferDirectory(path)) as reader:
        while True:
            done = appending.poll() is not None
            reader.refresh()
            end = reader.end_seq
            for batch in ColumnReader(reader, ["seq", "body"]).batches(seen + 1, end):
                for row in batch.to_pylist():
                    assert row["seq"] == seen + 1
                    assert row["body"] == b"%d " % seen * (seen % 10 + 1)
                    seen += 1
            assert not reader.damage
            assert seen == end - 1
            if done:
                break
    assert appending.returncode == 0
    assert seen == 3000


def test_segments_are_compressed_and_erased_from_under_a_reader(ram_path: Path) -> None:
    path = ram_path / "orders"
    hbuf.create(path, segment_messages="10").append_many(b"%d" % n for n in range(35))
    with Reader(BufferDirectory(path)) as reader:
        columns = ColumnReader(reader, ["seq", "body", "erased"])
        assert [row["seq"] for batch in columns.batches(1, 36) for row in batch.to_pylist()] == list(range(1, 36))
        hbuf.open(path).erase([2, 33], reason="test")
        assert compress(str(path), timeout_seconds=20)
        hbuf.open(path).erase([12], reason="test")
        rows = [row for batch in columns.batches(1, 36) for row in batch.to_pylist()]
    assert [row["seq"] for row in rows if row["erased"]] == [2, 12, 33]
    assert [row["body"] for row in rows if not row["erased"]] == [b"%d" % n for n in range(35) if n not in (1, 11, 32)]
