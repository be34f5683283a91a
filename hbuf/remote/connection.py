"""One kept connection to a server, and one request on it after another: sent again where that is safe.

What can be done twice with the same end (everything but most appends) is sent again a few times when the connection
breaks. What cannot is sent again only where the server certainly did not get all of it: a body is handed to the
socket piece by piece, and a piece that the socket did not take whole ends in the middle of a TLS record, which
nobody can decrypt. A kept connection that the server has closed meanwhile is noticed before anything is sent on it.
"""

from __future__ import annotations

import http.client
import json
import select
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from typing import IO, Any
from urllib.parse import urlencode

from hbuf.errors import HbufError, NotReady, TryLater, Unauthorized, Unavailable, UsageError
from hbuf.format.problem import parse_problem
from hbuf.remote.access import Access
from hbuf.remote.location import Location
from hbuf.store.fsops import os_errors
from hbuf.version import VERSION

PROTOCOL = "1"
_CONNECT_SECONDS = 10.0
_READ_SECONDS = 75.0
_PIECE_BYTES = 64 * 1024
_TRIES = 5
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
# A connection that was idle for longer is not used for what cannot be sent again: the server may be closing it.
_FRESH_SECONDS = 10.0
_BROKEN = (OSError, http.client.HTTPException)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Message
    body: bytes
    again: bool = False  # an earlier try may have been carried out already

    def number(self, name: str) -> int | None:
        value = self.headers.get(name, "")
        return int(value) if value.isascii() and value.isdecimal() else None

    def json(self) -> dict[str, Any]:
        try:
            values = json.loads(self.body)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise Unavailable("the server's answer cannot be read: it is no JSON object")
        return values


class Unknown(Unavailable):
    """It was sent, and no answer came: it is not known whether it was done."""


