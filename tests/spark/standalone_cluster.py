"""A Spark cluster of one's own: a master and two workers as processes, with a core each, on 127.0.0.1."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

from hbuf.spark.java import java_home

SPARK_HOME = Path(pyspark.__file__).parent
_START_SECONDS = 60
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master")


@dataclass
class Cluster:
    url: str
    workers: list[int]  # the process that leads a worker's session: its executors and their Python are in it
    environment: dict[str, str]

    def submit(self, *words: str, log: Path) -> subprocess.Popen[bytes]:
        """spark-submit, with what a job of tests needs."""
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executorEnv.JAVA_HOME": self.environment["JAVA_HOME"],  # a worker itself knows only the real one
            "spark.ui.enabled": "false",
        }
        conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command = [str(SPARK_HOME / "bin/spark-submit"), "--master", self.url, *conf, *words]
        return _start(command, self.environment, log)


@contextlib.contextmanager
def standalone_cluster(folder: Path, kill_session: Any, environment: dict[str, str]) -> Iterator[Cluster]:
    """It is gone after the block, with all that it has started, and so are the jobs that were submitted to it."""
    started: list[subprocess.Popen[bytes]] = []

    def daemon(name: str, *words: str) -> Path:
        log = folder / f"{name}-{len(started)}.log"
        command = [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{name.lower()}.{name}"]
        started.append(_start([*command, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *words], own, log))
        return log

    # Executors are started with this Java, too: it is there as long as the workers are.
    with java_home(os.environ) as home:
        own = environment | {
            "JAVA_HOME": str(home),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_DAEMON_MEMORY": "256m",
            "TMPDIR": str(folder),
        }
        try:
            master = _wait_for(_MASTER, daemon("Master"))[1]
            logs = []
            for number in range(2):
                work = str(folder / f"work-{number}")
                logs.append(daemon("Worker", "--cores", "1", "--memory", "1g", "--work-dir", work, master))
            for log in logs:
                _wait_for(_REGISTERED, log)
            yield Cluster(master, [worker.pid for worker in started[1:]], own)
        finally:
            for process in started:
                kill_session(process.pid)
                process.wait()


def _start(command: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )


def _wait_for(pattern: re.Pattern[str], log: Path) -> re.Match[str]:
    deadline = time.monotonic() + _START_SECONDS
    while not (found := pattern.search(log.read_text())):
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.05)
    return found
