"""Answers: what every one of them says of itself, JSON, and problem documents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web
from multidict import CIMultiDict

from hbuf.errors import HbufError
from hbuf.format.problem import MEDIA_TYPE, encode_problem

VERSION = "1"
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
NDJSON = "application/x-ndjson"
OCTETS = "application/octet-stream"
HTTP = "application/http; msgtype=request"
EVENTS = "text/event-stream"

Headers = CIMultiDict[str]
Response = web.Response

# No browser guesses what a body is, keeps it, or shows it inside another page.
_ALWAYS = (
    ("server", "hbuf"),
    ("x-hbuf-version", VERSION),
    ("x-content-type-options", "nosniff"),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
    ("content-security-policy", "default-src 'none'; sandbox"),
)
# What users have stored is no page of ours: it is saved, and never shown.
STORED = (("content-disposition", "attachment"),)

_RETRY_SECONDS = {423: "5", 429: "1", 503: "1", 507: "60"}
# Browsers look at the first of a line only, and know Basic.
_CHALLENGES = ('Basic realm="hbuf", charset="UTF-8"', 'Bearer realm="hbuf"')


def headers_of(*more: Iterable[tuple[str, str]]) -> Headers:
    headers = CIMultiDict(_ALWAYS)
    for pairs in more:
        headers.update(pairs)
    return headers


def answer(
    body: bytes | bytearray, content_type: str, more: Iterable[tuple[str, str]] = (), *, status: int = 200
) -> web.Response:
    headers = CIMultiDict(_ALWAYS)
    headers["content-type"] = content_type
    headers.update(more)
    return web.Response(status=status, body=body, headers=headers)


def nothing(more: Iterable[tuple[str, str]] = (), *, status: int = 204) -> web.Response:
    return web.Response(status=status, headers=headers_of(more))


def json_answer(values: Any, more: Iterable[tuple[str, str]] = (), *, status: int = 200) -> web.Response:
    body = json.dumps(values, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    return answer(body, JSON, more, status=status)


def problem(error: HbufError, more: Mapping[str, str] | None = None) -> web.Response:
    headers = headers_of((more or {}).items())
    headers["content-type"] = MEDIA_TYPE
    status = error.http_status
    if status in _RETRY_SECONDS:
        headers["retry-after"] = _RETRY_SECONDS[status]
    if status == 401:
        for challenge in _CHALLENGES:
            headers.add("www-authenticate", challenge)
    return web.Response(status=status, body=encode_problem(error), headers=headers)
