"""Between a client and the daemon: it takes a request there, and never brings the answer back."""

from __future__ import annotations

import contextlib
import socket
import threading


class CuttingProxy:
    """Knows nothing of TLS. Until `withhold` it lets everything through; from then on, nothing to the client."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []
        self._withheld = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def withhold(self) -> None:
        self._withheld.set()

    def cut(self) -> None:
        """Both sides lose their connections, without a word."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open.clear()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                self._open += [client, server]
                threading.Thread(target=self._bring, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._bring, args=(server, client, True), daemon=True).start()

    def _bring(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not (is_answer and self._withheld.is_set()):
                    target.sendall(data)
