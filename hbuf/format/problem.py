"""Errors on the wire: problem documents (RFC 9457), encoded by the daemon and parsed by the commands.

The code of an error is its name on the wire; a code that is not known is told by its status.
"""

from __future__ import annotations

import json
from typing import Any

from hbuf import errors
from hbuf.errors import HbufError

MEDIA_TYPE = "application/problem+json"
_URN = "urn:hbuf:"


def encode_problem(error: HbufError) -> bytes:
    values: dict[str, Any] = {
        "type": _URN + error.code,
        "title": error.code.replace("-", " "),
        "status": error.http_status,
        "detail": error.message,
        "code": error.code,
    }
    if error.hint:
        values["hint"] = error.hint
    if error.seq is not None:
        values["seq"] = error.seq
    if error.stored != 0:
        values["stored"] = error.stored
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def parse_problem(status: int, body: bytes) -> HbufError:
    """The error that an answer tells of, whatever a proxy or a later version made of it."""
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        values = {}
    detail = values.get("detail")
    hint = values.get("hint")
    error = _kind(values.get("code"), status)(
        detail if isinstance(detail, str) and detail else f"the server answered {status}",
        hint=hint if isinstance(hint, str) else None,
    )
    if _is_count(values.get("seq")):
        error.seq = values["seq"]
    if "stored" in values:
        error.stored = values["stored"] if _is_count(values["stored"]) else None
    return error


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _kind(code: object, status: int) -> type[HbufError]:
    if isinstance(code, str) and code in _KINDS:
        return _KINDS[code]
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return errors.UsageError if 400 <= status < 500 else errors.Unavailable


# Not by their subclasses: other modules have errors of their own, with codes of these.
_KINDS: dict[str, type[HbufError]] = {
    kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HbufError)
}
_BY_STATUS: dict[int, type[HbufError]] = {
    401: errors.Unauthorized,
    403: errors.NotAllowed,
    404: errors.NotFound,
    408: errors.TooSlow,
    410: errors.Gone,
    412: errors.PreconditionFailed,
    413: errors.TooLarge,
    429: errors.SlowDown,
    500: errors.HbufError,
    507: errors.DiskFull,
}
