"""The daemon, on a root of its own, as bin/hbufd starts it; or with a profile of all that it does."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.load.address import Address
from bench.load.answers import HttpAnswers, Refused
from bench.load.requests import http_get, http_request
from bench.loading import Server
from bench.programs import CHECKOUT, yardstick
from bench.serving.process import started

HTTPS, UNIX = "hbufd, HTTPS", "hbufd, Unix"
# However the log names it: it was told to take any port.
_PORT = re.compile(r"https://127\.0\.0\.1:([1-9]\d*)")

_ANSWER_SECONDS = 30


@contextlib.contextmanager
def serve_hbufd(directory: Path, *, profile: Path | None = None) -> Iterator[dict[str, Server]]:
    """By its two names. With `profile` it is slower, and writes the profile when it ends."""
    place = directory / ("profiled" if profile else "hbufd")
    place.mkdir()
    root, socket, log = place / "root", place / "socket", place / "log"
    program = yardstick("profiled_daemon", profile) if profile else [CHECKOUT / "bin/hbufd"]
    argv = [*program, "--root", root, "--listen", "127.0.0.1:0", "--unix", socket]

    def port() -> int | None:
        found = _PORT.search(log.read_text(errors="replace"))
        return int(found[1]) if found and _is_ready(Address(path=str(socket))) else None

    with started(argv, log, port) as (pid, found):
        secured = Address(found, authority=str(root / "ca.pem"))
        yield {
            HTTPS: Server(HTTPS, "http", secured, pid, (root / "admin.header").read_text()),
            UNIX: Server(UNIX, "http", Address(path=str(socket)), pid),
        }


def _is_ready(address: Address) -> bool:
    with contextlib.suppress(OSError, Refused):
        _ask(Server("", "http", address, 0), [http_get("/readyz", "*/*")])
        return True
    return False


def make_buffers(server: Server, *names: str, settings: Mapping[str, object] | None = None) -> None:
    body = json.dumps(settings or {}).encode()
    kind = "application/json"
    _ask(server, [http_request("PUT", f"/b/{name}", body, server.authorization, kind) for name in names])


def segment_files(directory: Path, buffer: str) -> list[Path]:
    """Where the daemon that works there keeps them."""
    kept = directory / "hbufd" / "root" / "tenants" / "default" / "buffers" / buffer
    return sorted((kept / "segments").glob("*.http"))


def _ask(server: Server, requests: list[bytes]) -> None:
    """One after the other."""
    answers = HttpAnswers()
    with server.address.connect() as connection:
        connection.settimeout(_ANSWER_SECONDS)
        for request in requests:
            connection.sendall(request)
            while not answers.complete(data := connection.recv(65536)):
                if not data:
                    raise ConnectionError(f"{server.name} closed the connection")
