"""A real hbufd: a process on a root of its own, with real TLS, on a port that is free."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

DEADLINE_SECONDS = 30
PROGRAM = (sys.executable, "-P", "-c", "import sys; sys.argv[0] = 'hbufd'; from hbuf.cli.hbufd import main; main()")


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of a problem document."""
        assert self.headers["content-type"] == "application/problem+json", self
        return str(self.json()["code"])


class RunningDaemon:
    """`request` asks it as the administrator whom the first start made."""

    def __init__(
        self,
        root: Path,
        *arguments: str,
        config: str = "",
        listen: Sequence[str] = ("127.0.0.1:0",),
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.root = root
        self.unix = root.with_name(f"{root.name}.sock")
        self.cacert = root / "ca.pem"
        self.header = root / "admin.header"
        self.log = root.with_name(f"{root.name}.log")
        self.config = root.with_name(f"{root.name}.toml")
        self.config.write_text(config)
        self.command = [*PROGRAM, "--config", str(self.config), "--root", str(root), "--unix", str(self.unix)]
        self.command += [part for address in listen for part in ("--listen", address)] + list(arguments)
        self._env = os.environ | {"HBUF_DEBUG": ""} | dict(env or {})
        self._pass_fds = pass_fds
        self.start()

    def start(self) -> None:
        """Again, after it has ended. The log goes on."""
        before = self.log.stat().st_size if self.log.exists() else 0
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                start_new_session=True,
                pass_fds=self._pass_fds,
            )
        wait_until(lambda: self.lines("ready", before) or self.process.poll() is not None, "the daemon starts")
        if self.process.returncode is not None:
            raise AssertionError(f"hbufd exited with {self.process.returncode}: {self.logs}")
        self.urls = [line["url"] for line in self.lines("listening", before)]
        self.url = next((url for url in self.urls if url.startswith("https:")), "")
        self.port = urlsplit(self.url).port or 0
        self.token = (self.root / "admin.token").read_text().strip()

    @property
    def logs(self) -> str:
        return self.log.read_text()

    def lines(self, event: str, start: int = 0) -> list[dict[str, str]]:
        """The lines of the log about an event, by the names of their fields. Of logfmt."""
        with open(self.log, encoding="utf-8") as file:
            file.seek(start)
            found = [line for line in file if line.endswith("\n") and f" event={event} " in f"{line[:-1]} "]
        return [dict(word.split("=", 1) for word in shlex.split(line)) for line in found]

    def connection(
        self, *, over_unix: bool = False, timeout_seconds: float = DEADLINE_SECONDS
    ) -> http.client.HTTPConnection:
        if over_unix:
            return _OverUnix(self.unix, timeout_seconds)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout_seconds, context=self.context())

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.cacert))

    def request(
        self,
        method: str,
        path: str,
        body: bytes | str | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        token: str | None = "",
        over_unix: bool = False,
    ) -> Answer:
        """With the administrator's token, with another, or with `token=None` as nobody."""
        given = {"authorization": f"Bearer {token or self.token}"} if token is not None else {}
        if isinstance(body, Mapping):
            body = json.dumps(body)
        with contextlib.closing(self.connection(over_unix=over_unix)) as connection:
            connection.request(method, path, body, given | dict(headers or {}))
            answered = connection.getresponse()
            return Answer(answered.status, answered.headers, answered.read())

    def raw(self, *, over_unix: bool = False) -> socket.socket:
        """A connection, to send whatever there is to send."""
        if over_unix:
            plain = socket.socket(socket.AF_UNIX)
            plain.connect(str(self.unix))  # and with a timeout it would not wait for its turn
            plain.settimeout(DEADLINE_SECONDS)
            return plain
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_SECONDS)
        return self.context().wrap_socket(plain, server_hostname="127.0.0.1")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a crash of the machine would, but for what the system still writes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE_SECONDS)

    def terminate(self) -> int:
        """Asks it to stop, and waits. Returns its exit code."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        return self.process.wait(DEADLINE_SECONDS)


class _OverUnix(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_seconds: float) -> None:
        super().__init__("localhost", timeout=timeout_seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@contextlib.contextmanager
def running(root: Path, *arguments: str, **settings: Any) -> Iterator[RunningDaemon]:
    daemon = RunningDaemon(root, *arguments, **settings)
    try:
        yield daemon
    finally:
        daemon.kill()


def wait_until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.005)
