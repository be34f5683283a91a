"""What a request asks for: its parameters, the form of the answer, its body. Everything else is refused."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

from hbuf.daemon.call import Call
from hbuf.errors import BadInput, NotAcceptable, TooLarge, TooSlow, UsageError, WrongMediaType

MAX_JSON_BYTES = 1024**2

_COUNT = re.compile(r"0|[1-9][0-9]{0,17}")
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,18})?")


def parameters(call: Call, known: Collection[str]) -> dict[str, str]:
    if not call.query:
        return {}
    try:
        pairs = parse_qsl(call.query, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError:
        raise UsageError("the parameters are not UTF-8, or too many") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            hint = f"known are {', '.join(known)}" if known else "this request has none"
            raise UsageError(f"there is no parameter '{name}'", hint=hint)
        if name in found:
            raise UsageError(f"the parameter '{name}' is there more than once")
        found[name] = value
    return found


def count(name: str, text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise UsageError(f"{name}: '{text}' is not a number")
    return int(text)


def seconds(name: str, text: str) -> float:
    if not _SECONDS.fullmatch(text):
        raise UsageError(f"{name}: '{text}' is not a number of seconds")
    return float(text)


def accepted(request: web.BaseRequest, forms: Sequence[str]) -> str:
    """The first of `forms` that the client likes best. Parameters of media types but `q` are passed over."""
    given = request.headers.get("accept")
    if given is None or given == "*/*":
        return forms[0]
    wanted = ",".join(request.headers.getall("accept")).lower()
    best, best_quality = "", 0.0
    ranges = [_range(part) for part in wanted.split(",")]
    for form in forms:
        quality = _quality(form, ranges)
        if quality > best_quality:
            best, best_quality = form, quality
    if not best:
        raise NotAcceptable("there is no such form of an answer", hint=f"there are {', '.join(forms)}")
    return best


def _range(part: str) -> tuple[str, float]:
    media, *rest = (piece.strip() for piece in part.split(";"))
    quality = next((piece[2:] for piece in rest if piece.startswith("q=")), "1")
    try:
        return media, min(max(float(quality), 0.0), 1.0)
    except ValueError:
        return media, 0.0


def _quality(form: str, ranges: Sequence[tuple[str, float]]) -> float:
    """That of the most specific range."""
    by_media = dict(ranges)
    for media in (form, form.partition("/")[0] + "/*", "*/*"):
        if media in by_media:
            quality = by_media[media]
            return quality if quality == quality else 0.0
    return 0.0


def media_type(request: web.BaseRequest) -> str:
    """Of the body, in lower case and without parameters; empty where the request does not say."""
    given = request.headers.get("content-type")
    return given.partition(";")[0].strip().lower() if given else ""


async def body_of(call: Call, limit_bytes: int, what: str) -> bytes:
    """The whole body, as it came."""
    request = call.request
    length = request.content_length
    if length is not None and length > limit_bytes:
        raise _too_large(what, limit_bytes)
    if not request.can_read_body:
        return b""
    if "expect" in request.headers and not request.content.is_eof():
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    content = request.content
    incoming = call.serving.buffers.incoming
    parts: list[bytes] = []
    size = 0
    try:
        if content.is_eof():
            body = content.read_nowait()
            if len(body) > limit_bytes:
                raise _too_large(what, limit_bytes)
            return body
        async with asyncio.timeout(call.serving.config.limits.request_seconds):
            while part := await content.readany():
                size += len(part)
                if size > limit_bytes:
                    raise _too_large(what, limit_bytes)
                incoming.enter(len(part))
                parts.append(part)
    except TimeoutError:
        raise TooSlow("the body took too long to come") from None
    except (web.RequestPayloadError, web.HTTPException) as error:
        raise BadInput(f"the body cannot be read: {error}") from None
    finally:
        for part in parts:
            incoming.leave(len(part))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(what: str, limit_bytes: int) -> TooLarge:
    return TooLarge(f"{what} has more than {limit_bytes} bytes, which is the limit")


async def json_object(call: Call, known: Collection[str]) -> dict[str, Any]:
    """The body as a JSON object with no names but these; an empty body is `{}`."""
    body = await body_of(call, MAX_JSON_BYTES, "the JSON")
    if not body.strip():
        return {}
    if media_type(call.request) not in ("", "application/json", "application/x-www-form-urlencoded"):
        raise WrongMediaType("this takes application/json")
    try:
        values = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise BadInput("the body is not JSON") from None
    if not isinstance(values, dict):
        raise BadInput("the body is not a JSON object")
    for name in values:
        if name not in known:
            raise UsageError(f"there is no '{name}' here", hint=f"known are {', '.join(known)}")
    return values


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def text_of(values: dict[str, Any], name: str) -> str | None:
    value = values.get(name)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"'{name}' is not text")
    return None if value is None else checked_text(name, value)


def checked_text(name: str, value: str) -> str:
    """Text that UTF-8 can hold: JSON may escape halves of characters."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"'{name}' is not text that UTF-8 can hold") from None
    return value
