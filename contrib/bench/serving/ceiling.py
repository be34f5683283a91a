"""Servers that answer 201 with nothing behind them: a bare protocol, the ceiling of the load; and aiohttp alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from bench.load.address import Address
from bench.loading import Server
from bench.programs import yardstick
from bench.serving.certificate import Certificate
from bench.serving.process import started

CEILING, AIOHTTP = "ceiling", "aiohttp alone"
_NAMES = {"protocol": CEILING, "aiohttp": AIOHTTP}


@contextlib.contextmanager
def serve_ceiling(directory: Path, certificate: Certificate) -> Iterator[dict[str, Server]]:
    """By name and transport: `ceiling, HTTPS`."""
    place = directory / "ceiling"
    place.mkdir()
    log = place / "log"

    def addresses() -> dict[str, dict[str, str]] | None:
        said = log.read_text()
        found: dict[str, dict[str, str]] | None = json.loads(said) if said.endswith("}}\n") else None
        return found

    argv = yardstick("ceiling_server", certificate.certificate, certificate.key, place)
    with started(argv, log, addresses) as (pid, found):
        servers = []
        for kind, name in _NAMES.items():
            port, path = int(found[kind]["port"]), found[kind]["path"]
            secured = Address(port, authority=str(certificate.certificate))
            servers.append(Server(f"{name}, HTTPS", "http", secured, pid))
            servers.append(Server(f"{name}, Unix", "http", Address(path=path), pid))
        yield {server.name: server for server in servers}
