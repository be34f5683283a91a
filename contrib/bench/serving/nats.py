"""NATS JetStream, each message on disk before it is acknowledged: file storage, sync_interval: always. Without TLS."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.load.address import Address
from bench.load.requests import nats, nats_hello
from bench.loading import Server
from bench.serving.process import answers, free_port, started

NATS = "NATS JetStream"


def nats_version() -> str | None:
    """None where it is not installed."""
    program = _program()
    if program is None:
        return None
    return (
        subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split("v")[-1].strip()
    )


@contextlib.contextmanager
def serve_nats(directory: Path) -> Iterator[dict[str, Server]]:
    """By its name; nothing where it is not installed."""
    program = _program()
    if program is None:
        yield {}
        return
    place = directory / "nats"
    place.mkdir()
    port = free_port()
    configuration = place / "nats.conf"
    # Its PINGs would come between the answers.
    configuration.write_text(
        f'listen: "127.0.0.1:{port}"\nping_interval: "1h"\n'
        f'jetstream {{ store_dir: "{place}", sync_interval: always }}\n'
    )
    with started([program, "-c", configuration], place / "log", lambda: answers(port)) as (pid, _):
        yield {NATS: Server(NATS, "nats", Address(port), pid)}


def make_stream(server: Server, name: str) -> None:
    """With one subject, of the same name."""
    _ask(server, f"$JS.API.STREAM.CREATE.{name}", {"name": name, "subjects": [name], "storage": "file"})


def drop_stream(server: Server, name: str) -> None:
    _ask(server, f"$JS.API.STREAM.DELETE.{name}", {})


def _ask(server: Server, subject: str, what: dict[str, object]) -> None:
    with server.address.connect() as connection:
        connection.recv(65536)  # it says what it is
        connection.sendall(nats_hello("_INBOX.bench") + nats(subject, "_INBOX.bench", json.dumps(what).encode()))
        answer = b""
        while b"}\r\n" not in answer:
            data = connection.recv(65536)
            if not data:
                break
            answer += data
    if b'"error"' in answer or b"-ERR" in answer:
        raise SystemExit(f"bench: NATS: {answer.decode(errors='replace')}")


def _program() -> str | None:
    """On the path, or in our environment, where pip puts it."""
    return shutil.which("nats-server") or shutil.which("nats-server", path=str(Path(sys.executable).parent))
