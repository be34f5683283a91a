"""What aiohttp does not limit by itself: how many connections there are, how long a request takes to come and its
answer to be taken, how long a header section is. And every error that it makes is a problem document.

A connection has no timers for this: one sweep looks at all of them, and what comes in only leaves a time behind.
It must not know what a request means.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from hbuf.daemon.answers import problem
from hbuf.daemon.config import Limits
from hbuf.daemon.logs import said
from hbuf.errors import HbufError, HeadersTooLarge, TooSlow, UsageError

LOG = logging.getLogger(__name__)

_LINGER_SECONDS = 2.0  # what a client still sends behind a refusal is read for so long, so that it sees the answer
_SWEEPS = 20  # in the time that a request may take
_MOST_SWEEP_SECONDS = 5.0
_POLL_SECONDS = 0.02
_BODY_BUFFER_BYTES = 256 * 1024
_SHORTEST_FIELD = 4  # "a:\r\n"
_LINE_ENDS = 2
# The framing of a chunk of one byte, and a bit.
_CHUNK_OVERHEAD = 8


class Connection(RequestHandler):
    """One client's connection, with the times that the sweep looks at."""

    __slots__ = (
        "_body_bytes",
        "_close_when_all_came",
        "_closing_since",
        "_connections",
        "_fault",
        "_header_bytes",
        "_incoming",
        "_since",
        "_stuck_since",
        "_wire",
        "was_made",
    )

    def __init__(self, connections: Connections, **kwargs: Any) -> None:
        super().__init__(connections, **kwargs)
        self._connections = connections
        self._wire: asyncio.Transport | None = None
        self.was_made = False
        self._since = 0.0  # when the request began to come that has not come whole
        self._stuck_since = 0.0  # when the client stopped taking what it is sent
        self._closing_since = 0.0
        self._header_bytes = 0  # that have come of a header section
        self._incoming: StreamReader | None = None  # the body that has not come whole
        self._body_bytes = 0  # that have come of it, framing and all
        self._close_when_all_came = False
        self._fault = False  # nothing that comes now is a request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = cast(asyncio.Transport, transport)  # uvloop's own say that they are, and are not
        super().connection_made(transport)
        self.was_made = True
        self._connections.watched.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self in self._connections.watched:
            self._connections.watched.discard(self)
            self._connections.release()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """A client that only ended its own side gets its answer."""
        if self._incoming is not None:
            self._fail_body(UsageError("the body is shorter than its length"))
            return True
        if self._request_in_progress or self._messages:
            self.close()
            return True
        return False

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck_since = self._loop.time()

    def resume_writing(self) -> None:
        self._stuck_since = 0.0
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._fault:
            return
        if data and not self._since:
            self._since = self._loop.time()
        seen = self._request_count
        super().data_received(data)
        if self._request_count == seen:
            self._more_came(len(data))
        else:
            self._requests_came(self._request_count - seen, len(data))

    def _more_came(self, length: int) -> None:
        incoming = self._incoming
        if incoming is None:
            self._header_bytes += length
            if self._header_bytes > self._connections.limits.header_bytes and not self._upgraded:
                self._refuse(_headers_too_large())
        elif incoming.is_eof():
            self._all_came()
        else:
            self._body_bytes += length
            framing = self._body_bytes - incoming.total_bytes
            # Chunks have extensions, and trailers behind them, which nobody asked for.
            if framing > self._connections.limits.header_bytes + _CHUNK_OVERHEAD * incoming.total_bytes:
                self._fail_body(_headers_too_large())

    def _requests_came(self, count: int, length: int) -> None:
        most = self._connections.limits.header_bytes
        if length + self._header_bytes > most:
            for place in range(-count, 0):
                message = self._messages[place][0]
                if isinstance(message, RawRequestMessage) and _section_bytes(message) > most:
                    for _ in range(place, 0):
                        self._messages.pop()
                    self._refuse(_headers_too_large())
                    return
        self._header_bytes = 0
        message, payload = self._messages[-1]
        if isinstance(message, _ErrInfo):
            self._fault = True
            if self._incoming is not None and not self._incoming.is_eof():
                # It is the body that cannot be read, so whoever reads it answers.
                self._messages.pop()
                self._fail_body(_error_of(400, message.exc))
        elif payload.is_eof():
            self._all_came()
        else:
            self._incoming = payload
            self._body_bytes = 0

    def _all_came(self) -> None:
        self._since = 0.0
        self._incoming = None
        self._header_bytes = 0
        if self._close_when_all_came:
            self.close()

    @property
    def is_body_coming(self) -> bool:
        return self._incoming is not None and self.transport is not None

    def close_when_answered(self) -> None:
        """The request that is under way is the last. aiohttp's own close() would not read the rest of it."""
        self._close_when_all_came = True
        if not self._request_in_progress and not self._messages:
            self.force_close()
        elif self._incoming is None:
            self.close()

    def _refuse(self, error: HbufError) -> None:
        """Answers where no request has come, and closes."""
        self._fault = True
        self._since = 0.0
        self._messages.append((_ErrInfo(error.http_status, error, error.message), EMPTY_PAYLOAD))
        self._request_count += 1
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail_body(self, error: HbufError) -> None:
        """Whoever reads the body gets this error, and the connection ends with the answer."""
        self._fault = True
        self._since = 0.0
        self._lingering_time = 0.0
        if self._incoming is not None:
            self._incoming.set_exception(error)
            self._incoming = None

    def _process_keepalive(self) -> None:
        if self._since:  # Something is coming, and has its own time.
            self._keepalive_handle = None
            return
        super()._process_keepalive()

    def look_after(self, now: float, limits: Limits) -> None:
        """Ends what takes too long. The sweep calls it now and then."""
        wire = self._wire
        if wire is None:
            return
        if wire.is_closing():
            # What was written last is still to be taken.
            if not self._closing_since:
                self._closing_since = now
            elif now - self._closing_since > limits.request_seconds:
                wire.abort()
        elif self._stuck_since and now - self._stuck_since > limits.request_seconds:
            LOG.info("answer-not-taken", extra=said(peer=self._peer()))
            wire.abort()
        elif self._since and now - self._since > limits.request_seconds:
            self._end_slow_request(now, limits.request_seconds)

    def _end_slow_request(self, now: float, seconds: float) -> None:
        if self._reading_paused or self._buffer_paused:
            self._since = now  # It is we who do not read.
            return
        error = TooSlow(f"the request did not come within {seconds:g} seconds")
        if self._incoming is None:
            self._refuse(error)
        elif self._request_in_progress or self._messages:
            self._fail_body(error)
        else:
            self.force_close()  # It was answered, and had the time to see that.

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPException):  # what aiohttp refused before our app saw it
            resp = problem(_error_of(resp.status, HttpProcessingError(message=resp.reason)))
            resp.force_close()
        return await super().finish_response(request, resp, start_time)

    def _peer(self) -> str:
        peer = self.peername
        return str(peer[0]) if isinstance(peer, tuple) else "unix"

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        error = _error_of(status, exc)
        if status >= 500 and not isinstance(exc, HbufError):
            LOG.error("mistake", exc_info=exc, extra=said(method=request.method, peer=self._peer()))
        if request.writer.output_size > 0:
            raise ConnectionError("an answer is under way, and cannot become another")
        answer = problem(error)
        answer.force_close()
        return answer


