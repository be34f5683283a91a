"""The library in real processes: two that write at once, one that is killed, and what an import costs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import hbuf

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 30
GOLDEN = ROOT / "tests" / "golden"

WRITER = """
import sys, hbuf
path, name = sys.argv[1:]
with hbuf.open(path, create=True) as buffer:
    for number in range(1, 101):
        receipt = buffer.append(f"{name} {number}".encode(), key=name, producer=name, producer_seq=number)
        print(receipt.seq, receipt.id, flush=True)
"""

FOLLOWER = """
import sys, hbuf
with hbuf.open(sys.argv[1]) as buffer:
    for message in buffer.follow("first"):
        print(message.body.decode(), flush=True)
"""

MODULES = """
import json, sys
{code}
print(json.dumps([name for name in ("typer", "click", "rich", "watchdog", "blake3") if name in sys.modules]))
"""


def python(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )


def output(code: str, *arguments: str | Path) -> str:
    with python(code, *arguments) as process:
        said, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0
    return said


def loaded_by(code: str) -> list[str]:
    """Which of the costly packages are loaded after `code` has run."""
    found = json.loads(output(MODULES.format(code=code)))
    assert isinstance(found, list)
    return found


def test_two_processes_write_to_one_buffer_and_every_receipt_is_true(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    with python(WRITER, path, "a") as one, python(WRITER, path, "b") as two:
        said = [process.communicate(timeout=TIMEOUT_SECONDS)[0] for process in (one, two)]
    receipts = {int(line.split()[0]): line.split()[1] for text in said for line in text.splitlines()}
    with hbuf.open(path) as buffer:
        assert {message.seq: message.id for message in buffer.read()} == receipts
        assert sorted(receipts) == list(range(1, 201))
        for name in ("a", "b"):
            assert [message.body.decode() for message in buffer.read(key=name)] == [
                f"{name} {number}" for number in range(1, 101)
            ]
        assert buffer.verify().ok


def test_writer_that_is_killed_and_started_again_stores_every_message_once(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    with python(WRITER, path, "a") as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline().split() for _ in range(20)]
        process.send_signal(signal.SIGKILL)
        acknowledged += [
            line.split() for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")
        ]
    again = output(WRITER, path, "a").splitlines()
    with hbuf.open(path) as buffer:
        stored = {message.seq: message.id for message in buffer.read()}
        assert [message.body.decode() for message in buffer.read()] == [f"a {number}" for number in range(1, 101)]
        assert buffer.verify().ok
    assert all(stored[int(seq)] == record_id for seq, record_id in acknowledged)
    assert len(again) == 100


def test_follower_in_another_process_sees_what_is_appended(tmp_path: Path) -> None:
    with hbuf.create(tmp_path / "orders", segment_messages="2") as buffer:
        buffer.append(b"before")
        with python(FOLLOWER, tmp_path / "orders") as follower:
            assert follower.stdout is not None
            # Killed, it ends the pipe: a message that never comes is an empty line, and not a test that hangs.
            alarm = threading.Timer(TIMEOUT_SECONDS, follower.kill)
            alarm.start()
            assert follower.stdout.readline() == "before\n"
            for number in range(5):
                buffer.append(b"%d" % number)
                assert follower.stdout.readline() == f"{number}\n"
            alarm.cancel()
            follower.kill()


def test_importing_hbuf_loads_nothing_costly() -> None:
    assert loaded_by("import hbuf") == []


def test_importing_the_whole_library_loads_nothing_costly() -> None:
    assert loaded_by("import hbuf; hbuf.open, hbuf.Buffer, hbuf.Message, hbuf.draft(b'')") == []


def test_buffer_of_sha256_is_written_followed_and_verified_without_blake3(tmp_path: Path) -> None:
    code = f"""
import hbuf
with hbuf.create({str(tmp_path / "audit")!r}, hash="sha256") as buffer:
    buffer.append(b"one", key="k")
    assert [message.body for message in buffer.read(key="k")] == [b"one"]
    assert buffer.verify().ok
"""
    assert loaded_by(code) == []


def test_only_following_loads_watchdog(tmp_path: Path) -> None:
    code = f"""
import hbuf
with hbuf.create({str(tmp_path / "audit")!r}, hash="sha256") as buffer:
    buffer.append(b"one")
    next(buffer.follow("first"))
"""
    assert loaded_by(code) == ["watchdog"]


@pytest.mark.parametrize("reading", ["list(buffer.read())", "list(buffer.read('@1h', key='user-17', pattern='a'))"])
def test_reading_a_buffer_of_blake3_needs_no_blake3(reading: str) -> None:
    code = f"""
import sys
sys.modules["blake3"] = None  # importing it fails
import hbuf
with hbuf.open({str(GOLDEN / "orders")!r}) as buffer:
    {reading}
del sys.modules["blake3"]
"""
    assert loaded_by(code) == []


def test_appending_to_a_buffer_of_blake3_loads_blake3_and_nothing_else_that_is_costly(tmp_path: Path) -> None:
    code = f"import hbuf; hbuf.open({str(tmp_path / 'orders')!r}, create=True).append(b'one')"
    assert loaded_by(code) == ["blake3"]
