"""/b/{buffer}/paused and /closed: keeping a buffer as it is for a while, and closing it for writing."""

from __future__ import annotations

import os
from typing import Any, Literal

from aiohttp import web

from hbuf.daemon import answers, asking
from hbuf.daemon.call import Call
from hbuf.errors import UsageError
from hbuf.ops.close import close, reopen
from hbuf.ops.pause import Hold, pause, resume
from hbuf.ops.status import marker_values
from hbuf.store.directory import BufferDirectory
from hbuf.store.markers import read_marker
from hbuf.store.signing import Signer

MAX_LEASE_SECONDS = 3600
MAX_WHY_BYTES = 1024
_WAIT_SECONDS = 2.0


async def show_paused(call: Call) -> web.StreamResponse:
    asking.parameters(call, ())
    return await _shown(call, "paused", 200)


async def show_closed(call: Call) -> web.StreamResponse:
    asking.parameters(call, ())
    return await _shown(call, "closed", 200)


async def _shown(call: Call, what: Literal["paused", "closed"], status: int, **more: Any) -> web.Response:
    def look(directory: BufferDirectory) -> dict[str, str] | None:
        directory.require()
        marker = read_marker(directory.paused if what == "paused" else directory.closed)
        return marker_values(None if marker is None or marker.stale else marker)

    return answers.json_answer({what: await call.serving.buffers.look(call.where, look), **more}, status=status)


async def pause_it(call: Call) -> web.StreamResponse:
    asking.parameters(call, ())
    values = await asking.json_object(call, ("why", "lease_seconds", "lease"))
    why, lease, seconds = _why(values), asking.text_of(values, "lease"), _lease_seconds(values)
    if lease is not None:
        if seconds is None:
            raise UsageError("a lease is renewed for some time: lease_seconds says how long")
        await call.serving.leases.renew(call.where, lease, seconds)
        return await _shown(call, "paused", 200, lease=lease)
    command = None if seconds is None else "a lease of hbufd"

    def work(directory: BufferDirectory, signer: Signer | None) -> Hold | None:
        return pause(
            str(directory.path), reason=why, timeout_seconds=_WAIT_SECONDS, command=command, who=call.caller.who
        )

    hold = await call.serving.buffers.change(call.where, work)
    if hold is None:
        return await _shown(call, "paused", 200)
    if seconds is None:
        os.close(hold.fd)
        more = {}
    else:
        more = {"lease": call.serving.leases.grant(call.where, hold, seconds)}
    await call.note("buffer.pause", why=why, lease_seconds=seconds)
    return await _shown(call, "paused", 201, **more)


async def resume_it(call: Call) -> web.StreamResponse:
    lease = asking.parameters(call, ("lease",)).get("lease")
    if lease is not None:
        await call.serving.leases.release(call.where, lease)
        ended = True
    else:
        ended = await call.serving.buffers.change(
            call.where, lambda directory, signer: resume(str(directory.path), timeout_seconds=_WAIT_SECONDS)
        )
    if ended:
        await call.note("buffer.resume")
    return answers.nothing()


async def close_it(call: Call) -> web.StreamResponse:
    asking.parameters(call, ())
    why = _why(await asking.json_object(call, ("why",)))

    def work(directory: BufferDirectory, signer: Signer | None) -> bool:
        return close(
            str(directory.path), reason=why, timeout_seconds=_WAIT_SECONDS, who=call.caller.who, wait_paused=False
        )

    is_new = await call.serving.buffers.change(call.where, work)
    if is_new:
        await call.note("buffer.close", why=why)
    return await _shown(call, "closed", 201 if is_new else 200)


async def open_it(call: Call) -> web.StreamResponse:
    asking.parameters(call, ())

    def work(directory: BufferDirectory, signer: Signer | None) -> bool:
        return reopen(str(directory.path), timeout_seconds=_WAIT_SECONDS, wait_paused=False)

    opened = await call.serving.buffers.change(call.where, work)
    if opened:
        await call.note("buffer.open")
    return answers.nothing()


def _why(values: dict[str, Any]) -> str:
    why = asking.text_of(values, "why") or ""
    if len(why.encode()) > MAX_WHY_BYTES or not why.isprintable():
        raise UsageError(f"'why' is one line of text, of at most {MAX_WHY_BYTES} bytes")
    return why


def _lease_seconds(values: dict[str, Any]) -> float | None:
    seconds = values.get("lease_seconds")
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 1 <= seconds <= MAX_LEASE_SECONDS:
        raise UsageError(f"lease_seconds: {seconds} is not between 1 and {MAX_LEASE_SECONDS}")
    return float(seconds)