class _Broken(Exception):
    """A try that brought no answer. `sent`: the server may have got all of it."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent


class Connection:
    """Not for two threads at once."""

    def __init__(
        self,
        location: Location,
        access: Access,
        *,
        patience_seconds: float = 10.0,
        notice: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`patience_seconds`: how long to wait for what is paused or busy."""
        self.location = location
        self.patience_seconds = patience_seconds
        self.for_ever = False  # whether to try again until it works
        self._access = access
        self._notice = notice
        self._context: ssl.SSLContext | None = None
        self._http: http.client.HTTPSConnection | None = None
        self._used_at = 0.0

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def get(self, below: str = "", query: Mapping[str, str] | None = None, **options: Any) -> Answer:
        return self.request("GET", below, query, **options)

    def request(
        self,
        method: str,
        below: str = "",
        query: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        repeat: bool = True,
        wait: bool = True,
        read_seconds: float = _READ_SECONDS,
    ) -> Answer:
        """The answer of a request below the location's path; raises the error that it tells.

        `repeat`: it may be done twice. `wait`: what is to be tried later is, for as long as our patience lasts.
        """
        target = self._target(below, query)
        deadline = time.monotonic() + self.patience_seconds
        retries = _Retries(self, deadline)
        while True:
            try:
                response = self._send(method, target, headers or {}, body, read_seconds, repeat=repeat)
                content = self._rest_of(response)
            except _Broken as broken:
                if broken.sent and not repeat:
                    raise Unknown(f"{self.location.server}: {broken.reason}") from None
                retries.again = retries.again or broken.sent
                retries.after(self._unreachable(broken.reason))
                continue
            error = self._error_of(response, content)
            if error is None:
                return Answer(response.status, response.headers, content, retries.again)
            if isinstance(error, NotReady) or (self.for_ever and isinstance(error, (TryLater, Unavailable))):
                retries.after(error)
            elif isinstance(error, TryLater) and wait and time.monotonic() < deadline:
                retries.pause()
            else:
                raise error

    def download(self, below: str, file: IO[bytes], taken: Callable[[int], None]) -> tuple[int, str | None]:
        """Writes a whole file into `file`; goes on in its middle when the connection breaks. Returns length and etag.

        `taken` is told how many more bytes have come; less than none where it had to begin again.
        """
        have = 0
        etag: str | None = None
        retries = _Retries(self, 0)
        while True:
            headers = {"range": f"bytes={have}-", "if-range": etag} if have and etag else {}
            try:
                response = self._send("GET", self._target(below, None), headers, None, _READ_SECONDS, repeat=True)
                if response.status == 206 and have and _starts_at(response, have):
                    pass
                elif response.status == 200:
                    taken(-have)
                    file.seek(0)
                    file.truncate()
                    have, etag = 0, response.headers.get("etag")
                elif response.status == 416 and have:
                    self._rest_of(response)
                    taken(-have)
                    have, etag = 0, None
                    retries.after(self._unreachable("a file became shorter while it was read"))
                    continue
                else:
                    error = self._error_of(response, self._rest_of(response))
                    retries.after(error or self._unreachable(f"the server answered {response.status}"))
                    continue
                while piece := self._piece_of(response):
                    file.write(piece)
                    have += len(piece)
                    taken(len(piece))
                    retries.forget()
            except _Broken as broken:
                retries.after(self._unreachable(broken.reason))
                continue
            self._used_at = time.monotonic()
            return have, etag

    def _target(self, below: str, query: Mapping[str, str] | None) -> str:
        target = self.location.path + below
        return f"{target}?{urlencode(query)}" if query else target

    def _send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        read_seconds: float,
        *,
        repeat: bool,
    ) -> http.client.HTTPResponse:
        """Sends one request once, and takes the head of its answer."""
        connection = self._ready(repeat=repeat)
        sent = False
        try:
            connection.sock.settimeout(read_seconds)
            connection.putrequest(method, target, skip_accept_encoding=True)
            for name, value in self._own_headers(body).items():
                connection.putheader(name, value)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            view = memoryview(body or b"")
            for at in range(0, len(view), _PIECE_BYTES):
                connection.send(view[at : at + _PIECE_BYTES])
            sent = True
            return connection.getresponse()
        except _BROKEN as error:
            early = None if sent else _early_answer(connection, error)
            if early is not None:
                return early
            self.close()
            raise _Broken(_reason_of(error), sent=sent) from None
        except BaseException:
            self.close()
            raise

    def _own_headers(self, body: bytes | None) -> dict[str, str]:
        own = {"user-agent": f"hbuf/{VERSION}", "x-hbuf-version": PROTOCOL}
        if self._access.token is not None:
            own["authorization"] = f"Bearer {self._access.token}"
        if body is not None:
            own["content-length"] = str(len(body))
        return own

    def _ready(self, *, repeat: bool) -> http.client.HTTPSConnection:
        """A connection that is open as far as can be known."""
        if self._http is not None:
            idle_seconds = time.monotonic() - self._used_at
            if _is_readable(self._http) or (not repeat and idle_seconds > _FRESH_SECONDS):
                self.close()
        if self._http is None:
            self._http = self._connect()
        return self._http

    def _connect(self) -> http.client.HTTPSConnection:
        if self._context is None:
            self._context = _context_of(self._access)
        where = self.location
        connection = http.client.HTTPSConnection(
            where.host, where.port, timeout=_CONNECT_SECONDS, context=self._context
        )
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise Unavailable(
                f"{where.server}: the server's certificate is not to be trusted: {error.verify_message}",
                hint=_hint_of(error, self._access),
            ) from None
        except _BROKEN as error:
            connection.close()
            raise _Broken(_reason_of(error), sent=False) from None
        return connection

    def _rest_of(self, response: http.client.HTTPResponse) -> bytes:
        try:
            content = response.read()
        except _BROKEN as error:
            self.close()
            raise _Broken(_reason_of(error), sent=True) from None
        self._used_at = time.monotonic()
        if response.will_close:
            self.close()
        return content

    def _piece_of(self, response: http.client.HTTPResponse) -> bytes:
        try:
            piece = response.read(_PIECE_BYTES * 4)
            if not piece and response.length:
                raise http.client.IncompleteRead(b"", response.length)
        except _BROKEN as error:
            self.close()
            raise _Broken(_reason_of(error), sent=True) from None
        return piece

    def _error_of(self, response: http.client.HTTPResponse, content: bytes) -> HbufError | None:
        """What an answer says is wrong."""
        if 200 <= response.status < 300:
            if response.headers.get("x-hbuf-version") == PROTOCOL:
                return None
            return Unavailable(f"{self.location.server}: is no hbufd, or one that speaks another version")
        error = parse_problem(response.status, content)
        if isinstance(error, Unauthorized) and error.hint is None:
            error.hint = "--token-file or --cert says who asks; hbuf-user makes tokens and certificates"
        own = f"{self.location.buffer}: "
        if error.message.startswith(own):
            error.message = error.message.removeprefix(own)
        error.message = f"{self.location.shown}: {error.message}"
        return error

    def _unreachable(self, reason: str) -> Unavailable:
        return Unavailable(f"{self.location.server}: cannot be reached: {reason}")


