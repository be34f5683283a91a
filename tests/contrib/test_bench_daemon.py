"""contrib/bench/run daemon: with small numbers it measures everything and prints every row. Nothing is judged."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CONTRIB = Path(__file__).parents[2] / "contrib"
BENCH = CONTRIB / "bench" / "run"
HTTPS, UNIX = "hbufd, HTTPS", "hbufd, Unix"
REDIS = {HTTPS: "Redis Streams, TLS", UNIX: "Redis Streams"}
NATS = "NATS JetStream"
GROUPS = [
    "append, one message a request, 1 client",
    "append, one message a request, 32 clients",
    "append, 1,000 messages a request, 1 client",
    "append, 1,000 messages a request, 4 clients",
]


@pytest.fixture
def short_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty directory that has not the name of the test in its path: that of a socket must be short."""
    return tmp_path_factory.mktemp("w")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("bench")
    done = subprocess.run(
        [BENCH, "daemon", "--quick", "--json", "--dir", directory],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not list(directory.iterdir()), "it leaves nothing behind"
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def rows_of(measured: dict[str, Any], group: str) -> dict[tuple[str, str, str], dict[str, Any]]:
    rows = [row for row in measured["rows"] if row["group"].startswith(group)]
    found = {(row["what"], row["beside"], row["unit"]): row for row in rows}
    assert len(found) == len(rows), "no row is there twice"
    return found


def is_installed(program: str) -> bool:
    return any(shutil.which(program, path=path) for path in (None, str(Path(sys.executable).parent)))


def test_what_is_not_installed_is_said(measured: dict[str, Any]) -> None:
    about = measured["machine"]
    assert about["redis"].startswith("not installed") != is_installed("redis-server")
    assert about["nats"].startswith("not installed") != is_installed("nats-server")
    assert "same cores" in about["load"]


@pytest.mark.parametrize("group", GROUPS)
def test_appending_stands_beside_each_yardstick_of_its_transport(measured: dict[str, Any], group: str) -> None:
    rows = rows_of(measured, group)
    for ours, redis in REDIS.items():
        transport = ours.removeprefix("hbufd, ")
        besides = (
            f"ceiling, {transport}",
            f"aiohttp alone, {transport}",
            "hbuf.append, no server",
            "write + fdatasync",
        )
        for beside in besides:
            assert rows[ours, beside, "messages/s"]["ratio"] > 0
        assert (rows[ours, redis, "messages/s"]["beside_value"] is not None) == is_installed("redis-server")
        assert (rows[ours, NATS, "messages/s"]["beside_value"] is not None) == is_installed("nats-server")
        for percent in (50, 99):
            assert rows[f"{ours}, p{percent} of an answer", f"aiohttp alone, {transport}", "ms"]["ratio"] > 0
        assert (f"{ours}, CPU of the server, a message", redis, "µs") in rows


def test_a_signed_buffer_stands_beside_a_plain_one(measured: dict[str, Any]) -> None:
    rows = rows_of(measured, "append to a signed buffer")
    assert set(rows) == {(f"{ours}, signed", f"{ours}, plain", "messages/s") for ours in REDIS}
    assert all(row["ratio"] > 0 for row in rows.values())


def test_a_thousand_buffers_have_a_speed_memory_and_open_files(measured: dict[str, Any]) -> None:
    rows = rows_of(measured, "append to 100 buffers")
    for ours, redis in REDIS.items():
        assert rows[ours, f"{ours}, 1 buffer", "messages/s"]["ratio"] > 0
        assert (ours, redis, "messages/s") in rows
    assert rows["hbufd, memory", "before them", "MB"]["value"] > 0
    assert rows["hbufd, open files", "before them", "files"]["value"] > 0


def test_reading_in_each_form_stands_beside_the_files(measured: dict[str, Any]) -> None:
    assert set(rows_of(measured, "read")) == {
        (f"{ours}, {form}", "read() of its files", unit)
        for ours in REDIS
        for form in ("http", "x-ndjson", "octet-stream")
        for unit in ("messages/s", "MB/s of segments")
    }


def test_live_readers_have_percentiles_from_before_the_append(measured: dict[str, Any]) -> None:
    rows = rows_of(measured, "live")
    for ours in REDIS:
        for watch in ("event stream", "wait="):
            said = f"{ours}, {watch}"
            times = {
                what.removeprefix(f"{said}, "): row["value"]
                for (what, _, _), row in rows.items()
                if what.startswith(f"{said}, ")
            }
            assert set(times) == {
                f"{moment}, p{percent}" for moment in ("acknowledged", "seen") for percent in (50, 99)
            }
            assert 0 < times["acknowledged, p50"] <= times["acknowledged, p99"]
            assert 0 < times["seen, p50"] <= times["seen, p99"]


def test_a_profile_names_where_the_daemon_spends_its_time(tmp_path: Path, short_path: Path) -> None:
    file, work = tmp_path / "profile", short_path
    done = subprocess.run(
        [BENCH, "daemon", "--quick", "--profile", file, "--dir", work],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not list(work.iterdir()), "it leaves nothing behind"
    said = file.read_text()
    assert "tottime" in said
    assert "fdatasync" in said, "the threads that write are in it"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_in_the_middle_it_leaves_no_server_and_no_file(short_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [BENCH, "daemon", "--only", "append", "--dir", short_path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    # The first group has begun: all servers are there.
    assert any("bench: append" in line for line in process.stderr)
    assert _working_in(short_path)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    assert not list(short_path.iterdir())
    assert not _working_in(short_path)


def _working_in(directory: Path) -> list[str]:
    """The commands of processes that were given a path in `directory`."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and process.name != str(os.getpid()):
            try:
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if f"{directory}/hbuf-bench-" in command:
                found.append(command)
    return found
