"""Where a server listens, and a connection to it."""

from __future__ import annotations

import socket
import ssl
from dataclasses import asdict, dataclass

_BUFFER_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Address:
    """A port of loopback, or the path of a Unix socket. With `authority` (a file of certificates) it is TLS."""

    port: int = 0
    path: str = ""
    authority: str = ""

    def connect(self) -> socket.socket:
        """A connection that blocks. One that hangs is ended with the process, by whoever started it."""
        if self.path:
            plain = socket.socket(socket.AF_UNIX)
            plain.connect(self.path)
        else:
            plain = socket.create_connection(("127.0.0.1", self.port))
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A batch fits in, so that writing one does not keep the other clients of this process waiting.
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        if not self.authority:
            return plain
        return ssl.create_default_context(cafile=self.authority).wrap_socket(plain, server_hostname="127.0.0.1")

    def as_plan(self) -> dict[str, object]:
        return asdict(self)