class _Retries:
    """Pauses that grow, and an end to them."""

    def __init__(self, connection: Connection, deadline: float) -> None:
        self.again = False
        self._connection = connection
        self._left = _TRIES
        self._seconds = _FIRST_PAUSE_SECONDS
        self._said = False

    def after(self, error: HbufError) -> None:
        """Before the next try; raises where there were enough."""
        connection = self._connection
        self._left -= 1
        if connection.for_ever:
            if not self._said and self._left < _TRIES - 2:
                connection._notice(f"{error.message}; it is tried again until it works")
                self._said = True
        elif self._left <= 0 or not isinstance(error, (TryLater, Unavailable)):
            raise error
        self.pause()

    def pause(self) -> None:
        time.sleep(self._seconds)
        self._seconds = min(self._seconds * 2, _LONGEST_PAUSE_SECONDS)

    def forget(self) -> None:
        """It went on."""
        self._left, self._seconds = _TRIES, _FIRST_PAUSE_SECONDS


def _context_of(access: Access) -> ssl.SSLContext:
    with os_errors(access.cacert or "the system's certificates"):
        try:
            context = ssl.create_default_context(cafile=access.cacert)
        except ssl.SSLError:
            raise UsageError(f"{access.cacert}: holds no certificate") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if access.cert is not None:
        shown = access.cert if access.key is None else f"{access.cert} and {access.key}"
        with os_errors(access.cert):
            try:
                # Without a password, one that is encrypted would be asked for on the terminal.
                context.load_cert_chain(access.cert, access.key, password="")
            except ssl.SSLError:
                raise UsageError(f"{shown}: holds no certificate with its key") from None
    return context


def _hint_of(error: ssl.SSLCertVerificationError, access: Access) -> str:
    if "ostname mismatch" in error.verify_message or "IP address mismatch" in error.verify_message:
        return "the URL has to name the server as its certificate does"
    if access.cacert is None:
        return "the option cacert names the CA to trust: it is ca.pem in the daemon's root directory"
    return f"{access.cacert} is the CA that must have signed it"


def _early_answer(connection: http.client.HTTPSConnection, error: BaseException) -> http.client.HTTPResponse | None:
    """A server that does not want all of a body answers before, and hangs up."""
    if not isinstance(error, (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError)):
        return None
    try:
        response = connection.getresponse()
    except _BROKEN:
        return None
    return response if response.status >= 400 else None


def _is_readable(connection: http.client.HTTPSConnection) -> bool:
    """Whether something came that nobody asked for: the end, as a rule."""
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _starts_at(response: http.client.HTTPResponse, at: int) -> bool:
    return str(response.headers.get("content-range", "")).startswith(f"bytes {at}-")


def _reason_of(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer came in time"
    if isinstance(error, (http.client.RemoteDisconnected, http.client.IncompleteRead, ConnectionError)):
        if isinstance(error, ConnectionRefusedError):
            return "connection refused"
        return "the connection broke"
    if isinstance(error, http.client.HTTPException):
        return "what it answers is not HTTP"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
