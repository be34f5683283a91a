"""The daemon's application over real sockets and real TLS, in a thread of this process: for tests that look at answers.

It listens as hbufd does. What a process of its own is needed for is tested with tests/running_daemon.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import uvloop

from hbuf.daemon.app import App
from hbuf.daemon.buffers import Buffers
from hbuf.daemon.callers import Callers
from hbuf.daemon.config import Config, Limits
from hbuf.daemon.listening import Listener, close_sockets, open_sockets
from hbuf.daemon.protocol import Connections, Runner
from hbuf.daemon.tls import new_context
from hbuf.format.users import parse_grant
from hbuf.ops.authority import ensure_authority, issue_server_certificate
from hbuf.ops.user import CertificateFiles, add_user, new_token

DEADLINE_SECONDS = 30


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def __getitem__(self, name: str) -> str:
        value = self.headers[name]
        assert value is not None, f"there is no {name}: {self.headers}"
        return str(value)


class _OverUnix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=DEADLINE_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE_SECONDS)
        self.sock.connect(str(self._path))


@dataclass
class Served:
    root: Path
    port: int
    unix: Path
    tokens: dict[str, str] = field(default_factory=dict)
    default: str | None = "admin"

    def user(self, name: str, *grants: str, tenant: str | None = "default") -> str:
        """A new user, known here by its name. Returns its token."""
        add_user(self.root, tenant, name, [parse_grant(grant) for grant in grants])
        self.tokens[name] = new_token(self.root, tenant, name)
        return self.tokens[name]

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def cacert(self) -> str:
        return str(self.root / "ca.pem")

    def connection(self, certificate: CertificateFiles | None = None) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self.cacert)
        if certificate is not None:
            context.load_cert_chain(certificate.certificate, certificate.key)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS, context=context)

    def __call__(
        self,
        method: str,
        path: str,
        body: bytes | str | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | list[tuple[str, str]] = (),  # type: ignore[assignment]
        *,
        user: str | None = "",
        over_unix: bool = False,
        certificate: CertificateFiles | None = None,
    ) -> Answer:
        """Asks as a user; as nobody with `user=None`, or with a certificate alone."""
        pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
        if isinstance(body, Mapping):
            body = json.dumps(body)
            pairs.append(("content-type", "application/json"))
        data = body.encode() if isinstance(body, str) else body
        name = self.default if user == "" else user
        if name is not None and not over_unix and certificate is None:
            pairs.append(("authorization", f"Bearer {self.tokens[name]}"))
        connection = _OverUnix(self.unix) if over_unix else self.connection(certificate)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_accept_encoding=True)
            for header, value in pairs:
                connection.putheader(header, value.encode())
            if data is not None:
                connection.putheader("content-length", str(len(data)))
            elif method in ("POST", "PUT", "PATCH"):
                connection.putheader("content-length", "0")
            connection.endheaders(data)
            answered = connection.getresponse()
            return Answer(answered.status, answered.headers, answered.read())

    def buffer(self, name: str, *bodies: bytes, **settings: Any) -> str:
        """A buffer with these messages. Returns its path in a URL."""
        assert self("PUT", f"/b/{name}", settings).status == 201
        for body in bodies:
            assert self("POST", f"/b/{name}", body).status == 201
        return f"/b/{name}"


@contextlib.contextmanager
def serving(root: Path, **limits: Any) -> Iterator[Served]:
    """The application with an administrator of the tenant `default`, whom it is asked as if nobody else is named."""
    config = Config.of_root(root)
    unix = root.with_name(f"{root.name}.sock")
    config = replace(config, limits=replace(Limits(), **limits), listen=("127.0.0.1:0",), unix=unix)
    root.mkdir(exist_ok=True)
    served = Served(root, 0, unix)
    ensure_authority(root)
    issue_server_certificate(root, ["127.0.0.1"])
    context = new_context(config)
    started, loop = threading.Event(), uvloop.new_event_loop()
    end = asyncio.Event()

    async def run() -> None:
        buffers = Buffers(config)
        app = App(config, buffers, Callers(root), lambda: True)
        runner = Runner(app, lambda: config.limits, access_log=None, shutdown_timeout=1)
        await runner.setup()
        sockets = open_sockets(config)
        served.port = sockets[0].getsockname()[1]
        connections = runner.server
        assert isinstance(connections, Connections)
        listeners = [Listener(each, connections, lambda: context, asyncio.get_running_loop()) for each in sockets]
        started.set()
        await end.wait()
        for listener in listeners:
            listener.stop()
        close_sockets(sockets)
        await runner.cleanup()
        await buffers.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    try:
        assert started.wait(DEADLINE_SECONDS)
        served.user("admin", "admin:*")
        yield served
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(DEADLINE_SECONDS)
        loop.close()
