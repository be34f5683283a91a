"""A process that appends to the inputs of a stream until it is asked to end: FOLDER SEED.

Message `k` of a buffer, from 0 on, has one possible body and key. The last of the buffers appears when the stream has
done some. It waits for a stream that is behind: a slow machine has fewer messages, not a longer round.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hbuf
from hbuf.store.directory import BufferDirectory
from hbuf.store.reader import Reader
from soak.bodies import body_of
from soak.spark_plan import SparkPlan, draw_spark_plan

_BATCHES_AHEAD = 5
_PAUSE_SECONDS = 0.05


def key_of(k: int) -> str | None:
    return f"key-{k % 7}" if k % 3 else None


def make_input(directory: Path, name: str, plan: SparkPlan) -> hbuf.Buffer:
    return hbuf.create(directory / name, segment_messages=str(plan.input_segment_messages))


def main() -> int:
    folder, plan = Path(sys.argv[1]), draw_spark_plan(int(sys.argv[2]))
    numbers = random.Random(plan.seed)
    *early, late = plan.inputs
    buffers = {name: hbuf.open(folder / "in" / name) for name in early}
    sent = dict.fromkeys(plan.inputs, 0)
    stopping = False
    with Reader(BufferDirectory(folder / "out")) as output:
        while not stopping:
            # All get messages after the last kill: these make a batch that clears away what was left.
            stopping = (folder / "enough").exists()
            output.refresh()
            done = output.end_seq - 1
            if late not in buffers and (stopping or done):
                buffers[late] = make_input(folder / "in", late, plan)
            if stopping or sum(sent.values()) - done < _BATCHES_AHEAD * plan.rows:
                for name, buffer in buffers.items():
                    count = numbers.choice([1, 3, 10, 30])
                    buffer.append_many(_messages(name, sent[name], count))
                    sent[name] += count
            time.sleep(_PAUSE_SECONDS)
    return 0


def _messages(name: str, start: int, count: int) -> Iterator[hbuf.Draft]:
    return (hbuf.draft(body_of(name, k, lines=False), key=key_of(k)) for k in range(start, start + count))
