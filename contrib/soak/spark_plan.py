"""What happens in a round with Spark, drawn from its seed. When the stream does what is not drawn."""

from __future__ import annotations

import random
from dataclasses import dataclass

# By a word of their command: the process that Spark's driver runs in, the Python program that started it, and those
# Python processes that Spark starts: for tasks, for what the stream asks of its source, and for commits.
VICTIMS = {
    "jvm": "org.apache.spark.deploy.SparkSubmit",
    "driver": "spark_driver.py",
    "task": "pyspark.worker",
    "source": "pyspark.sql.streaming.python_streaming_source_runner",
    "commit": "pyspark.sql.worker.python_streaming_sink_runner",
}
# Without these a driver is none.
FATAL = ("jvm", "driver")
# Who appends a batch, chunk by chunk; and Java waits for it.
COMMITTING = ("jvm", "commit")


@dataclass(frozen=True, slots=True)
class Kill:
    """Of whom, and when: so many batches after the last kill, or after the start where there are none.

    Then so long; or, `in_commit`, so long after the next batch began to be appended. Few others hit that.
    """

    victim: str
    batches: int
    seconds: float
    in_commit: bool


@dataclass(frozen=True, slots=True)
class SparkPlan:
    seed: int
    inputs: tuple[str, ...]  # the last one is made while the stream runs
    input_segment_messages: int
    output_segment_messages: int  # chunks are not longer, so a batch has several
    rows: int  # of a batch, at most
    partitions: int
    kills: tuple[Kill, ...]


def draw_spark_plan(seed: int) -> SparkPlan:
    numbers = random.Random(seed)
    return SparkPlan(
        seed=seed,
        inputs=("tea", "milk", "bread")[: numbers.randint(2, 3)],
        input_segment_messages=numbers.randint(20, 200),
        output_segment_messages=numbers.randint(10, 60),
        rows=numbers.randint(100, 300),
        partitions=numbers.randint(2, 4),
        kills=tuple(_draw_kill(numbers) for _ in range(numbers.randint(2, 3))),
    )


def _draw_kill(numbers: random.Random) -> Kill:
    batches = numbers.randint(0, 6)
    if numbers.random() < 0.5:
        return Kill(numbers.choice(COMMITTING), batches, numbers.uniform(0, 0.03), in_commit=True)
    return Kill(numbers.choice(list(VICTIMS)), batches, numbers.uniform(0, 1.5), in_commit=False)
