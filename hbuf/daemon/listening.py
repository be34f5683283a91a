"""The sockets that the daemon listens on, and the connections that come in: TLS over TCP, plain HTTP on Unix sockets.

Connections are taken one by one, not by the event loop's own server: so each is counted from the start, its handshake
included, and a certificate that is loaded anew holds for the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hbuf.daemon.addresses import Address, parse_address
from hbuf.daemon.logs import said
from hbuf.errors import CannotCreate, HbufError, UsageError
from hbuf.store import fsops

if TYPE_CHECKING:
    import ssl

    from hbuf.daemon.config import Config
    from hbuf.daemon.protocol import Connections

LOG = logging.getLogger(__name__)

_BACKLOG = 1024
_FIRST_PASSED_FD = 3
_UNIX_MODE = 0o660
_GOODBYE_SECONDS = 10.0  # for a client to take the last of an answer, and to end its side
_PAUSE_SECONDS = 0.5  # when there is no file descriptor left
_MOST_AT_ONCE = 64  # connections taken before others have their turn
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def open_sockets(config: Config) -> list[socket.socket]:
    """Those that systemd passed, or else those of the configuration. All of them listen."""
    passed = _passed_sockets()
    if passed:
        return passed
    opened: list[socket.socket] = []
    try:
        for text in config.listen:
            opened += _tcp_sockets(parse_address(text))
        if config.unix:
            opened.append(_unix_socket(config.unix))
    except BaseException:
        close_sockets(opened)
        raise
    return opened


def close_sockets(sockets: list[socket.socket]) -> None:
    """And the name of a Unix socket that is ours is gone."""
    for each in sockets:
        if each.family == socket.AF_UNIX and not _is_passed():
            with contextlib.suppress(OSError):
                os.unlink(each.getsockname())
        each.close()


def shown(listening: socket.socket) -> str:
    """As a URL, with the port that it really has."""
    name = listening.getsockname()
    if listening.family == socket.AF_UNIX:
        return f"unix:{name if isinstance(name, str) else os.fsdecode(name)}"
    return f"https://{Address(name[0], name[1])}"


class Listener:
    """Takes connections from one socket, until it is stopped."""

    def __init__(
        self,
        listening: socket.socket,
        connections: Connections,
        context: Callable[[], ssl.SSLContext],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._listening = listening
        self._connections = connections
        self._context = context if listening.family != socket.AF_UNIX else None
        self._loop = loop
        self._opening: set[asyncio.Task[None]] = set()
        self._pausing: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        loop.add_reader(listening, self._take)

    def stop(self) -> None:
        self._loop.remove_reader(self._listening)
        if self._pausing is not None:
            self._pausing.cancel()

    def _take(self) -> None:
        for _ in range(_MOST_AT_ONCE):
            try:
                connected, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                LOG.error("no-more-connections", extra=said(reason=error.strerror))
                self._loop.remove_reader(self._listening)
                self._pausing = self._loop.call_later(
                    _PAUSE_SECONDS, self._loop.add_reader, self._listening, self._take
                )
                return
            if not self._connections.admit():
                connected.close()
                continue
            connected.setblocking(False)
            opening = self._loop.create_task(self._open(connected))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)

    async def _open(self, connected: socket.socket) -> None:
        connection = self._connections()
        seconds = self._connections.limits.request_seconds
        try:
            if self._context is None:
                await self._loop.connect_accepted_socket(lambda: connection, connected)
            else:
                await self._loop.connect_accepted_socket(
                    lambda: connection,
                    connected,
                    ssl=self._context(),
                    ssl_handshake_timeout=seconds,
                    ssl_shutdown_timeout=min(seconds, _GOODBYE_SECONDS),
                )
        except (OSError, EOFError) as error:  # ssl.SSLError and TimeoutError are OSErrors
            LOG.debug("no-handshake", extra=said(reason=str(error)))
            connected.close()
        finally:
            if not connection.was_made:
                self._connections.release()


def _tcp_sockets(address: Address) -> list[socket.socket]:
    """A name may stand for several addresses. Port 0 is the same free one for all of them."""
    try:
        found = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG
        )
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{address}: {getattr(error, 'strerror', None) or error}") from None
    opened: list[socket.socket] = []
    try:
        for family, kind, protocol, _, where in dict.fromkeys(found):
            port = opened[0].getsockname()[1] if opened and not address.port else address.port
            opened.append(_tcp_socket(family, kind, protocol, (where[0], port, *where[2:])))
    except BaseException:
        close_sockets(opened)
        raise
    return opened


def _tcp_socket(family: int, kind: int, protocol: int, where: tuple[object, ...]) -> socket.socket:
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(where)
        opened.listen(_BACKLOG)
    except OSError as error:
        opened.close()
        raise _cannot_listen(str(Address(str(where[0]), int(str(where[1])))), error) from None
    return opened


def _unix_socket(path: Path) -> socket.socket:
    """With mode 0660 from the start. What is left of a daemon that is gone is removed; anything else is not."""
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        with fsops.os_errors(path):
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        # Until it listens nobody can connect to it, so the mode is right before it matters.
        opened.bind(os.fspath(path))
        os.chmod(path, _UNIX_MODE)
        opened.listen(_BACKLOG)
    except OSError as error:
        opened.close()
        raise _cannot_listen(f"{path}", error) from None
    except BaseException:
        opened.close()
        raise
    return opened


def _remove_stale(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise CannotCreate(f"{path}: is there, and is no socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(1)
        try:
            asking.connect(os.fspath(path))
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError as error:
            raise _cannot_listen(f"{path}", error) from None
    raise CannotCreate(f"{path}: another program listens there")


def _cannot_listen(where: str, error: OSError) -> HbufError:
    hint = "another program listens there; --listen names another port" if error.errno == errno.EADDRINUSE else None
    return CannotCreate(f"{where}: {error.strerror or error}", hint=hint)


def _is_passed() -> bool:
    return os.environ.get("LISTEN_PID") == str(os.getpid()) and os.environ.get("LISTEN_FDS", "0") != "0"


def _passed_sockets() -> list[socket.socket]:
    """sd_listen_fds(3): those from 3 on, as many as `LISTEN_FDS` says."""
    if not _is_passed():
        return []
    count = os.environ["LISTEN_FDS"]
    if not (count.isascii() and count.isdigit()):
        raise UsageError(f"LISTEN_FDS: '{count}' is not a number")
    passed = []
    for fd in range(_FIRST_PASSED_FD, _FIRST_PASSED_FD + int(count)):
        os.set_inheritable(fd, False)
        one = socket.socket(fileno=fd)
        if one.type != socket.SOCK_STREAM or one.family not in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
            raise UsageError(f"file descriptor {fd}: is not a socket that listens for connections")
        passed.append(one)
    return passed
