"""Servers that answer each request with 201 and have nothing behind them: what the load, and what HTTP, can do at most.

Usage: ceiling_server.py CERTIFICATE KEY DIRECTORY. Prints one line, JSON: for "protocol" (bare asyncio, on uvloop) and
for "aiohttp" the port with TLS and the path of the Unix socket. Runs until SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import sys
from pathlib import Path

import uvloop
from aiohttp import web

# About as long as the daemon's answers.
_BODY = b'{"first": 1000000, "last": 1000000, "count": 1, "id": "%b", "duplicates": 0}\n' % (b"0" * 64)
_HEADERS = {
    "x-hbuf-seq": "1000000",
    "x-hbuf-id": "0" * 64,
    "x-hbuf-time": "2026-11-18T04:51:00.123456Z",
    "x-hbuf-ack": "synced",
    "x-hbuf-version": "1",
    "content-type": "application/json",
}
_ANSWER = (
    b"HTTP/1.1 201 Created\r\n"
    + "".join(f"{name}: {value}\r\n" for name, value in _HEADERS.items()).encode()
    + b"content-length: %d\r\n\r\n" % len(_BODY)
    + _BODY
)
_MOST_BYTES = 64 * 1024 * 1024


class Ceiling(asyncio.Protocol):
    """As much of HTTP as tells where a request ends."""

    def __init__(self) -> None:
        self._missing, self._head = 0, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        while data:
            if not self._missing:
                data, self._head = self._head + data, b""
                end = data.find(b"\r\n\r\n")
                if end < 0:
                    self._head = data
                    return
                length = data[:end].lower().partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]
                self._missing = end + 4 + int(length or 0)
            taken = min(self._missing, len(data))
            self._missing -= taken
            data = data[taken:]
            if not self._missing:
                self._transport.write(_ANSWER)  # type: ignore[attr-defined]


async def _answer(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(status=201, body=_BODY, headers=_HEADERS)


async def _serve(certificate: str, key: str, directory: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    paths = {name: str(directory / name) for name in ("protocol", "aiohttp")}
    bare = await loop.create_server(Ceiling, "127.0.0.1", 0, ssl=context)
    local = await loop.create_unix_server(Ceiling, paths["protocol"])
    app = web.Application(client_max_size=_MOST_BYTES)
    app.router.add_post("/b/{buffer}", _answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    await web.UnixSite(runner, paths["aiohttp"]).start()
    ports = {"protocol": bare.sockets[0].getsockname()[1], "aiohttp": runner.addresses[0][1]}
    print(json.dumps({name: {"port": ports[name], "path": paths[name]} for name in paths}), flush=True)
    await ended.wait()
    bare.close()
    local.close()
    await runner.cleanup()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
