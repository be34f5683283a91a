"""hbuf-append on pipes and files that fail half-way: what was read is stored, or is left to be read again."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import signal
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hbuf
from hbuf.store import fsops

if TYPE_CHECKING:
    from cli.conftest import Bodies, MakeBuffer, Run, WaitUntil

REQUEST = b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\n"


class Pipe:
    """hbuf-append at the end of a pipe that stays open."""

    def __init__(self, run: Run, bodies: Bodies, wait_until: WaitUntil, *options: str) -> None:
        hbuf.open("orders", create=True).close()
        self.process = run.start("hbuf-append", "orders", *options)
        self._bodies = bodies
        self._wait_until = wait_until

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)

    def write_and_see(self, data: bytes, expected: list[bytes]) -> None:
        """Others see the messages while the pipe is open."""
        self.write(data)
        self._wait_until(lambda: self._bodies("orders") == expected, f"{expected} are stored")

    def write_and_let_read(self, data: bytes) -> None:
        """The process has read it all, and may have stored it or not."""
        self.write(data)
        self._wait_until(self._is_empty, "all is read from the pipe")

    def _is_empty(self) -> bool:
        left = array.array("i", [0])
        with open(f"/proc/{self.process.pid}/fd/0", "rb", buffering=0) as pipe:
            fcntl.ioctl(pipe, termios.FIONREAD, left)
        return left[0] == 0

    def end(self) -> tuple[int, bytes, bytes]:
        """Closes the pipe, and waits."""
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err

    def wait(self) -> int:
        """Waits, with the pipe still open."""
        return self.process.wait(timeout=30)

    def is_still_waiting(self) -> bool:
        """Only a moment is given to it: one that ends later than that does not have what the test writes then."""
        try:
            self.process.wait(timeout=0.3)
        except subprocess.TimeoutExpired:
            return True
        return False


@pytest.mark.parametrize("linger", ["0", "20ms", "100ms"])
def test_slow_pipe_each_line_is_seen_while_the_pipe_stays_open(
    run: Run, bodies: Bodies, wait_until: WaitUntil, linger: str
) -> None:
    pipe = Pipe(run, bodies, wait_until, "--linger", linger)
    pipe.write_and_see(b"one\n", [b"one"])
    pipe.write_and_see(b"two\nthree\nfo", [b"one", b"two", b"three"])
    pipe.write_and_see(b"ur\n", [b"one", b"two", b"three", b"four"])
    assert pipe.process.poll() is None
    assert pipe.end() == (0, b"", b"")


def test_receipts_come_while_the_pipe_stays_open(run: Run, bodies: Bodies, wait_until: WaitUntil) -> None:
    pipe = Pipe(run, bodies, wait_until, "-v")
    assert pipe.process.stdout
    for number in (1, 2):
        pipe.write(b"line\n")
        receipt = b""
        while not receipt.endswith(b"\n"):
            receipt += pipe.process.stdout.read(1)
        # What has a receipt is there for every reader at once.
        assert receipt.startswith(b"%d " % number)
        assert len(bodies("orders")) == number
    assert pipe.end() == (0, b"", b"")


def test_separator_that_comes_in_two_pieces_is_found(run: Run, bodies: Bodies, wait_until: WaitUntil) -> None:
    pipe = Pipe(run, bodies, wait_until, "-D", "<SEP>")
    pipe.write_and_see(b"one<SEP>two<SE", [b"one"])
    pipe.write(b"P>three")
    assert pipe.end() == (0, b"", b"")
    assert bodies("orders") == [b"one", b"two", b"three"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signal_between_lines_ends_it_with_all_stored(
    run: Run, bodies: Bodies, wait_until: WaitUntil, number: signal.Signals, code: int
) -> None:
    pipe = Pipe(run, bodies, wait_until)
    pipe.write_and_see(b"one\n", [b"one"])
    pipe.process.send_signal(number)
    assert pipe.wait() == code
    assert pipe.process.stderr
    assert pipe.process.stderr.read() == b""
    assert bodies("orders") == [b"one"]


def test_signal_stores_lines_that_were_read_and_still_wait_for_more(
    run: Run, bodies: Bodies, wait_until: WaitUntil
) -> None:
    pipe = Pipe(run, bodies, wait_until, "--linger", "1h")
    pipe.write_and_let_read(b"one\ntwo\n")
    pipe.process.send_signal(signal.SIGTERM)
    assert pipe.wait() == 0
    assert bodies("orders") == [b"one", b"two"]


@pytest.mark.parametrize(
    ("options", "start", "rest", "expected"),
    [
        ([], b"one\ntw", b"o\n", [b"one", b"two"]),
        (["--json"], b'{"body":"one"}\n{"body":"t', b'wo"}\n', [b"one", b"two"]),
        (["--http"], REQUEST + b"one" + REQUEST + b"t", b"wo", [b"one", b"two"]),
        (["--http"], REQUEST + b"one" + REQUEST[:20], REQUEST[20:] + b"two", [b"one", b"two"]),
    ],
    ids=["line", "JSON line", "body of a request", "head of a request"],
)
def test_signal_in_the_middle_of_a_message_lets_it_be_finished(
    run: Run,
    bodies: Bodies,
    wait_until: WaitUntil,
    options: list[str],
    start: bytes,
    rest: bytes,
    expected: list[bytes],
) -> None:
    pipe = Pipe(run, bodies, wait_until, *options)
    pipe.write_and_see(start, [b"one"])
    pipe.process.send_signal(signal.SIGTERM)
    assert pipe.is_still_waiting()
    pipe.write(rest)
    assert pipe.wait() == 0
    assert bodies("orders") == expected


def test_second_signal_does_not_wait_and_stores_what_there_is_of_the_line(
    run: Run, bodies: Bodies, wait_until: WaitUntil
) -> None:
    pipe = Pipe(run, bodies, wait_until, "--timeout", "1h")
    pipe.write_and_see(b"one\ntw", [b"one"])
    pipe.process.send_signal(signal.SIGTERM)
    assert pipe.is_still_waiting()
    pipe.process.send_signal(signal.SIGTERM)
    assert pipe.wait() == 0
    assert bodies("orders") == [b"one", b"tw"]


def test_signal_does_not_wait_longer_for_the_rest_than_the_timeout(
    run: Run, bodies: Bodies, wait_until: WaitUntil
) -> None:
    pipe = Pipe(run, bodies, wait_until, "--timeout", "10ms")
    pipe.write_and_see(b"one\ntw", [b"one"])
    pipe.process.send_signal(signal.SIGTERM)
    assert pipe.wait() == 0
    assert bodies("orders") == [b"one", b"tw"]


def test_signal_before_the_end_of_atomic_input_stores_nothing(run: Run, bodies: Bodies, wait_until: WaitUntil) -> None:
    pipe = Pipe(run, bodies, wait_until, "--atomic")
    pipe.write_and_let_read(b"one\ntwo\n")
    pipe.process.send_signal(signal.SIGTERM)
    assert pipe.wait() == 75
    assert pipe.process.stderr
    assert pipe.process.stderr.read().endswith(b"; 0 messages were stored\n")
    assert bodies("orders") == []


def test_signal_while_the_buffer_is_paused_still_stores_what_was_read(
    run: Run, make_buffer: MakeBuffer, bodies: Bodies, wait_until: WaitUntil
) -> None:
    make_buffer("orders")
    run("hbuf-pause", "orders")
    pipe = Pipe(run, bodies, wait_until)
    pipe.write_and_let_read(b"one\n")
    pipe.process.send_signal(signal.SIGTERM)
    assert run("hbuf-pause", "--resume", "orders").code == 0
    assert pipe.wait() == 0
    assert bodies("orders") == [b"one"]


def test_paused_buffer_says_that_nothing_of_a_big_file_was_stored(
    run: Run, make_buffer: MakeBuffer, bodies: Bodies
) -> None:
    make_buffer("orders")
    run("hbuf-pause", "orders")
    done = run("hbuf-append", "orders", "--timeout", "100ms", stdin=b"line\n" * 10_000)
    assert (done.code, done.out) == (75, b"")
    assert done.err.splitlines()[0].endswith("; 0 messages were stored")
    assert bodies("orders") == []


@pytest.mark.parametrize("option", ["", "-0", "-D <SEP>"])
def test_file_is_left_where_the_next_run_goes_on(
    run: Run, make_buffer: MakeBuffer, bodies: Bodies, option: str
) -> None:
    make_buffer("orders")
    expected = [b"line %d" % i for i in range(10_000)]
    separator = {"": b"\n", "-0": b"\0", "-D <SEP>": b"<SEP>"}[option]
    Path("lines").write_bytes(separator.join([*expected, b""]))
    options = option.replace("<SEP>", "'<SEP>'")
    done = run.shell(
        f"hbuf-pause orders; {{ hbuf-append orders {options} --timeout 100ms; echo $?;"
        f" hbuf-pause --resume orders; hbuf-append orders {options}; echo $?; }} <lines"
    )
    assert (done.code, done.lines) == (0, ["75", "0"])
    assert bodies("orders") == expected


@pytest.fixture
def fill_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """fill_disk(2): the next two segments find no space. Returns how many of these failures are still to come."""

    def fill(failures: int) -> list[int]:
        rename, left = fsops.rename, [failures]

        def rename_or_fail(source: Path, target: Path) -> None:
            if target.suffix == ".http" and left[0]:
                left[0] -= 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            rename(source, target)

        monkeypatch.setattr(fsops, "rename", rename_or_fail)
        return left

    return fill


PRODUCER = ["--producer", "p", "--producer-seq", "1"]


@pytest.mark.parametrize("producer", [[], PRODUCER], ids=["plain", "producer"])
@pytest.mark.parametrize("failures", [0, 1])
def test_file_is_left_behind_the_messages_that_were_stored(
    run: Run,
    make_buffer: MakeBuffer,
    bodies: Bodies,
    fill_disk: Callable[[int], list[int]],
    producer: list[str],
    failures: int,
) -> None:
    """For a moment there is no space for a second segment; then a line is too long."""
    make_buffer("orders", max_message_bytes="100", segment_messages="6000")
    lines = [b"%060d\n" % i for i in range(25_000)]
    lines[22_000] = b"x" * 101 + b"\n"
    Path("lines").write_bytes(b"before\n" + b"".join(lines))
    to_come = fill_disk(failures)
    with Path("lines").open("rb", buffering=0) as file:
        file.seek(len(b"before\n"))
        done = run("hbuf-append", "orders", *producer, stdin=file)
        stored = bodies("orders")
        assert (done.code, to_come) == (65, [0])
        assert 6000 < len(stored) <= 22_000
        assert stored == [line.rstrip() for line in lines[: len(stored)]]
        assert done.err.splitlines()[0].endswith(f"; {len(stored)} messages were stored")
        assert file.tell() == len(b"before\n") + sum(map(len, lines[: len(stored)]))
        assert run("hbuf-set", "orders", "max_message_bytes=1KiB").code == 0
        assert run("hbuf-append", "orders", stdin=file) == (0, b"", "")
    assert bodies("orders") == [line.rstrip() for line in lines]


@pytest.mark.parametrize("producer", [[], PRODUCER], ids=["plain", "producer"])
@pytest.mark.parametrize("failures", [1, 1000])
def test_each_stored_message_has_its_receipt_also_when_the_disk_is_full(
    run: Run,
    make_buffer: MakeBuffer,
    bodies: Bodies,
    fill_disk: Callable[[int], list[int]],
    producer: list[str],
    failures: int,
) -> None:
    make_buffer("orders", segment_messages="5")
    fill_disk(failures)
    done = run("hbuf-append", "orders", "-v", "--timeout", "300ms", *producer, stdin=b"line\n" * 12)
    stored = len(bodies("orders"))
    assert (done.code, stored) == ((0, 12) if failures == 1 else (75, 5))
    assert [line.split()[0] for line in done.lines] == [str(i + 1) for i in range(stored)]


def test_many_writers_at_once_lose_and_double_nothing(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", segment_messages="50")
    writers = [run.start("hbuf-append", "orders", "-k", f"writer-{w}") for w in range(4)]
    for writer in writers:
        assert writer.stdin
        writer.stdin.write(b"".join(b"%d\n" % i for i in range(300)))
    assert [writer.communicate(timeout=30)[1] for writer in writers] == [b""] * 4
    with hbuf.open("orders") as buffer:
        for w in range(4):
            assert [m.body for m in buffer.read(key=f"writer-{w}")] == [b"%d" % i for i in range(300)]
    assert run("hbuf-verify", "--quiet", "orders").code == 0
