"""An event stream: messages as they come, for as long as the client listens and may."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace

from aiohttp import web

from hbuf.daemon import answers
from hbuf.daemon.call import LOG, Call
from hbuf.daemon.reads import Read, Wanted
from hbuf.errors import HbufError, SlowDown, UsageError
from hbuf.format.places import Place

COMMENT_SECONDS = 15.0
_MESSAGES = 1000  # of one read
_LAST_ID = re.compile(r"[0-9]{1,18}")


async def stream(call: Call, wanted: Wanted) -> web.StreamResponse:
    serving = call.serving
    last = call.request.headers.get("last-event-id")
    if last:
        if not _LAST_ID.fullmatch(last):
            raise UsageError("last-event-id is not a number")
        wanted = replace(wanted, start=Place("number", int(last) + 1))
    if serving.event_streams >= serving.config.limits.event_streams:
        raise SlowDown(f"there are {serving.event_streams} event streams already, which is the limit")
    serving.event_streams += 1
    try:
        return await _stream(call, replace(wanted, most=_MESSAGES))
    finally:
        serving.event_streams -= 1


async def _stream(call: Call, wanted: Wanted) -> web.StreamResponse:
    found = await call.serving.buffers.read(call.where, wanted.read)  # what it raises is answered as ever
    response = web.StreamResponse(headers=answers.headers_of([("content-type", answers.EVENTS)]))
    await response.prepare(call.request)
    try:
        await _go_on(call, wanted, found, response)
    except HbufError as error:
        LOG.info("an event stream of %s/%s ends: %s", call.tenant, call.buffer, error.message)
    except (ConnectionError, TimeoutError):
        _abort(call)
    except asyncio.CancelledError:
        _abort(call)
        raise
    except Exception:
        LOG.exception("an event stream of %s/%s failed", call.tenant, call.buffer)
        _abort(call)
    return response


async def _go_on(call: Call, wanted: Wanted, found: Read, response: web.StreamResponse) -> None:
    serving = call.serving
    quiet_since = time.monotonic()
    with serving.buffers.waiting(call.where) as waiter:
        while not serving.stopping.asked and _may_still(call):
            waiter.arm()
            if found.parts:
                await _write(call, response, b"".join(map(_event, found.parts)))
                serving.metrics.note_read(call.tenant, found.count, found.size)
                quiet_since = time.monotonic()
            found = await serving.buffers.read(call.where, wanted.following(found).read)
            if found.parts:
                continue
            left = quiet_since + COMMENT_SECONDS - time.monotonic()
            if left <= 0:
                await _write(call, response, b":\n\n")
                quiet_since = time.monotonic()
                left = COMMENT_SECONDS
            await serving.stopping.wait(waiter.wait(left))


def _may_still(call: Call) -> bool:
    """A user may have been revoked since, or lost a role."""
    return call.serving.callers.renewed(call.caller).may("read", call.tenant, call.buffer)


def _event(line: bytes) -> bytes:
    seq = line[line.index(b'"seq":') + 6 :].split(b",", 1)[0]
    return b"id: %b\ndata: %b\n" % (seq, line)


async def _write(call: Call, response: web.StreamResponse, data: bytes) -> None:
    """Whoever does not take what was sent is not waited for."""
    async with asyncio.timeout(call.serving.config.limits.request_seconds):
        await response.write(data)


def _abort(call: Call) -> None:
    if call.request.transport is not None:
        call.request.transport.abort()
