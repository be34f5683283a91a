"""GET and DELETE /b/{buffer}/{seq}: one message, its body as the body and its fields as headers."""

from __future__ import annotations

import re

from aiohttp import web

from hbuf.daemon import answers, asking
from hbuf.daemon.call import Call
from hbuf.daemon.routes.erased import erase_numbers
from hbuf.errors import Damaged, Gone, NotFound
from hbuf.format.message import Message, message_of
from hbuf.format.times import encode_time
from hbuf.store.reader import Reader

# What proxies and browsers obey is not told by a message, whoever stored it.
_OBEYED = re.compile(
    r"x-(?:content-type-options|frame-options|xss-protection|permitted-cross-domain-policies|dns-prefetch-control"
    r"|ua-compatible|robots-tag|download-options|accel-.*|sendfile.*|lighttpd-.*|reproxy-.*|litespeed-.*"
    r"|forwarded-.*|real-ip|http-method.*|webkit-.*|content-security-policy.*|content-duration|powered-by)"
)


async def read_message(call: Call) -> web.StreamResponse:
    asking.parameters(call, ())
    seq = int(call.rest)
    found, first = await call.serving.buffers.read(call.where, lambda reader: (_find(reader, seq), reader.first_seq))
    if found is None or found.erased:
        return _gone(call, seq, first, "retired" if found is None else "erased")
    etag = f'"{found.id}"'
    if etag in call.request.headers.get("if-none-match", ""):
        return answers.nothing([("etag", etag)], status=304)
    call.serving.metrics.note_read(call.tenant, 1, len(found.body))
    content_type = next((value for name, value in found.headers if name == "content-type"), answers.OCTETS)
    return answers.answer(found.body, content_type or answers.OCTETS, [*answers.STORED, *_headers(found)])


def _headers(message: Message) -> list[tuple[str, str]]:
    headers = [
        (name, value) for name, value in message.headers if name != "content-type" and not _OBEYED.fullmatch(name)
    ]
    headers += [
        ("x-hbuf-seq", str(message.seq)),
        ("x-hbuf-id", message.id),
        ("x-hbuf-time", encode_time(message.time_us)),
        ("etag", f'"{message.id}"'),
    ]
    if message.key is not None:
        headers.append(("x-hbuf-key", message.key))
    headers += [("x-hbuf-tag", tag) for tag in message.tags]
    if message.encrypted:
        headers.append(("x-hbuf-encrypted", "1"))
    return headers


def _find(reader: Reader, seq: int) -> Message | None:
    """The message; None where it is retired. Raises where there is none with this number."""
    if seq < reader.first_seq:
        return None
    reader.retired_seq = 0
    for chunk in reader.chunks(seq, seq + 1):
        if chunk.first != seq:
            break
        record = chunk.parse(0)
        if record is None:
            raise _about(Damaged(f"{reader.directory.name}: message {seq} is damaged"), seq)
        if record.method != b"POST":
            raise _about(
                NotFound(f"{reader.directory.name}: {seq} says what was erased or retired, and is no message"), seq
            )
        return message_of(chunk.data, record, reader.directory.tenant, reader.directory.name)
    if reader.retired_seq >= seq:
        return None
    if seq < reader.end_seq:
        raise _about(Damaged(f"{reader.directory.name}: message {seq} is damaged"), seq)
    raise _about(NotFound(f"{reader.directory.name}: there is no message {seq}"), seq)


def _about(error: Damaged | NotFound, seq: int) -> Damaged | NotFound:
    error.seq = seq
    return error


def _gone(call: Call, seq: int, first: int, how: str) -> web.Response:
    error = Gone(f"{call.buffer}: message {seq} is {how}")
    error.seq = seq
    return answers.problem(error, {"x-hbuf-first": str(first)})


async def erase_message(call: Call) -> web.StreamResponse:
    given = asking.parameters(call, ("reason",))
    seq = int(call.rest)
    return await erase_numbers(call, [range(seq, seq + 1)], given.get("reason"))
