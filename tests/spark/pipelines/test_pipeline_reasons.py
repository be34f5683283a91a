from __future__ import annotations

import pytest

from hbuf.errors import Paused
from hbuf.spark.pipelines.reasons import reason_of


class FromSpark(Exception):
    """Stands for an exception of Spark's: what counts is where its class is from, and its text."""

    __module__ = "pyspark.errors.exceptions.captured"


STREAM = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "


@pytest.mark.parametrize(
    ("error", "reason", "code"),
    [
        (Paused("out: is paused"), "out: is paused", 75),
        (ValueError("no\\nmore"), "ValueError: no\\nmore", 70),
        (ValueError("first\nsecond"), "ValueError: first", 70),
        (FromSpark("[PARSE] at 'x'. SQLSTATE: 42601 (line 1)\n== SQL =="), "[PARSE] at 'x'. (line 1)", 70),
        (FromSpark(STREAM + "[CAST] bad. SQLSTATE: 22018\n=== Streaming Query ===\nmore"), "[CAST] bad.", 70),
        (
            FromSpark(
                STREAM + "Job aborted: Traceback (most recent call last):\n  File 'a', line 1\n"
                "hbuf.errors.Locked: hbuf: out: is locked by another writer\n\n\tat org.apache.X: y\n"
            ),
            "out: is locked by another writer",
            75,
        ),
        (
            FromSpark("Traceback (most recent call last):\n  File 'a'\nmodule.Odd: it is odd\nCaused by: x"),
            "Odd: it is odd",
            70,
        ),
        (
            FromSpark(
                "An error occurred while calling o69.start.\n"
                ": org.apache.spark.NoSuch: [X] none. SQLSTATE: 42K02\n\tat a"
            ),
            "[X] none.",
            70,
        ),
        (FromSpark("x" * 1000), "x" * 499 + "…", 70),
        (FromSpark(""), "FromSpark", 70),
    ],
)
def test_reason_is_the_cause_in_one_line(error: Exception, reason: str, code: int) -> None:
    assert reason_of(error) == (reason, code)
