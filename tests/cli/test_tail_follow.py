"""hbuf-tail -f: goes on as messages come, costs nothing while none do, and ends quietly."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hbuf

if TYPE_CHECKING:
    from cli.conftest import MakeBuffer, Run, WaitUntil


def next_line(process: subprocess.Popen[bytes]) -> bytes:
    """The next line that it writes. A test that waits for one in vain is ended by its deadline."""
    assert process.stdout
    os.set_blocking(process.stdout.fileno(), False)
    line, deadline = b"", time.monotonic() + 30
    while not line.endswith(b"\n"):
        assert time.monotonic() < deadline, f"no line came: {line!r}"
        line += process.stdout.read(1) or b""
        if not line:
            time.sleep(0.005)
    return line.rstrip()


def append(body: bytes, key: str | None = None) -> None:
    with hbuf.open("orders") as buffer:
        buffer.append(body, key=key)


@pytest.mark.over_https
@pytest.mark.parametrize("options", [[], ["--poll"]], ids=["inotify", "poll"])
def test_each_message_of_another_process_is_shown_across_new_segments(
    run: Run, make_buffer: MakeBuffer, options: list[str]
) -> None:
    make_buffer("orders", [b"before 1", b"before 2", b"before 3"], segment_messages="2")
    process = run.start("hbuf-tail", "-f", *options, "-n", "2", "orders")
    assert [next_line(process), next_line(process)] == [b"before 2", b"before 3"]
    writer = run.start("hbuf-append", "orders")
    assert writer.stdin
    for i in range(7):
        writer.stdin.write(b"line %d\n" % i)
        assert next_line(process) == b"line %d" % i
    assert len(list(Path("orders/segments").glob("*.http"))) == 5
    assert process.poll() is None


@pytest.mark.over_https
def test_many_at_once_are_all_shown_in_order(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", segment_messages="70")
    process = run.start("hbuf-tail", "-f", "-o", "first", "-c", "1000", "orders")
    lines = b"".join(b"line %d\n" % i for i in range(1000))
    assert run("hbuf-append", "orders", "--fsync", "always", stdin=lines).code == 0
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, lines, b"")


@pytest.mark.over_https
def test_only_what_is_wanted_is_shown(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", [hbuf.draft(b"before", key="k")], segment_messages="2")
    process = run.start("hbuf-tail", "-f", "--key", "k", "-g", "[a-z]", "orders")
    assert next_line(process) == b"before"
    append(b"other", key="other")
    append(b"1", key="k")
    append(b"mine", key="k")
    append(b"again", key="k")
    assert [next_line(process), next_line(process)] == [b"mine", b"again"]


@pytest.mark.over_https
def test_count_ends_it(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", [b"1"])
    process = run.start("hbuf-tail", "-f", "-c", "2", "orders")
    assert next_line(process) == b"1"
    assert process.poll() is None
    append(b"2")
    assert process.wait(timeout=30) == 0
    assert next_line(process) == b"2"


@pytest.mark.over_https
def test_a_place_ahead_is_waited_for(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", [b"1"])
    process = run.start("hbuf-tail", "-f", "-o", "3", "-c", "1", "orders")
    for body in (b"2", b"3", b"4"):
        append(body)
    assert process.communicate(timeout=30) == (b"3\n", b"")
    assert process.returncode == 0


def cpu_ticks(pid: int) -> int:
    """User and system time that a process and its threads have used, in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.over_https
@pytest.mark.parametrize("options", [[], ["--poll"]], ids=["inotify", "poll"])
def test_it_uses_no_processor_while_nothing_comes(run: Run, make_buffer: MakeBuffer, options: list[str]) -> None:
    make_buffer("orders", [b"1"])
    process = run.start("hbuf-tail", "-f", *options, "orders")
    assert next_line(process) == b"1"
    time.sleep(0.3)  # what it does at its start is over
    before = cpu_ticks(process.pid)
    time.sleep(1)
    assert process.poll() is None
    assert cpu_ticks(process.pid) - before <= 5
    append(b"2")
    assert next_line(process) == b"2"


@pytest.mark.over_https
@pytest.mark.parametrize("options", [[], ["--poll"], ["--json"], ["--http"]], ids=" ".join)
def test_closed_pipe_ends_it_quietly_with_its_next_write(
    run: Run, make_buffer: MakeBuffer, wait_until: WaitUntil, options: list[str]
) -> None:
    make_buffer("orders", [b"1"])
    process = run.start("hbuf-tail", "-f", *options, "orders")
    assert process.stdout
    assert process.stderr
    assert next_line(process)
    process.stdout.close()
    append(b"2")
    wait_until(lambda: process.poll() is not None, "it ends")
    assert (process.returncode, process.stderr.read()) == (0, b"")


@pytest.mark.over_https
def test_interrupt_ends_it_with_130_and_no_words(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", [b"1"])
    process = run.start("hbuf-tail", "-f", "orders")
    assert next_line(process) == b"1"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == 130


@pytest.mark.over_https
def test_writer_that_is_killed_leaves_the_follower_well(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", segment_messages="3")
    process = run.start("hbuf-tail", "-f", "orders")
    for round_ in range(3):
        writer = run.start("hbuf-append", "orders")
        assert writer.stdin
        writer.stdin.write(b"%d\n" % round_)
        assert next_line(process) == b"%d" % round_
        writer.kill()
        writer.wait()
    append(b"last")
    assert next_line(process) == b"last"
