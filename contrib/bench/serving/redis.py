"""Redis Streams, each XADD on disk before it is answered: appendonly yes, appendfsync always. With TLS and without.

It keeps all in memory, so a stream is removed once it was measured.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.load.address import Address
from bench.load.requests import redis
from bench.loading import Server
from bench.serving.certificate import Certificate
from bench.serving.process import answers, free_port, started

PLAIN, TLS = "Redis Streams", "Redis Streams, TLS"


def redis_version() -> str | None:
    """None where it is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        return None
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return next((word.removeprefix("v=") for word in said.split() if word.startswith("v=")), said.strip())


@contextlib.contextmanager
def serve_redis(directory: Path, certificate: Certificate) -> Iterator[dict[str, Server]]:
    """By its two names; nothing where it is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        yield {}
        return
    place = directory / "redis"
    place.mkdir()
    port, tls_port = free_port(), free_port()
    settings = {
        "bind": "127.0.0.1",
        "port": port,
        "tls-port": tls_port,
        "tls-cert-file": certificate.certificate,
        "tls-key-file": certificate.key,
        "tls-auth-clients": "no",
        "dir": place,
        "appendonly": "yes",
        "appendfsync": "always",
        # No copy of everything is written while we measure.
        "auto-aof-rewrite-percentage": 0,
        "save": "",
        "daemonize": "no",
    }
    configuration = place / "redis.conf"
    configuration.write_text("".join(f'{name} "{value}"\n' for name, value in settings.items()))
    with started([program, configuration], place / "log", lambda: answers(port) and answers(tls_port)) as (pid, _):
        yield {
            PLAIN: Server(PLAIN, "redis", Address(port), pid),
            TLS: Server(TLS, "redis", Address(tls_port, authority=str(certificate.certificate)), pid),
        }


def drop_stream(server: Server, *names: str) -> None:
    with server.address.connect() as connection:
        connection.sendall(redis("DEL", *names))
        connection.recv(100)
