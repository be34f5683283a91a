"""hbuf-pipeline as real processes with a Spark of their own: silence, signals, and a kill in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from spark.pipelines.conftest import Bodies, Fill

DEADLINE_SECONDS = 120
UPPER = "sql = '''select key, upper(decode(body, 'UTF-8')) as body from input'''"

Start = Callable[..., subprocess.Popen[bytes]]


def command(program: str, *arguments: str) -> list[str]:
    """The program from this tree, be it installed or not."""
    return [sys.executable, "-c", f"from hbuf.cli.{program} import main; main()", *arguments]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """start("run", "shop.toml"): hbuf-pipeline as a process that goes on. At the end none of its processes is left."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command("pipeline", *arguments),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_until(condition: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    """Waits for a condition that a process must make true."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def events(bodies: Bodies, stage: str) -> list[str]:
    """What the log says that happened to a stage."""
    told = map(json.loads, bodies(".shop-state/_pipelines"))
    return [each["event"] for each in told if each["stage"] == stage]


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes, str]:
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    return process.returncode, out, err.decode()


def test_killed_in_the_middle_the_next_run_goes_on_and_every_message_is_there_once(
    fill: Fill, bodies: Bodies, start: Start, tmp_path: Path
) -> None:
    """And that next run follows what is appended, takes up a rerun, and ends on an interrupt: one start of Spark."""
    fill("orders", [f"message {number}" for number in range(100)])
    (tmp_path / "shop.toml").write_text(f"""
[pipeline]
retries = 0

[stages.upper]
input = "orders"
{UPPER}
output = "upper"
input_options = {{maxRowsPerTrigger = 25}}

[stages.broken]
input = "orders"
sql = "select string(assert_true(seq > 5, 'too early')) as body from input"
output = "broken"
after = ["upper"]
""")
    process = start("run", "--once", "shop.toml")
    wait_until(lambda: len(bodies("upper")) >= 25, process)
    # Its Java process, which may be in the middle of a batch, finds out by itself; the next run waits for that.
    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    process = start("run", "shop.toml")
    wait_until(lambda: "finished" in events(bodies, "upper"), process)
    expected = [f"MESSAGE {number}" for number in range(100)]
    assert bodies("upper") == expected

    append = subprocess.run(
        command("append", "orders"), cwd=tmp_path, input=b"one more\n", capture_output=True, check=True
    )
    assert append.stderr == b""
    wait_until(lambda: events(bodies, "upper").count("finished") == 2, process)
    second = ended(start("run", "shop.toml"))
    assert second == (75, b"", f"hbuf-pipeline: shop.toml: is being run by process {process.pid}\n")
    code, _, said = ended(start("rerun", "shop.toml", "upper", "--from", "100"))
    assert (code, said) == (
        0,
        "hbuf-pipeline: shop.toml: the run that is under way, or the next one, reruns stage upper\n",
    )
    wait_until(lambda: events(bodies, "upper").count("finished") == 3, process)
    assert bodies("upper") == [*expected, "ONE MORE", "MESSAGE 99", "ONE MORE"]
    wait_until(lambda: "failed" in events(bodies, "broken"), process)

    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    assert (code, out) == (130, b"")
    [line] = err.splitlines()
    assert line.startswith("hbuf-pipeline: shop.toml: stage broken: ")
    assert "too early" in line

    status = subprocess.run(
        command("pipeline", "status", "--json", "shop.toml"), cwd=tmp_path, capture_output=True, check=True
    )
    states = {each["stage"]: each for each in map(json.loads, status.stdout.splitlines())}
    assert (states["upper"]["state"], states["upper"]["lag"]) == ("done", 0)
    assert states["broken"]["state"] == "failed"
    log = subprocess.run(
        command("tail", "-o", "first", "--key", "upper", ".shop-state/_pipelines"),
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    told = [json.loads(line)["event"] for line in log.stdout.splitlines()]
    once = ["started", "finished"]
    assert told == ["started", *once, *once, "rerun", *once]  # the first was killed

    # With nothing left to do it ends at once, and says nothing.
    (tmp_path / "shop.toml").write_text((tmp_path / "shop.toml").read_text().partition("[stages.broken]")[0])
    assert ended(start("run", "--once", "shop.toml")) == (0, b"", "")
    assert len(bodies("upper")) == 103
