"""Runs the commands: in this process where that can serve, as real processes where signals, pipes or terminals matter.

A start of Python costs a tenth of a second, so most tests run the entry points in this process.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import pty
import signal
import site
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import pytest
import pytest_console_scripts
from pytest_console_scripts import ScriptRunner

import hbuf
from hbuf.format.message import Draft

from .places import Places

if TYPE_CHECKING:
    from running_daemon import RunningDaemon

DEADLINE_SECONDS = 30
Argument = str | Path


class Ran(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().removesuffix("\n").split("\n") if self.out else []


class ByteStream(io.TextIOWrapper):
    """Stands for a standard stream of a command that runs in this process. Commands write bytes, so it has a buffer."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, encoding="utf-8", errors="surrogateescape", newline="", write_through=True)

    def getvalue(self) -> str:
        return self._bytes.getvalue().decode("utf-8", "surrogateescape")


class Run:
    """`run(...)` in this process, `run.real(...)` as a process, `run.start(...)` as one that goes on."""

    def __init__(self, runner: ScriptRunner, places: Places) -> None:
        self._runner = runner
        self._places = places
        self._started: list[subprocess.Popen[bytes]] = []

    def __call__(self, *command: Argument, stdin: bytes | IO[bytes] = b"") -> Ran:
        places = self._places
        with _standard_input(stdin) as stream:
            done = self._runner.run(places.command([str(part) for part in command]), stdin=stream, print_result=False)
        out = done.stdout.encode("utf-8", "surrogateescape")
        return Ran(done.returncode, places.data(out), places.text(done.stderr))

    def real(self, *command: Argument, stdin: bytes | IO[bytes] = b"", env: dict[str, str] | None = None) -> Ran:
        with _file_of(stdin) as file:
            done = subprocess.run(
                self._places.command([str(part) for part in command]),
                stdin=file,
                capture_output=True,
                timeout=DEADLINE_SECONDS,
                env=os.environ | (env or {}),
                check=False,
            )
        return Ran(done.returncode, self._places.data(done.stdout), self._places.text(done.stderr.decode()))

    def shell(self, script: str) -> Ran:
        """Without pipefail: the code is that of the last command."""
        return self.real("bash", "-c", script)

    def start(
        self,
        *command: Argument,
        stdin: int = subprocess.PIPE,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        """It leads a process group, so that what it starts can be signalled and ended with it."""
        given = self._places.command([str(part) for part in command])
        process = subprocess.Popen(given, stdin=stdin, stdout=stdout, stderr=stderr, bufsize=0, start_new_session=True)
        self._started.append(process)
        return process

    def end_all(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


@contextlib.contextmanager
def _file_of(stdin: bytes | IO[bytes]) -> Iterator[IO[bytes]]:
    """An open file with these bytes; a file is taken as it is, with its position."""
    if not isinstance(stdin, bytes):
        yield stdin
        return
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(stdin)
        file.seek(0)
        yield file


@contextlib.contextmanager
def _standard_input(stdin: bytes | IO[bytes]) -> Iterator[io.TextIOWrapper]:
    """`stdin` as file descriptor 0 and as a stream, since commands read either. Signals are as before at the end."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = os.dup(0)
    try:
        with _file_of(stdin) as file:
            os.dup2(file.fileno(), 0)
        with open(0, closefd=False) as stream:
            yield stream
    finally:
        os.dup2(before, 0)
        os.close(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests name buffers as users do, find the programs of the environment that they run in, and no keys of others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HBUF_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("HBUF_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "over_https: runs with a buffer's directory, and again with its URL")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("over_https"):
        metafunc.parametrize("place", ["directory", "url"], indirect=True)


@pytest.fixture(autouse=True)
def place(request: pytest.FixtureRequest, _in_a_directory_of_its_own: None, monkeypatch: pytest.MonkeyPatch) -> Places:
    """Where the buffers of a test lie."""
    if getattr(request, "param", "directory") == "directory":
        return Places()
    daemon: RunningDaemon = request.getfixturevalue("daemon")
    tenant = f"t{next(_tenants)}"
    buffers = daemon.root / "tenants" / tenant / "buffers"
    buffers.mkdir(parents=True)
    monkeypatch.chdir(buffers)
    monkeypatch.setenv("HBUF_CACERT", str(daemon.root / "ca.pem"))
    monkeypatch.setenv("HBUF_TOKEN_FILE", str(daemon.root / "admin.token"))
    return Places(f"{daemon.url}/tenants/{tenant}/b")


_tenants = itertools.count(1)


@pytest.fixture
def run(script_runner: ScriptRunner, monkeypatch: pytest.MonkeyPatch, place: Places) -> Iterator[Run]:
    monkeypatch.setattr(pytest_console_scripts, "StreamMock", ByteStream)
    running = Run(script_runner, place)
    yield running
    running.end_all()


MakeBuffer = Callable[..., Path]


@pytest.fixture
def make_buffer() -> MakeBuffer:
    """make_buffer("orders", [b"a", b"b"], segment_messages="2"): a buffer with these messages, stored one by one."""

    def make(name: str, messages: Sequence[bytes | Draft] = (), **settings: str) -> Path:
        path = Path(name).absolute()
        with hbuf.create(path, **settings) as buffer:
            if messages:
                buffer.append_many(messages)
        return path

    return make


Bodies = Callable[[Argument], list[bytes]]


@pytest.fixture
def bodies() -> Bodies:
    """bodies("orders"): what is stored, read with the library."""

    def read(path: Argument) -> list[bytes]:
        with hbuf.open(path) as buffer:
            return [message.body for message in buffer.read()]

    return read


PackagesWithout = Callable[..., Path]


@pytest.fixture
def packages_without(tmp_path: Path) -> PackagesWithout:
    """packages_without("pyspark"): a folder for PYTHONPATH with all that is installed, but for hbuf and these."""

    def make(*missing: str) -> Path:
        folder = tmp_path / "packages"
        folder.mkdir()
        for entry in Path(site.getsitepackages()[0]).iterdir():
            if not entry.name.startswith(("hbuf", *missing)):
                (folder / entry.name).symlink_to(entry)
        return folder

    return make


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """This Python, with no packages at all."""
    venv.create(tmp_path / "bare", symlinks=True, with_pip=False)
    return tmp_path / "bare/bin/python"


class Terminal:
    """A terminal for one process: give it `theirs`, then read all that it writes."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        self._open = [self._ours, self.theirs]

    def read_all(self) -> str:
        self._close(self.theirs)
        shown = b""
        # A terminal that the last process has closed gives an error where a pipe gives an end.
        with contextlib.suppress(OSError):
            while piece := os.read(self._ours, 4096):
                shown += piece
        return shown.decode().replace("\r\n", "\n")

    def close(self) -> None:
        for fd in list(self._open):
            self._close(fd)

    def _close(self, fd: int) -> None:
        self._open.remove(fd)
        os.close(fd)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal()
    yield opened
    opened.close()


WaitUntil = Callable[[Callable[[], object], str], None]


@pytest.fixture
def wait_until() -> WaitUntil:
    """Waits for a condition, for as long as any machine needs; `what` is said where it never comes."""

    def wait(condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"waited in vain: {what}")
            time.sleep(0.005)

    return wait
