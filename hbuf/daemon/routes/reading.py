"""GET and HEAD /b/{buffer}: messages from a place on, in the form that the client likes best."""

from __future__ import annotations

import sys
import time

from aiohttp import web

from hbuf.daemon import answers, asking
from hbuf.daemon.call import Call
from hbuf.daemon.reads import Form, Read, Wanted
from hbuf.daemon.routes import live
from hbuf.errors import UsageError
from hbuf.format.places import Place, parse_place
from hbuf.ops.filter import Filter
from hbuf.ops.status import quick_status

FORMS = (answers.HTTP.partition(";")[0], answers.NDJSON, answers.OCTETS, answers.EVENTS)
_TYPES: dict[str, tuple[Form, str]] = {
    FORMS[0]: ("http", answers.HTTP),
    answers.NDJSON: ("json", answers.NDJSON),
    answers.OCTETS: ("body", answers.OCTETS),
    answers.EVENTS: ("json", answers.EVENTS),
}
_PARAMETERS = ("from", "to", "max", "wait", "key", "tag")
_USUAL_MAX = 1000
_MOST_DAMAGE = 50  # header lines


async def read(call: Call) -> web.StreamResponse:
    given = asking.parameters(call, _PARAMETERS)
    accepted = asking.accepted(call.request, FORMS)
    form, content_type = _TYPES[accepted]
    limits = call.serving.config.limits
    most = asking.count("max", given["max"]) if "max" in given else _USUAL_MAX
    wait_seconds = asking.seconds("wait", given["wait"]) if "wait" in given else 0.0
    wanted = Wanted(
        place(given.get("from", "first")),
        place(given["to"]) if "to" in given else None,
        Filter(_bytes(given, "key"), _bytes(given, "tag")),
        min(most, limits.read_messages),
        form,
        limits.read_bytes,
    )
    if accepted == answers.EVENTS:
        if "max" in given or "wait" in given or "to" in given:
            raise UsageError("an event stream goes on: it has no to, max or wait")
        return await live.stream(call, wanted)
    found = await call.serving.buffers.read(call.where, wanted.read)
    if wait_seconds and not found.parts and most and not call.serving.stopping.asked:
        found = await _waited(call, wanted, found, min(wait_seconds, limits.wait_seconds))
    call.serving.metrics.note_read(call.tenant, found.count, found.size)
    body = found.parts[0] if len(found.parts) == 1 else b"".join(found.parts)
    return answers.answer(body, content_type, [*answers.STORED, *_headers(found)])


async def _waited(call: Call, wanted: Wanted, found: Read, wait_seconds: float) -> Read:
    """The same read again each time that something was appended, until it finds a message or the time is up."""
    serving = call.serving
    deadline = time.monotonic() + wait_seconds
    with serving.buffers.waiting(call.where) as waiter:
        while True:
            waiter.arm()
            start = found.start
            found = await serving.buffers.read(call.where, wanted.following(found).read)
            found.start = start
            left = deadline - time.monotonic()
            if found.parts or left <= 0 or found.is_bounded or serving.stopping.asked:
                return found
            await serving.stopping.wait(waiter.wait(left))


def place(text: str) -> Place:
    return parse_place(text, time.time_ns() // 1000)


def _bytes(given: dict[str, str], name: str) -> bytes | None:
    return given[name].encode() if name in given else None


def _headers(found: Read) -> list[tuple[str, str]]:
    headers = [
        ("x-hbuf-from", str(found.start)),
        ("x-hbuf-next", str(found.next)),
        ("x-hbuf-first", str(found.first)),
        ("x-hbuf-last", str(found.last)),
    ]
    if found.retired:
        headers.append(("x-hbuf-retired", str(found.retired)))
    if found.damage:
        headers.append(("x-hbuf-damaged", str(len(found.damage))))
        headers += [("x-hbuf-damage", place) for place in found.damage[:_MOST_DAMAGE]]
    return headers


async def head(call: Call) -> web.StreamResponse:
    given = asking.parameters(call, _PARAMETERS)
    wanted = Wanted(
        place(given.get("from", "first")),
        place(given["to"]) if "to" in given else None,
        Filter(),
        0,
        "http",
        sys.maxsize,
    )
    found, status = await call.serving.buffers.read(
        call.where, lambda reader: (wanted.read(reader), quick_status(reader))
    )
    headers = [*_headers(found), ("x-hbuf-state", status.state), ("x-hbuf-uuid", status.uuid)]
    if status.last_id is not None:
        headers.append(("etag", f'"{status.last_id}"'))
    return answers.answer(b"", answers.HTTP, headers)
