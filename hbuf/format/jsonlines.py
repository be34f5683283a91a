"""Messages as JSON, one object a line, the same everywhere: commands, `application/x-ndjson`, Spark's columns."""

from __future__ import annotations

import base64
import json
from typing import Any

from hbuf.errors import BadInput, HbufError
from hbuf.format.fields import encode_fields
from hbuf.format.message import Draft, Message
from hbuf.format.times import encode_time

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode_json(message: Message) -> bytes:
    """One line, without its newline. A body that is not UTF-8 is `body_base64` instead of `body`; what cannot be
    read, erased or encrypted, is null.
    """
    values: dict[str, Any] = {
        "tenant": message.tenant,
        "buffer": message.buffer,
        "seq": message.seq,
        "time": encode_time(message.time_us),
        "id": message.id,
        "key": message.key,
        "tags": message.tags,
        "headers": [{"name": name, "value": value} for name, value in message.headers],
    }
    if message.erased or message.encrypted:
        values["body"] = None
    else:
        try:
            values["body"] = message.body.decode()
        except UnicodeDecodeError:
            values["body_base64"] = base64.b64encode(message.body).decode()
    values["erased"] = message.erased
    values["encrypted"] = message.encrypted
    return _encode(values).encode()


def parse_json(line: bytes) -> Draft | None:
    """The message to store again, or None for one that was erased. Number, time and id are given anew."""
    return draft_of(parse_object(line))


def parse_object(line: bytes) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise BadInput(f"not JSON: {error}") from None
    except RecursionError:
        raise BadInput("the JSON is nested too deep") from None
    if not isinstance(values, dict):
        raise BadInput("not a JSON object")
    return values


def draft_of(values: dict[str, Any]) -> Draft | None:
    """The message that a line tells of, or None for one that was erased."""
    if values.get("erased") is True:
        return None
    if values.get("encrypted") is True:
        raise BadInput("the message is encrypted", hint="decrypt it before it is copied")
    try:
        fields = encode_fields(_optional_text(values, "key"), _texts(values, "tags"), _headers(values))
    except BadInput:
        raise
    except HbufError as error:
        raise BadInput(error.message, hint=error.hint) from None
    return Draft(_body(values), fields)


def _optional_text(values: dict[str, Any], name: str) -> str | None:
    value = values.get(name)
    if value is not None and not isinstance(value, str):
        raise BadInput(f"'{name}' is not text")
    return value


def _texts(values: dict[str, Any], name: str) -> list[str]:
    found = values.get(name) or []
    if not isinstance(found, list) or not all(isinstance(value, str) for value in found):
        raise BadInput(f"'{name}' is not a list of texts")
    return found


def _headers(values: dict[str, Any]) -> list[tuple[str, str]]:
    found = values.get("headers") or []
    try:
        headers = [(header["name"], header["value"]) for header in found]
    except (TypeError, KeyError):
        raise BadInput("'headers' is not a list of names and values") from None
    if not all(isinstance(text, str) for header in headers for text in header):
        raise BadInput("'headers' has a name or value that is not text")
    return headers


def _body(values: dict[str, Any]) -> bytes:
    body, encoded = values.get("body"), values.get("body_base64")
    if isinstance(body, str) and encoded is None:
        try:
            return body.encode()
        except UnicodeEncodeError:
            raise BadInput("'body' is not text that UTF-8 can hold") from None
    if isinstance(encoded, str) and body is None:
        try:
            decoded = base64.b64decode(encoded, validate=True)
        except ValueError:
            raise BadInput("'body_base64' is not base64") from None
        if base64.b64encode(decoded).decode() != encoded:
            raise BadInput("'body_base64' is not canonical base64")
        return decoded
    raise BadInput("there is neither a 'body' nor a 'body_base64'")
