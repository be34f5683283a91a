"""What there is to say of each request of the table, for the OpenAPI document: values, and nothing that runs."""

from __future__ import annotations

from typing import Any, NamedTuple

_Schema = dict[str, Any]
_Content = dict[str, _Schema]

_ANYTHING: _Schema = {}
_JSON = "application/json"
_NDJSON = "application/x-ndjson"
_HTTP = "application/http"
_TEXT = "text/plain"
_OCTETS = "application/octet-stream"


class Described(NamedTuple):
    summary: str
    answers: dict[int, _Content]
    parameters: tuple[str, ...] = ()
    body: _Content | None = None
    body_required: bool = False
    errors: tuple[int, ...] = ()  # beside those that every request of its kind may have


def _ref(name: str) -> _Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: _Schema, *required: str, more: bool = True) -> _Schema:
    found: _Schema = {"type": "object", "properties": properties, "required": list(required)}
    return found if more else {**found, "additionalProperties": False}


def _or_null(kind: str) -> _Schema:
    return {"type": [kind, "null"]}


_COUNT = {"type": "integer", "minimum": 0}
_STRING = {"type": "string"}
_LINE = {"type": "string", "pattern": "^[!-~]([ -~]{0,100}[!-~])?$"}
_SIZE = "^[1-9][0-9]{0,2}MiB$"
_AGE = "^[1-9][0-9]{0,3}[smhd]$"
_FLAG = {"type": "boolean"}
_ID = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_TIME = {"type": "string", "format": "date-time"}
_NUMBERED = {"type": ["integer", "null"], "minimum": 1}

_CHANGEABLE: _Schema = {
    "segment_bytes": {"type": ["integer", "string"], "minimum": 4096, "maximum": 2**31, "pattern": _SIZE},
    "segment_messages": {"type": ["integer", "null"], "minimum": 1, "maximum": 2**32},
    "segment_age": {"type": ["integer", "string", "null"], "minimum": 1, "maximum": 10**9, "pattern": _AGE},
    "max_message_bytes": {"type": ["integer", "string"], "minimum": 1, "maximum": 2**29, "pattern": _SIZE},
    "compress": _FLAG,
    "retention_age": {"type": ["integer", "string", "null"], "minimum": 1, "maximum": 10**9, "pattern": _AGE},
    "retention_bytes": {"type": ["integer", "string", "null"], "minimum": 1, "maximum": 2**62, "pattern": _SIZE},
    "retention_messages": {"type": ["integer", "null"], "minimum": 1, "maximum": 2**32},
    "recipients": {"type": "array", "items": _STRING},
}
_LISTING: _Schema = {
    "tenant": _STRING,
    "buffer": _STRING,
    "first": _COUNT,
    "last": _COUNT,
    "messages": _COUNT,
    "bytes": _COUNT,
    "segments": _COUNT,
    "oldest": _or_null("string"),
    "newest": _or_null("string"),
    "state": {"enum": ["open", "paused", "closed", "damaged"]},
    "stale_pause": _FLAG,
}

SCHEMAS: dict[str, _Schema] = {
    "problem": _object(
        {
            "type": {"type": "string", "pattern": "^urn:hbuf:"},
            "title": _STRING,
            "status": {"type": "integer"},
            "detail": _STRING,
            "code": _STRING,
            "hint": _STRING,
            "seq": _COUNT,
            "stored": _or_null("integer"),
        },
        *("type", "title", "status", "detail", "code"),
    ),
    "settings": _object(
        {"uuid": _STRING, "name": _STRING, "created": _STRING, "format": _COUNT, "hash": _STRING, "erasable": _FLAG},
        *("uuid", "name", "created", "format", "hash", "erasable", "segment_bytes", "max_message_bytes"),
    ),
    "making": _object(
        {
            **_CHANGEABLE,
            "hash": {"enum": ["blake3", "sha256"]},
            "erasable": _FLAG,
            "sign": _FLAG,
            "recovery_key": _or_null("string"),
        },
        more=False,
    ),
    "changes": _object(_CHANGEABLE, more=False),
    "appended": _object(
        {
            "first": _NUMBERED,
            "last": _NUMBERED,
            "count": _COUNT,
            "id": {"type": ["string", "null"]},
            "duplicates": _COUNT,
        },
        *("first", "last", "count", "id", "duplicates"),
    ),
    "listing": _object(_LISTING, *_LISTING),
    "marker": {
        "oneOf": [
            {"type": "null"},
            _object(dict.fromkeys(("who", "when", "why", "host"), _STRING), "who", "when", "why", "host"),
        ]
    },
}
SCHEMAS["status"] = _object(
    {
        **_LISTING,
        "uuid": _STRING,
        "id": {"type": ["string", "null"]},
        "signed": _FLAG,
        "encrypted": _FLAG,
        "erasable": _FLAG,
        "paused": _ref("marker"),
        "closed": _ref("marker"),
        "producer": _object({"seq": _or_null("integer"), "message": _NUMBERED}, "seq", "message"),
    },
    *(*_LISTING, "uuid", "id", "signed", "encrypted", "erasable", "paused", "closed"),
)

