"""Who sent a request: a token, a client certificate, or the process at the other end of the Unix socket.

It never says what is wrong with a credential.
"""

from __future__ import annotations

import base64
import binascii
import os
import socket
import struct

from aiohttp import web

from hbuf.daemon.callers import LOCAL_ADMIN, Caller, Callers
from hbuf.errors import Unauthorized

CALLER = web.RequestKey("caller", Caller)  # of a request whose sender is known
TENANT = web.RequestKey("tenant", str)  # that it asks about

_PEER = struct.Struct("3i")  # process, user, group


def caller_of(request: web.BaseRequest, callers: Callers) -> Caller:
    given = request.headers.get("authorization")
    if given is not None:
        return callers.by_token(_token(given))
    transport = request.transport
    if transport is not None:
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            certificate = tls.getpeercert(True)
            if certificate:
                return callers.by_certificate(certificate)
        elif _is_ours(transport.get_extra_info("socket")):
            return LOCAL_ADMIN
    raise Unauthorized("a credential is needed")


def _token(given: str) -> str:
    """The token of an `authorization` header. What is none comes out as one that nobody has."""
    scheme, _, value = given.partition(" ")
    scheme = scheme.lower()
    value = value.strip(" ")
    if scheme == "basic":
        try:
            _, _, value = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise Unauthorized("the credential is not valid") from None
    elif scheme != "bearer":
        raise Unauthorized("the credential is not valid")
    if not value.isascii():
        raise Unauthorized("the credential is not valid")
    return value


def _is_ours(connected: socket.socket | None) -> bool:
    """Whether the other end of a Unix socket is the daemon's own user, or root."""
    if connected is None or connected.family != socket.AF_UNIX:
        return False
    peer = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, user, _ = _PEER.unpack(peer)
    return user in (0, os.geteuid())


def is_foreign(request: web.BaseRequest) -> bool:
    """Whether a page of another origin sent this: a browser adds credentials of its own accord."""
    headers = request.headers
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    scheme, _, authority = origin.partition("://")
    schemes = ("https",) if request.secure else ("http", "https")
    return scheme not in schemes or not authority or authority != headers.get("host")
