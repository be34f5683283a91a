"""Workers read plain segments without the packages that only writing, hashing and people need."""

import subprocess
import sys
from pathlib import Path

import hbuf

READING = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"nacl", "blake3", "zstandard", "typer", "watchdog", "rich"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())

from hbuf.spark.inputs import Input
from hbuf.spark.options import parse_read_options
from hbuf.spark.planning import ranges_between, tasks_of
from hbuf.spark.task import read_ranges
from hbuf.store.reader import Reader

options = parse_read_options({"path": sys.argv[1], "columns": "seq,time,id,key,tags,headers,body"})
one = Input(sys.argv[1])
with Reader(one.directory()) as reader:
    ranges = [each for task in tasks_of(ranges_between(one, reader, 1, reader.end_seq), 1000) for each in task]
assert len(ranges) > 2, ranges
for batch in read_ranges(ranges, options.columns, options):
    for row in batch.to_pylist():
        print(row["seq"], row["key"], row["tags"], row["body"].decode())
"""


def test_plain_segments_are_read_without_crypto_compression_and_command_line(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    with hbuf.create(path, segment_messages="5") as buffer:
        buffer.append_many(hbuf.draft(b"body", key="k", tags=["t"]) for _ in range(12))
    done = subprocess.run([sys.executable, "-c", READING, str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{n} k ['t'] body" for n in range(1, 13)]