_PLACE = {"type": "string", "pattern": r"^(first|last|end|-?[1-9][0-9]{0,17}|@[1-9][0-9]{0,5}[smhd])$"}
# Where it is, what it may be, what it means.
PARAMETERS: dict[str, tuple[str, _Schema, str]] = {
    "from": ("query", _PLACE, "Where to begin."),
    "to": ("query", _PLACE, "Where to end, not included."),
    "max": ("query", {"type": "integer", "minimum": 0, "maximum": 10**9}, "At most so many messages."),
    "wait": (
        "query",
        {"type": "number", "minimum": 0, "maximum": 60, "multipleOf": 0.5},
        "How many seconds to wait for a message.",
    ),
    "key": ("query", _LINE, "Only messages with this key."),
    "tag": ("query", _LINE, "Only messages with this tag."),
    "producer": ("query", _LINE, "Whose last number is wanted."),
    "split": ("query", {"enum": ["lines"]}, "Each line is a message."),
    "reason": ("query", _LINE, "Why; it stays in the log for good."),
    "lease": ("query", _LINE, "Ends only the pause of this lease."),
    "x-hbuf-key": ("header", _LINE, "The message's key."),
    "x-hbuf-tag": ("header", _LINE, "A tag of the message."),
    "x-hbuf-producer": ("header", _LINE, "Who sends."),
    "x-hbuf-producer-seq": ("header", {"type": "integer", "minimum": 0}, "The producer's number."),
    "x-hbuf-strict-seq": ("header", {"enum": ["0", "1"]}, "Whether a gap in a producer's numbers is refused."),
    "x-hbuf-ack": ("header", {"enum": ["written", "synced", "majority", "all"]}, "What the answer is to wait for."),
    "if-match": ("header", {"type": "string", "pattern": '^"[0-9a-f]{64}"$'}, "The id of the last record."),
    "last-event-id": ("header", {"type": "integer", "minimum": 0}, "Goes on behind this number."),
    "range": ("header", {"type": "string", "pattern": "^bytes=[0-9]{1,9}-([0-9]{1,9})?$"}, "Which bytes."),
    "if-range": ("header", _STRING, "The etag that a range is of."),
    "if-none-match": ("header", _STRING, "The etag that is there already."),
}

_ERASED = {_JSON: _object({"erased": _COUNT, "missing": _COUNT}, "erased")}
_PAUSED = {_JSON: _object({"paused": _ref("marker"), "lease": _STRING}, "paused")}
_CLOSED = {_JSON: _object({"closed": _ref("marker")}, "closed")}
_APPENDED = {_JSON: _ref("appended"), _NDJSON: _ANYTHING}
_READ = {_HTTP: _ANYTHING, _NDJSON: _ANYTHING, _OCTETS: _ANYTHING, "text/event-stream": _ANYTHING}
_WHY = {"why": _LINE}
_PLACES = ("from", "to", "max", "wait", "key", "tag")

