"""Stands between a client and a daemon, and cuts connections in their middle."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal

Direction = Literal["up", "down", "answer"]


class CuttingProxy:
    """Each of `cuts` is for one connection: after so many bytes up (to the daemon) or down both ends are closed.

    After `answer` it is closed when the daemon says something behind so many bytes up.
    """

    def __init__(self, port: int, *cuts: tuple[Direction, int]) -> None:
        self._behind = port
        self._cuts = list(cuts)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.connections = 0
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(30)
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            cut = self._cuts.pop(0) if self._cuts else None
            server = socket.create_connection(("127.0.0.1", self._behind))
            self._sockets += [client, server]
            passed = [0]  # bytes up
            silent_from = cut[1] if cut and cut[0] == "answer" else None
            for direction, source, sink in (("up", client, server), ("down", server, client)):
                limit = cut[1] if cut and cut[0] == direction else None
                up = direction == "up"
                silent = None if up else silent_from
                arguments = [source, sink, limit, passed, up, silent]
                self._threads.append(threading.Thread(target=_pass_on, args=arguments, daemon=True))
                self._threads[-1].start()


def _pass_on(
    source: socket.socket, sink: socket.socket, limit: int | None, passed: list[int], up: bool, silent: int | None
) -> None:
    try:
        while limit is None or limit > 0:
            data = source.recv(65_536 if limit is None else min(limit, 65_536))
            if not data or (silent is not None and passed[0] > silent):
                break
            passed[0] += len(data) if up else 0
            sink.sendall(data)
            if limit is not None:
                limit -= len(data)
    except OSError:
        pass
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
