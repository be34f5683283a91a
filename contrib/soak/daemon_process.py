"""hbufd as a process of its own, on one root and one port for all its lives."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bench.programs import hbuf_program

ANSWER_SECONDS = 60


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes


# Below those that the system gives to whoever connects: nobody takes the port while the daemon is dead.
_PORTS = range(20_000, 30_000)
# What a connection raises that the daemon's end broke, or that it did not let come to be.
BROKEN = (OSError, http.client.HTTPException)


@dataclass(slots=True)
class Daemon:
    root: Path
    port: int = field(init=False)
    _process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.port = _free_port()

    @property
    def log(self) -> Path:
        return self.root.with_name("hbufd.log")

    def buffer(self, name: str) -> Path:
        return self.root / "tenants" / "default" / "buffers" / name

    def start(self) -> None:
        argv = hbuf_program("hbufd", "--root", self.root, "--listen", f"127.0.0.1:{self.port}")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + ANSWER_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"hbufd does not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.01)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> int:
        """Its exit code, after it was asked to end."""
        self._process.terminate()
        return self._process.wait(ANSWER_SECONDS)

    def connection(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.root / "ca.pem"))
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS, context=context)

    def authorization(self) -> dict[str, str]:
        return {"authorization": f"Bearer {(self.root / 'admin.token').read_text().strip()}"}

    def ask(self, method: str, path: str, values: Mapping[str, object] | None = None) -> Answer:
        """As the administrator, with JSON. Raises what a broken connection raises."""
        with contextlib.closing(self.connection()) as connection:
            body = json.dumps(values) if values is not None else None
            connection.request(method, path, body, self.authorization())
            answered = connection.getresponse()
            return Answer(answered.status, answered.headers, answered.read())

    def _is_ready(self) -> bool:
        try:
            return self.ask("GET", "/readyz").status == 200
        except BROKEN:
            return False


def _free_port() -> int:
    while True:
        port = random.choice(_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