DESCRIBED: dict[str, Described] = {
    "GET /healthz": Described("It is alive.", {200: {_TEXT: _ANYTHING}}),
    "GET /readyz": Described("It is ready.", {200: {_TEXT: _ANYTHING}}, errors=(503,)),
    "GET /openapi.json": Described("This document.", {200: {_JSON: {"type": "object"}}}),
    "GET /metrics": Described("For Prometheus.", {200: {_TEXT: _ANYTHING}}),
    "GET /": Described("A status page for people.", {200: {"text/html": _ANYTHING, _TEXT: _ANYTHING}}, errors=(406,)),
    "GET /b": Described(
        "Lists the buffers that the caller has a role on.",
        {200: {_JSON: _object({"buffers": {"type": "array", "items": _ref("listing")}}, "buffers")}},
    ),
    "PUT /b/{buffer}": Described(
        "Makes a buffer; 200 where it is there with these settings.",
        {201: {_JSON: _ref("settings")}, 200: {_JSON: _ref("settings")}},
        body={_JSON: _ref("making")},
    ),
    "POST /b/{buffer}": Described(
        "Appends a message, or a batch that is stored whole or not at all.",
        {201: _APPENDED, 200: _APPENDED},
        parameters=(
            *("split", "x-hbuf-key", "x-hbuf-tag", "x-hbuf-producer", "x-hbuf-producer-seq"),
            *("x-hbuf-strict-seq", "x-hbuf-ack", "if-match"),
        ),
        body={_OCTETS: _ANYTHING, _HTTP: _ANYTHING, _NDJSON: _ANYTHING},
        errors=(406, 412),
    ),
    "GET /b/{buffer}": Described(
        "Reads.", {200: _READ}, parameters=(*_PLACES, "last-event-id"), errors=(406, 429, 503)
    ),
    "HEAD /b/{buffer}": Described("Numbers and state, in headers.", {200: {}}, parameters=_PLACES, errors=(503,)),
    "GET /b/{buffer}/status": Described(
        "Numbers, sizes, state.", {200: {_JSON: _ref("status")}}, parameters=("producer",), errors=(503,)
    ),
    "GET /b/{buffer}/settings": Described("The settings.", {200: {_JSON: _ref("settings")}}),
    "PATCH /b/{buffer}/settings": Described(
        "Changes settings.", {200: {_JSON: _ref("settings")}}, body={_JSON: _ref("changes")}
    ),
    "GET /b/{buffer}/erased": Described("The list of what was erased.", {200: {_TEXT: _ANYTHING}}, errors=(503,)),
    "POST /b/{buffer}/erased": Described(
        "Erases many messages, or what a list names.",
        {200: {**_ERASED, _NDJSON: _ANYTHING}},
        parameters=("reason",),
        body={
            _JSON: _object(
                {
                    "numbers": {"type": "array", "minItems": 1, "items": {"type": ["string", "integer"]}},
                    "key": _STRING,
                    "reason": _STRING,
                    "dry_run": _FLAG,
                },
                more=False,
            ),
            _TEXT: _STRING,
        },
        body_required=True,
    ),
    "GET /b/{buffer}/head": Described(
        "The newest signed head, as a C2SP note.", {200: {_TEXT: _ANYTHING}}, errors=(503,)
    ),
    "GET /b/{buffer}/segments": Described(
        "Lists the files.",
        {
            200: {
                _JSON: _object(
                    {
                        "files": {
                            "type": "array",
                            "items": _object(
                                {"file": _STRING, "bytes": _COUNT, "etag": _STRING}, "file", "bytes", "etag"
                            ),
                        }
                    },
                    "files",
                )
            }
        },
        errors=(503,),
    ),
    "GET /b/{buffer}/segments/{file}": Described(
        "A file, byte for byte.",
        {200: {_OCTETS: _ANYTHING}, 206: {_OCTETS: _ANYTHING}, 304: {}},
        parameters=("range", "if-range", "if-none-match"),
        errors=(416, 503),
    ),
    "GET /b/{buffer}/paused": Described("Who paused it.", {200: _PAUSED}),
    "PUT /b/{buffer}/paused": Described(
        "Pauses it; with lease_seconds the pause ends by itself.",
        {201: _PAUSED, 200: _PAUSED},
        body={
            _JSON: _object(
                {**_WHY, "lease_seconds": {"type": "number", "minimum": 1, "maximum": 3600}, "lease": _STRING},
                more=False,
            )
        },
    ),
    "DELETE /b/{buffer}/paused": Described("Ends a pause.", {204: {}}, parameters=("lease",)),
    "GET /b/{buffer}/closed": Described("Who closed it.", {200: _CLOSED}),
    "PUT /b/{buffer}/closed": Described(
        "Closes it for writing.", {201: _CLOSED, 200: _CLOSED}, body={_JSON: _object(_WHY, more=False)}
    ),
    "DELETE /b/{buffer}/closed": Described("Opens it again.", {204: {}}),
    "GET /b/{buffer}/{seq}": Described(
        "One message: its body as the body, its fields as headers.",
        {200: {"*/*": _ANYTHING}, 304: {}},
        parameters=("if-none-match",),
        errors=(410, 503),
    ),
    "DELETE /b/{buffer}/{seq}": Described("Erases a message.", {200: _ERASED}, parameters=("reason",), errors=(410,)),
}
