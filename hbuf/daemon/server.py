"""Runs the daemon: starts it, serves until it is told to stop, and finishes what it accepted.

SIGTERM and SIGINT stop it, a second one at once. SIGHUP takes certificates and settings anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Callable

import uvloop

from hbuf.daemon import first_start, listening
from hbuf.daemon.access_log import AccessLog
from hbuf.daemon.app import App
from hbuf.daemon.buffers import Buffers
from hbuf.daemon.callers import Callers
from hbuf.daemon.config import Config, Limits, names_that_need_a_restart
from hbuf.daemon.logs import ACCESS, Logs, said
from hbuf.daemon.notify import Notifier
from hbuf.daemon.protocol import Connections, Runner
from hbuf.daemon.tls import client_authorities, new_context
from hbuf.errors import HbufError
from hbuf.version import VERSION

LOG = logging.getLogger(__name__)

_STOP_SECONDS = 30.0
_RENEW_SECONDS = 86_400.0


def serve(config: Config, reload: Callable[[], Config]) -> None:
    """Returns when it was told to stop and has stopped. `reload` gives the configuration as it is now."""
    first_start.make_root(config.root)
    with first_start.only_daemon(config.root):
        is_first = first_start.prepare(config)
        context = new_context(config)
        sockets = listening.open_sockets(config)
        logs = Logs(config.log)
        _raise_file_limit(config.limits.connections)
        try:
            uvloop.run(_Daemon(config, context, logs, reload).run(sockets, is_first))
        finally:
            listening.close_sockets(sockets)
            logs.close()


class _Daemon:
    def __init__(self, config: Config, context: ssl.SSLContext, logs: Logs, reload: Callable[[], Config]) -> None:
        self.config = config
        self._context = context
        self._logs = logs
        self._reload = reload
        self._notifier = Notifier()
        self._is_ready = False
        self._told_to_stop = asyncio.Event()
        self._reloading: asyncio.Task[None] | None = None
        self._wanted_again = False

    async def run(self, sockets: list[socket.socket], is_first: bool) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_log_mistake)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._start_reloading)
        self._callers = Callers(self.config.root, client_authorities(self.config))
        self._buffers = Buffers(self.config)
        app = App(self.config, self._buffers, self._callers, lambda: self._is_ready)
        runner = Runner(
            app,
            self._limits,
            shutdown_timeout=_STOP_SECONDS,
            access_log_class=AccessLog,
            access_log=ACCESS,
        )
        await runner.setup()
        connections = runner.server
        assert isinstance(connections, Connections)
        listeners = [listening.Listener(each, connections, lambda: self._context, loop) for each in sockets]
        connections.start_sweeping()
        renewing = loop.create_task(self._renew_daily())
        self._is_ready = True
        self._say_ready(sockets, is_first)
        self._notifier.keep_alive(loop)
        await self._told_to_stop.wait()

        self._is_ready = False
        LOG.info("stopping", extra=said(connections=connections.count))
        self._notifier.stopping("Finishing what was accepted")
        renewing.cancel()
        for listener in listeners:
            listener.stop()
        listening.close_sockets(sockets)
        await self._finish(runner)
        connections.stop_sweeping()
        self._notifier.end()
        LOG.info("stopped")

    async def _finish(self, runner: Runner) -> None:
        """Answers what was asked, then writes what was accepted."""
        try:
            await asyncio.wait_for(runner.cleanup(), _STOP_SECONDS * 2)
        except TimeoutError:
            LOG.warning("not-all-answered", extra=said(seconds=_STOP_SECONDS))
        await self._buffers.close()

    def _limits(self) -> Limits:
        return self.config.limits

    def _say_ready(self, sockets: list[socket.socket], is_first: bool) -> None:
        urls = [listening.shown(each) for each in sockets]
        for url in urls:
            LOG.info("listening", extra=said(url=url))
        LOG.info("ready", extra=said(version=VERSION, root=str(self.config.root), pid=os.getpid()))
        self._notifier.ready(f"Serving {self.config.root} on {' '.join(urls)}")
        if is_first and urls[0].startswith("https:"):
            _show_first_request(self.config, urls[0])

    def _stop(self, number: int) -> None:
        if self._told_to_stop.is_set():
            # What was answered is on disk already, so nothing that matters is cut off.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._told_to_stop.set()

    def _start_reloading(self) -> None:
        self._wanted_again = True
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.get_running_loop().create_task(self._reload_all())

    async def _reload_all(self) -> None:
        while self._wanted_again:
            self._wanted_again = False
            self._notifier.reloading()
            try:
                after = await asyncio.to_thread(self._reload)
                await self._take(after)
            except HbufError as error:
                LOG.error("not-reloaded", extra=said(reason=error.message))
                self._notifier.ready(f"Not reloaded: {error.message}")
            else:
                self._notifier.ready("Reloaded")

    async def _take(self, after: Config) -> None:
        """Certificates first: a configuration whose files are wrong changes nothing."""
        restart = names_that_need_a_restart(self.config, after)
        after = self.config.with_settings_of(after)
        await asyncio.to_thread(first_start.renew_certificate, after)
        context = await asyncio.to_thread(new_context, after)
        authorities = await asyncio.to_thread(client_authorities, after)
        self._context = context
        self._callers.trust(authorities)
        self._buffers.reconfigure(after)
        self._logs.configure(after.log)
        self.config = after
        LOG.info("reloaded", extra=said(needs_a_restart=",".join(restart) or None))

    async def _renew_daily(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                if await asyncio.to_thread(first_start.renew_certificate, self.config):
                    self._context = await asyncio.to_thread(new_context, self.config)
                    LOG.info("certificate-renewed")
            except HbufError as error:
                LOG.error("certificate-not-renewed", extra=said(reason=error.message))


def _show_first_request(config: Config, url: str) -> None:
    """The curl line to try, with no secret in it."""
    import shlex

    root = shlex.quote(str(config.root))
    host, _, port = url.removeprefix("https://").rpartition(":")
    if host in ("0.0.0.0", "*"):  # noqa: S104  it is shown, not listened on
        url = f"https://127.0.0.1:{port}"
    elif host == "[::]":
        url = f"https://[::1]:{port}"
    sys.stderr.write(f"To try it: curl --cacert {root}/ca.pem -H @{root}/admin.header {url}/b\n")
    sys.stderr.flush()


def _raise_file_limit(connections: int) -> None:
    """Connections and segments are files: as many as the system lets this process have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < connections:
        LOG.warning("few-file-descriptors", extra=said(files=files, connections=connections))


def _log_mistake(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    error = context.get("exception")
    if isinstance(error, OSError):  # a connection that broke, ssl.SSLError among them
        LOG.debug("connection-broke", extra=said(reason=str(error)))
        return
    LOG.error(
        "mistake",
        exc_info=error if isinstance(error, BaseException) else None,
        extra=said(message=context.get("message")),
    )
