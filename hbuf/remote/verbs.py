"""What a server does to a buffer for us, one request each. What can be checked before is, by the same rules."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hbuf.errors import BadInput, NotFound, Unavailable, UsageError
from hbuf.format.message import Message
from hbuf.format.note import parse_note
from hbuf.format.settings import Settings, parse_settings
from hbuf.format.times import parse_time
from hbuf.remote.buffer import RemoteBuffer

_JSON = {"content-type": "application/json"}
_TEXT = {"content-type": "text/plain"}
_LONG_SECONDS = 600.0  # for what may rewrite many segments


def create(buffer: RemoteBuffer, values: Mapping[str, Any]) -> bool:
    """False where it was there already, with the same settings."""
    with buffer.connect() as connection:
        answer = connection.request("PUT", headers=_JSON, body=_encoded(values))
        return answer.status == 201 or answer.again


def read_settings(buffer: RemoteBuffer) -> Settings:
    with buffer.connect() as connection:
        try:
            return parse_settings(connection.get("/settings").body)
        except NotFound as error:
            error.hint = error.hint or "hbuf-create makes a buffer on a server; nothing else does"
            raise


def change_settings(buffer: RemoteBuffer, values: Mapping[str, Any], timeout_seconds: float) -> None:
    with buffer.connect(timeout_seconds) as connection:
        connection.request("PATCH", "/settings", headers=_JSON, body=_encoded(values))


def close(buffer: RemoteBuffer, why: str, timeout_seconds: float) -> bool:
    """False where it was closed already."""
    with buffer.connect(timeout_seconds) as connection:
        return connection.request("PUT", "/closed", headers=_JSON, body=_encoded({"why": why})).status == 201


def reopen(buffer: RemoteBuffer, timeout_seconds: float) -> None:
    with buffer.connect(timeout_seconds) as connection:
        connection.request("DELETE", "/closed")


def head(buffer: RemoteBuffer) -> str:
    with buffer.connect() as connection:
        note = connection.get("/head").body
    try:
        parse_note(note)
    except BadInput as error:
        raise Unavailable(f"{buffer.shown}: the server's answer is no note: {error.message}") from None
    return note.decode()


def status(buffer: RemoteBuffer) -> dict[str, Any]:
    with buffer.connect() as connection:
        return connection.get("/status").json()


def buffer_names(buffers: RemoteBuffer) -> list[str]:
    """The buffers of a tenant that may be seen, by name."""
    with buffers.connect() as connection:
        listed = connection.get().json().get("buffers")
    if not isinstance(listed, list):
        raise Unavailable(f"{buffers.shown}: the server's list cannot be read")
    return sorted(str(each.get("buffer") if isinstance(each, dict) else each) for each in listed)


def erase(buffer: RemoteBuffer, wanted: Mapping[str, Any], reason: str, timeout_seconds: float) -> int:
    """Erases `numbers`, or those of a `key`. Returns how many; doing it twice erases nothing more."""
    with buffer.connect(timeout_seconds) as connection:
        body = _encoded({**wanted, "reason": reason})
        answer = connection.request("POST", "/erased", headers=_JSON, body=body, read_seconds=_LONG_SECONDS)
        return _count(answer.json(), "erased")


def candidates(buffer: RemoteBuffer, wanted: Mapping[str, Any]) -> Iterator[Message]:
    """The messages that `erase` would erase. Their fields and bodies are not told."""
    with buffer.connect() as connection:
        body = _encoded({**wanted, "dry_run": True})
        answer = connection.request("POST", "/erased", headers=_JSON, body=body, read_seconds=_LONG_SECONDS)
    for line in answer.body.splitlines():
        try:
            values = json.loads(line)
            seq, time_us, key = int(values["seq"]), parse_time(values["time"]), values["key"]
        except (ValueError, TypeError, KeyError):
            raise Unavailable(f"{buffer.shown}: the server's answer cannot be read") from None
        yield Message(buffer.location.tenant or "", buffer.name, seq, time_us, "", key, (), (), b"")


def list_erased(buffer: RemoteBuffer) -> bytes:
    with buffer.connect() as connection:
        return connection.get("/erased", read_seconds=_LONG_SECONDS).body


def apply_list(buffer: RemoteBuffer, listed: bytes, reason: str, timeout_seconds: float) -> tuple[int, int]:
    """Erases what a list names. Returns how many were erased, and how many are not there."""
    with buffer.connect(timeout_seconds) as connection:
        answer = connection.request(
            "POST", "/erased", {"reason": reason}, headers=_TEXT, body=listed, read_seconds=_LONG_SECONDS
        ).json()
    return _count(answer, "erased"), _count(answer, "missing")


def parse_sign(text: str) -> bool:
    if text not in ("true", "false"):
        raise UsageError(f"sign: '{text}' is neither true nor false")
    return text == "true"


def _count(values: Mapping[str, Any], name: str) -> int:
    found = values.get(name, 0)
    return found if isinstance(found, int) else 0


def _encoded(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values).encode()
