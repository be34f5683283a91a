"""The way of every request: who is it, may it, then its row of the table; and whatever goes wrong becomes a problem.

Whether it may is decided before anything is looked up, and before anything that was sent is looked at, so that a
refusal says nothing of what there is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from aiohttp import HttpVersion10, HttpVersion11, web

from hbuf.daemon import answers, openapi
from hbuf.daemon.buffers import Buffers
from hbuf.daemon.call import LOG, Call, Method, Needs, Serving
from hbuf.daemon.callers import Caller, Callers
from hbuf.daemon.config import Config
from hbuf.daemon.credentials import CALLER, TENANT, caller_of, is_foreign
from hbuf.daemon.dispatch import Dispatch, Found
from hbuf.daemon.leases import Leases
from hbuf.daemon.metrics import Metrics
from hbuf.daemon.stopping import Stopping
from hbuf.daemon.table import TABLE
from hbuf.daemon.trails import Trails
from hbuf.errors import BadInput, HbufError, NotAllowed, NotFound, UsageError, WrongMethod
from hbuf.format import names

_SAFE = ("GET", "HEAD")
_VERSIONS = (HttpVersion11, HttpVersion10)


class App:
    """What a server does with each request. aiohttp's own application, with its routes and middlewares, would take as
    long as all the rest: there is one table here, and one way through it.

    It is to be served with `auto_decompress=False`: what is sent is stored as it is.
    """

    def __init__(self, config: Config, buffers: Buffers, callers: Callers, ready: Callable[[], bool]) -> None:
        self.serving = Serving(
            buffers, callers, ready, Leases(buffers), Metrics(), Stopping(), Trails(config.root), openapi.encode(TABLE)
        )
        self._dispatch = Dispatch(TABLE)
        self._root = str(config.root)

    async def stop(self) -> None:
        """Ends what would go on for ever."""
        self.serving.stopping.stop()

    async def close(self) -> None:
        await self.serving.leases.close()
        self.serving.trails.close()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        started = time.perf_counter()
        response: web.StreamResponse
        try:
            response = await _serve(self.serving, self._dispatch, request)
        except HbufError as error:
            response = answers.problem(_told(error, self._root))
        except (web.HTTPException, web.RequestPayloadError, ConnectionError) as error:
            LOG.debug("a request cannot be read: %s", type(error).__name__)
            response = answers.problem(BadInput("the request cannot be read"))
        except Exception:
            LOG.exception("%s %s failed", request.method, request.rel_url.raw_path)
            response = answers.problem(HbufError("something went wrong in the server"))
        caller = request.get(CALLER)
        tenant = caller.tenant if caller is not None else ""
        self.serving.metrics.note_request(tenant, request.method, response.status, time.perf_counter() - started)
        return response


async def _serve(serving: Serving, dispatch: Dispatch, request: web.BaseRequest) -> web.StreamResponse:
    if request.version not in _VERSIONS:
        raise UsageError("this is neither HTTP/1.1 nor HTTP/1.0")
    path, _, query = request.raw_path.partition("?")
    if not path.startswith("/"):
        path = request.rel_url.raw_path  # the whole URL may be in the request line
    method = request.method
    found = dispatch.find(path)
    row = _row(found, method)
    if row is not None and row.needs == "open":
        _check_version(request)
        return await row.handler(Call(request, serving, _NOBODY, names.DEFAULT_TENANT, "", "", query))
    caller = caller_of(request, serving.callers)
    request[CALLER] = caller
    if found is None:
        raise NotFound("there is no such thing here")
    tenant = caller.tenant if found.tenant is None else found.tenant
    request[TENANT] = tenant
    if row is None:
        error = WrongMethod(f"{method[:20]} cannot be done here")
        return answers.problem(error, {"allow": ", ".join(_methods(found.methods))})
    if method not in _SAFE and is_foreign(request):
        raise NotAllowed("this was sent by a page of another origin")
    if not _may(caller, row.needs, tenant, found.buffer):
        raise NotAllowed("no role allows this", hint="hbuf-user grant gives one")
    _check_version(request)
    names.check_tenant_name(tenant)
    if found.buffer:
        names.check_buffer_name(found.buffer)
    return await row.handler(Call(request, serving, caller, tenant, found.buffer, found.rest, query))


_NOBODY = Caller("nobody", names.DEFAULT_TENANT, False, ())


def _row(found: Found | None, method: str) -> Method | None:
    if found is None:
        return None
    row = found.methods.get(method)
    return found.methods.get("GET") if row is None and method == "HEAD" else row


def _methods(methods: Mapping[str, Method]) -> list[str]:
    return sorted({*methods, *(["HEAD"] if "GET" in methods else [])})


def _may(caller: Caller, needs: Needs, tenant: str, buffer: str) -> bool:
    if needs == "list":
        return caller.may_anything("see", tenant)
    if needs == "anything":
        return caller.may_anything("operate", tenant)
    return needs != "open" and caller.may(needs, tenant, buffer)


def _check_version(request: web.BaseRequest) -> None:
    version = request.headers.get("x-hbuf-version")
    if version is not None and version != answers.VERSION:
        raise UsageError(f"version '{version[:20]}' is not spoken here", hint=f"x-hbuf-version: {answers.VERSION}")


def _told(error: HbufError, root: str) -> HbufError:
    """Clients need not know where buffers lie."""
    for text in (error.message, error.hint or ""):
        if root in text:
            break
    else:
        return error
    inner = f"{root}/{names.TENANTS}/"
    for attribute in ("message", "hint"):
        text = getattr(error, attribute)
        if text:
            parts = text.split(inner)
            text = parts[0] + "".join(part.split(f"/{names.BUFFERS}/", 1)[-1] for part in parts[1:])
            setattr(error, attribute, text.replace(f"{root}/", "").replace(root, "."))
    return error