class App(Protocol):
    """What answers requests. `stop` ends what would go on for ever, `close` is the last that it is told."""

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse: ...
    async def stop(self) -> None: ...
    async def close(self) -> None: ...


_Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connections(web.Server):
    """All connections, counted, and the sweep that looks after them."""

    def __init__(self, answer: _Answer, limits: Callable[[], Limits], **kwargs: Any) -> None:
        super().__init__(answer)
        self._limits = limits
        self._settings = kwargs
        self.count = 0
        self.watched: set[Connection] = set()
        self._refused = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limits(self) -> Limits:
        return self._limits()

    def __call__(self) -> Connection:
        limits = self.limits
        return Connection(
            self,
            loop=self._loop,
            keepalive_timeout=limits.idle_seconds,
            max_line_size=limits.header_bytes,
            max_field_size=limits.header_bytes,
            max_headers=limits.header_bytes // _SHORTEST_FIELD,
            lingering_time=_LINGER_SECONDS,
            read_bufsize=_BODY_BUFFER_BYTES,
            auto_decompress=False,  # A body is stored as it comes.
            **self._settings,
        )

    def admit(self) -> bool:
        """Counts a connection that is there now, unless there are as many as there may be."""
        if self.count >= self.limits.connections:
            if not self._refused:
                LOG.warning("too-many-connections", extra=said(connections=self.count))
            self._refused += 1
            return False
        self.count += 1
        return True

    def release(self) -> None:
        self.count -= 1

    def pre_shutdown(self) -> None:
        for connection in list(self.watched):
            connection.close_when_answered()

    async def all_came(self, seconds: float) -> None:
        """What was begun to be sent has come, or did not in this time."""
        end = self._loop.time() + seconds
        while self._loop.time() < end and any(connection.is_body_coming for connection in self.watched):
            await asyncio.sleep(_POLL_SECONDS)

    def start_sweeping(self) -> None:
        seconds = min(self.limits.request_seconds / _SWEEPS, _MOST_SWEEP_SECONDS)
        self._timer = self._loop.call_later(seconds, self._sweep)

    def stop_sweeping(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sweep(self) -> None:
        now, limits = self._loop.time(), self.limits
        for connection in list(self.watched):
            connection.look_after(now, limits)
        if self._refused:
            LOG.warning("connections-refused", extra=said(refused=self._refused))
            self._refused = 0
        self.start_sweeping()


class Runner(web.BaseRunner):
    """Runs an app behind our connections."""

    __slots__ = ("_app", "_limits")

    def __init__(self, app: App, limits: Callable[[], Limits], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._app = app
        self._limits = limits

    async def shutdown(self) -> None:
        """Between the end of what is idle and the end of everything."""
        await self._app.stop()
        if isinstance(self.server, Connections):
            await self.server.all_came(self._shutdown_timeout)

    async def _make_server(self) -> Connections:
        return Connections(self._app.answer, self._limits, **self._kwargs)

    async def _cleanup_server(self) -> None:
        await self._app.close()


def _error_of(status: int, exc: BaseException | None) -> HbufError:
    """What a client is told. Nothing of what it sent is in it."""
    if isinstance(exc, HbufError):
        return exc
    if isinstance(exc, LineTooLong) or "Too many headers" in str(exc):
        return _headers_too_large()
    if isinstance(exc, HttpProcessingError):
        return UsageError(f"this is not HTTP as it must be: {_reason(exc)}")
    return HbufError("it failed, and the server's log says why")


def _reason(exc: HttpProcessingError) -> str:
    """The first line of what the parser says, which is about the grammar; the bytes follow on others."""
    first = exc.message.partition("\n")[0].partition(":")[0].strip()
    return first if first.isascii() and first.isprintable() and len(first) < 100 else "it cannot be read"


def _headers_too_large() -> HeadersTooLarge:
    return HeadersTooLarge("the header section is longer than it may be")


def _section_bytes(message: RawRequestMessage) -> int:
    """How long it was: the request line, the fields and the blank line."""
    line = len(message.method) + len(message.path) + len("  HTTP/1.1") + _LINE_ENDS
    return line + sum(len(name) + len(value) + _SHORTEST_FIELD for name, value in message.raw_headers) + _LINE_ENDS
