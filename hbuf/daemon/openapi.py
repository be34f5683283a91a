"""The description of all this, as OpenAPI has it, made from the table of routes so that the two cannot differ.

A request of the table that is not described here is an error at the start, and so is one that is only described.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hbuf.daemon.call import Method
from hbuf.daemon.described import DESCRIBED, PARAMETERS, SCHEMAS, Described
from hbuf.daemon.table import TENANTS
from hbuf.format.problem import MEDIA_TYPE
from hbuf.version import VERSION

_NAMES: dict[str, dict[str, Any]] = {
    "tenant": {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,127}$"},
    "buffer": {"type": "string", "pattern": "^_?[a-z0-9][a-z0-9._-]{0,127}$"},
    "seq": {"type": "integer", "minimum": 1, "maximum": 10**18 - 1},
    "file": {"type": "string", "pattern": r"^(buffer\.json|keys\.http|[0-9]{20}\.(http|http\.zst|idx|tags))$"},
}
# What any request can be answered with, and what one about a buffer can.
_ANY = (400, 405, 500)
_WITH_CREDENTIAL = (401, 403, 404)
_CHANGING = (408, 409, 413, 415, 423, 429, 503, 507)
_ROLES = {"see": "any role", "append": "writer", "read": "reader", "operate": "operator", "erase": "admin"}


def encode(table: Mapping[str, Mapping[str, Method]]) -> bytes:
    paths: dict[str, Any] = {}
    for path, methods in table.items():
        paths[path] = _path(path, methods)
        if path.startswith("/b"):
            paths[TENANTS + path] = _path(TENANTS + path, methods)
    unknown = DESCRIBED.keys() - {f"{method} {path}" for path, methods in table.items() for method in methods}
    if unknown:
        raise KeyError(f"described, and not there: {min(unknown)}")
    document = {
        "openapi": "3.1.0",
        "info": {"title": "hbuf", "version": VERSION, "description": "Buffers of durable messages over HTTPS."},
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
                "certificate": {"type": "mutualTLS"},
            },
        },
        "security": [{"bearer": []}, {"basic": []}, {"certificate": []}],
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def _path(path: str, methods: Mapping[str, Method]) -> dict[str, Any]:
    found: dict[str, Any] = {method.lower(): _operation(path, method, row.needs) for method, row in methods.items()}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in _NAMES.items()
        if f"{{{name}}}" in path
    ]
    return {**({"parameters": parameters} if parameters else {}), **found}


def _operation(path: str, method: str, needs: str) -> dict[str, Any]:
    described = DESCRIBED[f"{method} {path.removeprefix(TENANTS)}"]
    operation: dict[str, Any] = {
        "operationId": f"{method.lower()}{path.replace('/', '_').replace('{', '').replace('}', '')}",
        "summary": described.summary,
        "responses": _responses(described, method, needs),
    }
    if needs in _ROLES:
        operation["description"] = f"Role: {_ROLES[needs]}."
    if needs == "open":
        operation["security"] = []
    if described.parameters:
        operation["parameters"] = [_parameter(name) for name in described.parameters]
    if described.body:
        operation["requestBody"] = {
            "required": described.body_required,
            "content": {media: {"schema": schema} for media, schema in described.body.items()},
        }
    return operation


def _parameter(name: str) -> dict[str, Any]:
    where, schema, what = PARAMETERS[name]
    return {"name": name, "in": where, "required": False, "description": what, "schema": schema}


def _responses(described: Described, method: str, needs: str) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, content in described.answers.items():
        responses[str(status)] = {"description": described.summary}
        if content:
            responses[str(status)]["content"] = {media: {"schema": schema} for media, schema in content.items()}
    errors = {*_ANY, *described.errors}
    if needs != "open":
        errors |= {*_WITH_CREDENTIAL}
    if method not in ("GET", "HEAD"):
        errors |= {*_CHANGING}
    problem = {"schema": {"$ref": "#/components/schemas/problem"}}
    for status in sorted(errors):
        responses[str(status)] = {"description": "A problem."}
        if method != "HEAD":
            responses[str(status)]["content"] = {MEDIA_TYPE: problem}
    return responses
