"""hbuf-pause: nothing in the directory changes while it holds, and it ends with its command, whatever ends that."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.conftest import Bodies, MakeBuffer, Run, WaitUntil

Snapshot = dict[str, tuple[int, int, bytes]]
# Says that it runs, then waits until the test lets it go on.
WAIT_FOR_GO = "touch running; while [ ! -e go ]; do sleep 0.02; done"


@pytest.fixture(autouse=True)
def orders(make_buffer: MakeBuffer) -> Path:
    return make_buffer("orders", [b"one", b"two", b"three"], segment_messages="2")


def snapshot(path: Path) -> Snapshot:
    """Every name below a directory, with size, time of change, and bytes."""
    found = {}
    for each in [path, *path.rglob("*")]:
        status = each.stat()
        found[str(each)] = (status.st_size, status.st_mtime_ns, each.read_bytes() if each.is_file() else b"")
    return found


def state(run: Run) -> str:
    """As hbuf-ls shows it: a pause that does not hold stands behind the state in brackets."""
    return run("hbuf-ls", "orders").lines[0].split("\t")[-1]


@pytest.mark.over_https
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
        (["sh", "-c", "kill -KILL $$"], 128 + signal.SIGKILL),
        (["./no-such-command"], 127),
        (["./orders"], 126),
    ],
    ids=str,
)
def test_exit_code_is_that_of_the_command_and_the_pause_is_over(
    run: Run, bodies: Bodies, command: list[str], code: int
) -> None:
    done = run.real("hbuf-pause", "orders", "--", *command)
    assert (done.code, done.out) == (code, b"")
    # Only a command that cannot be run has to be told of; the others tell themselves.
    assert [line.split(":")[:2] for line in done.err.splitlines()] == (
        [["hbuf-pause", f" {command[0]}"]] if code in (126, 127) else []
    )
    assert not Path("orders/paused").exists()
    assert run("hbuf-append", "orders", "--timeout", "0s", stdin=b"four\n") == (0, b"", "")
    assert bodies("orders")[-1] == b"four"


@pytest.mark.over_https
def test_command_has_the_standard_streams_and_its_arguments_as_they_are(run: Run) -> None:
    script = 'cat; echo "$1"; echo oops >&2'
    done = run.real("hbuf-pause", "orders", "--", "sh", "-c", script, "sh", "--resume", stdin=b"in\n")
    assert done == (0, b"in\n--resume\n", "oops\n")


def test_no_command_behind_the_dashes_is_2(run: Run) -> None:
    done = run.real("hbuf-pause", "orders", "--")
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("hbuf-pause: there is no command behind --")
    assert not Path("orders/paused").exists()


def test_nothing_changes_while_paused_and_the_waiting_append_goes_through_afterwards(
    run: Run, orders: Path, bodies: Bodies, wait_until: WaitUntil
) -> None:
    # What a crash left is put right by the next writer, but not while paused.
    newest = orders / "segments/00000000000000000003.http"
    with newest.open("ab") as file:
        file.write(b"POST /b/orders HTTP/1.1\r\nhost: hb")
    (orders / "segments/00000000000000000001.tags").unlink()
    pause = run.start("hbuf-pause", "orders", "--reason", "backup", "--", "sh", "-c", WAIT_FOR_GO)
    wait_until(lambda: Path("running").exists(), "the command runs")
    before = snapshot(orders)
    writer = run.start("hbuf-append", "orders", "-v")
    assert writer.stdin
    writer.stdin.write(b"four\nfive\n")
    wait = ["--timeout", "100ms"]
    for command in (
        ["hbuf-append", "orders", *wait],
        ["hbuf-append", "orders", *wait, "--fsync", "never"],
        ["hbuf-set", "orders", *wait, "segment_messages=9"],
        ["hbuf-close", "orders", *wait],
        ["hbuf-reindex", "orders", *wait],
        ["hbuf-pause", "orders", *wait, "--", "touch", "ran"],
    ):
        refused = run.real(*command, stdin=b"no\n")
        assert refused.code == 75, command
        assert "is paused" in refused.err
        assert "backup" in refused.err
    assert not Path("ran").exists()
    for command in (["hbuf-tail", "orders"], ["hbuf-grep", "one", "orders"], ["hbuf-ls"]):
        assert run(*command).code == 0
    run("hbuf-verify", "orders")
    assert snapshot(orders) == before
    assert state(run) == "paused"
    assert writer.poll() is None
    Path("go").touch()
    assert pause.wait(timeout=30) == 0
    out, err = writer.communicate(timeout=30)
    assert writer.returncode == 0
    assert [line.split()[0] for line in out.splitlines()] == [b"4", b"5"]
    assert b"set aside" in err
    assert bodies("orders") == [b"one", b"two", b"three", b"four", b"five"]
    assert run("hbuf-verify", "-q", "orders").code == 0


@pytest.mark.over_https
def test_batch_that_is_being_written_is_waited_for(run: Run, bodies: Bodies, wait_until: WaitUntil) -> None:
    writer = run.start("hbuf-append", "orders", "--fsync", "always")
    assert writer.stdin
    writer.stdin.write(b"".join(b"%d\n" % i for i in range(300)))
    wait_until(lambda: len(bodies("orders")) > 10, "the writer is at work")
    done = run.real("hbuf-pause", "orders", "--", "sh", "-c", "hbuf-verify -q orders && cp -r orders copy")
    assert done == (0, b"", "")
    _, err = writer.communicate(timeout=30)
    assert (writer.returncode, err) == (0, b"")
    assert bodies("orders")[3:] == [b"%d" % i for i in range(300)]
    assert run("hbuf-verify", "-q", "copy").code == 0


@pytest.mark.over_https
def test_pause_by_hand_stays_until_resume(run: Run, bodies: Bodies) -> None:
    assert run("hbuf-pause", "orders", "--reason", "moving disks") == (0, b"", "")
    marker = json.loads(Path("orders/paused").read_text())
    assert (marker["why"], "command" in marker) == ("moving disks", False)
    assert {"who", "when", "host", "boot", "pid"} <= marker.keys()
    assert run("hbuf-append", "orders", "--timeout", "50ms", stdin=b"no\n").code == 75
    assert run("hbuf-pause", "--resume", "orders") == (0, b"", "")
    assert run("hbuf-append", "orders", stdin=b"four\n") == (0, b"", "")
    assert bodies("orders") == [b"one", b"two", b"three", b"four"]


@pytest.mark.over_https
def test_pause_by_hand_is_kept_by_a_command_that_runs_under_it(run: Run) -> None:
    run("hbuf-pause", "orders")
    done = run.real("hbuf-pause", "orders", "--", "sh", "-c", "echo ran; exit 3")
    assert (done.code, done.out) == (3, b"ran\n")
    assert "is paused already" in done.err
    assert state(run) == "paused"


@pytest.mark.over_https
def test_resume_without_a_pause_is_no_error(run: Run) -> None:
    assert run("hbuf-pause", "--resume", "orders") == (0, b"", "")


@pytest.mark.over_https
def test_second_command_waits_for_the_first(run: Run, wait_until: WaitUntil) -> None:
    first = run.start("hbuf-pause", "orders", "--", "sh", "-c", WAIT_FOR_GO)
    wait_until(lambda: Path("running").exists(), "the first command runs")
    second = run.start("hbuf-pause", "orders", "--", "touch", "second")
    Path("go").touch()
    assert (first.wait(timeout=30), second.wait(timeout=30)) == (0, 0)
    assert Path("second").exists()
    assert not Path("orders/paused").exists()


@pytest.mark.over_https
def test_resume_while_the_command_runs_is_told_with_75(run: Run, wait_until: WaitUntil) -> None:
    pause = run.start("hbuf-pause", "orders", "--", "sh", "-c", WAIT_FOR_GO)
    wait_until(lambda: Path("running").exists(), "the command runs")
    assert run("hbuf-pause", "--resume", "orders").code == 0
    Path("go").touch()
    _, err = pause.communicate(timeout=30)
    assert pause.returncode == 75
    assert b"orders: was resumed by somebody else" in err


def kill_pause_and_its_command(pause: subprocess.Popen[bytes]) -> None:
    os.killpg(pause.pid, signal.SIGKILL)
    pause.wait()


def test_marker_of_a_killed_command_is_stale_is_said_and_does_not_hold(
    run: Run, bodies: Bodies, wait_until: WaitUntil
) -> None:
    pause = run.start("hbuf-pause", "orders", "--reason", "backup", "--", "sh", "-c", WAIT_FOR_GO)
    wait_until(lambda: Path("running").exists(), "the command runs")
    kill_pause_and_its_command(pause)
    wait_until(lambda: state(run) == "open (stale pause)", "nobody holds the marker")
    done = run("hbuf-append", "orders", "--timeout", "0s", stdin=b"four\n")
    assert (done.code, done.out) == (0, b"")
    assert done.err.startswith("hbuf-append: orders: the pause ")
    assert "backup" in done.err
    assert len(done.err.splitlines()) == 1
    assert not Path("orders/paused").exists()
    assert run("hbuf-append", "orders", stdin=b"five\n") == (0, b"", "")
    assert bodies("orders") == [b"one", b"two", b"three", b"four", b"five"]


def test_killed_hbuf_pause_leaves_the_pause_to_its_command(run: Run, wait_until: WaitUntil) -> None:
    pause = run.start("hbuf-pause", "orders", "--", "sh", "-c", WAIT_FOR_GO)
    wait_until(lambda: Path("running").exists(), "the command runs")
    pause.kill()
    pause.wait()
    # The command still reads the files: they must not change under it.
    assert run("hbuf-append", "orders", "--timeout", "100ms", stdin=b"no\n").code == 75
    assert state(run) == "paused"
    Path("go").touch()
    wait_until(lambda: state(run) == "open (stale pause)", "the command ends")
    assert run("hbuf-append", "orders", "--timeout", "0s", stdin=b"four\n").code == 0


@pytest.mark.over_https
def test_tar_taken_while_paused_restores_verifies_and_is_not_paused(
    run: Run, bodies: Bodies, wait_until: WaitUntil
) -> None:
    writer = run.start("hbuf-append", "orders")
    assert writer.stdin
    script = f"{WAIT_FOR_GO}; tar cf backup.tar orders"
    pause = run.start("hbuf-pause", "orders", "--", "sh", "-c", script)
    wait_until(lambda: Path("running").exists(), "the command runs")
    writer.stdin.write(b"four\n" * 100)
    assert run("hbuf-append", "orders", "--timeout", "50ms", stdin=b"no\n").code == 75
    Path("go").touch()
    assert pause.wait(timeout=30) == 0
    assert writer.communicate(timeout=30)[1] == b""
    assert len(bodies("orders")) == 103
    assert run.shell("mkdir restored && tar xf backup.tar -C restored") == (0, b"", "")
    assert Path("restored/orders/paused").exists()
    assert run("hbuf-verify", "-q", "restored/orders").code == 0
    assert bodies("restored/orders") == [b"one", b"two", b"three"]
    done = run("hbuf-append", "restored/orders", "--timeout", "0s", stdin=b"four\n")
    assert done.code == 0
    assert "the pause" in done.err
    assert bodies("restored/orders") == [b"one", b"two", b"three", b"four"]


@pytest.mark.over_https
def test_restored_pause_by_hand_is_still_one(run: Run) -> None:
    run("hbuf-pause", "orders")
    assert run.shell("cp -r orders restored").code == 0
    assert run("hbuf-append", "restored", "--timeout", "50ms", stdin=b"no\n").code == 75


@pytest.mark.over_https
def test_several_buffers_are_paused_and_resumed_together(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("payments")
    script = "for b in orders payments; do hbuf-append $b --timeout 0s </dev/null; test -e $b/paused && echo $b; done"
    done = run.real("hbuf-pause", "orders", "payments", "--", "sh", "-c", script)
    assert (done.code, done.out) == (0, b"orders\npayments\n")
    assert [Path(name, "paused").exists() for name in ("orders", "payments")] == [False, False]
    assert run("hbuf-pause", "orders", "payments").code == 0
    assert [Path(name, "paused").exists() for name in ("orders", "payments")] == [True, True]
    assert run("hbuf-pause", "--resume", "orders", "payments").code == 0
    assert [Path(name, "paused").exists() for name in ("orders", "payments")] == [False, False]


@pytest.mark.over_https
def test_missing_one_of_several_pauses_none_and_runs_nothing(run: Run) -> None:
    done = run.real("hbuf-pause", "orders", "missing", "--", "touch", "ran")
    assert (done.code, done.err) == (66, "hbuf-pause: missing: there is no such buffer\n")
    assert not Path("ran").exists()
    assert not Path("orders/paused").exists()


@pytest.mark.over_https
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_both_ends_the_command_and_the_pause(run: Run, wait_until: WaitUntil, number: signal.Signals) -> None:
    pause = run.start("hbuf-pause", "orders", "--", "sh", "-c", WAIT_FOR_GO)
    wait_until(lambda: Path("running").exists(), "the command runs")
    os.killpg(pause.pid, number)
    assert pause.wait(timeout=30) in (128 + number, -number)
    wait_until(lambda: state(run) != "paused", "the pause is over")
    assert run("hbuf-append", "orders", "--timeout", "0s", stdin=b"four\n").code == 0


@pytest.mark.over_https
def test_interrupted_command_decides_the_exit_code(run: Run, wait_until: WaitUntil) -> None:
    script = f"trap 'exit 9' INT; {WAIT_FOR_GO}"
    pause = run.start("hbuf-pause", "orders", "--", "sh", "-c", script)
    wait_until(lambda: Path("running").exists(), "the command runs")
    os.killpg(pause.pid, signal.SIGINT)
    assert pause.communicate(timeout=30) == (b"", b"")
    assert pause.returncode == 9
    assert not Path("orders/paused").exists()
