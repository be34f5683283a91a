"""A standalone cluster, whose executors have hbuf from an archive that the job sends; one of its workers dies."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hbuf

from .standalone_cluster import Cluster, standalone_cluster

REPOSITORY = Path(__file__).parents[2]
MESSAGES = 400
PATIENCE_SECONDS = 120

# Each task says where it runs and where its hbuf is from, and waits for its permission to go on.
JOB = """\
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

source, target, tasks = sys.argv[1:]


def held(body):
    import hbuf

    Path(tasks, str(os.getsid(0))).write_text(hbuf.__file__)
    while not Path(tasks, "go").exists():
        time.sleep(0.05)
    return body


spark = SparkSession.builder.appName("a job on a cluster").getOrCreate()
frame = spark.read.format("hbuf").option("splitBytes", "16KiB").load(source)
body = F.udf(held, "binary", useArrow=False)("body")
frame.select("key", body.alias("body")).write.format("hbuf").mode("append").save(target)
"""


def make_archive(path: Path) -> Path:
    """What a wheel has: the packages side by side."""
    with zipfile.ZipFile(path, "w") as archive:
        for package in ("hbuf", "pyspark_hbuf"):
            for file in (REPOSITORY / package).rglob("*"):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(REPOSITORY))
    return path


def submit(cluster: Cluster, folder: Path) -> subprocess.Popen[bytes]:
    (folder / "job.py").write_text(JOB)
    archive = make_archive(folder / "hbuf.zip")
    words = ["--files", str(archive), "--conf", f"spark.executorEnv.PYTHONPATH={archive.name}"]
    words += [str(folder / name) for name in ("job.py", "orders", "copy", "tasks")]
    return cluster.submit(*words, log=folder / "job.log")


def test_a_worker_dies_while_a_stage_runs_and_the_job_stores_every_row_once_and_in_order(
    soak: Callable[[str], Any], tmp_path: Path
) -> None:
    kill_session = soak("sessions").kill_session
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    with hbuf.create(tmp_path / "orders", segment_messages="100") as buffer:
        buffer.append_many(hbuf.draft(b"%d" % k, key=f"key-{k % 7}") for k in range(MESSAGES))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK_"))}
    environment |= {"PYSPARK_PYTHON": sys.executable}

    with standalone_cluster(tmp_path, kill_session, environment) as cluster:
        # The job's own process has hbuf as this one has it.
        cluster.environment["PYTHONPATH"] = str(REPOSITORY)
        job = submit(cluster, tmp_path)
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while {path.name for path in tasks.iterdir()} != set(map(str, cluster.workers)):
                assert job.poll() is None, (tmp_path / "job.log").read_text()[-2000:]
                assert time.monotonic() < deadline, "not every worker has a task"
                time.sleep(0.05)
            packages = {path.read_text() for path in tasks.iterdir()}
            kill_session(cluster.workers[0])
            (tasks / "go").touch()
            assert job.wait(PATIENCE_SECONDS) == 0, (tmp_path / "job.log").read_text()[-2000:]
        finally:
            kill_session(job.pid)
            job.wait()

    assert all(f"{tmp_path}/work-" in package and "/hbuf.zip/" in package for package in packages)
    copied = [(message.key, message.body) for message in hbuf.open(tmp_path / "copy").read()]
    assert copied == [(f"key-{k % 7}", b"%d" % k) for k in range(MESSAGES)]
    assert hbuf.open(tmp_path / "copy").verify().ok
