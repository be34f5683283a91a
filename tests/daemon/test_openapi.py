"""The OpenAPI document: every request is in it, and what schemathesis makes of it is answered as it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import checks
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks as openapi_checks

from hbuf.daemon import openapi
from hbuf.daemon.table import TABLE

from .served import Served, serving

CASES_EACH = 12
CHECKS = [
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
]
SETTINGS = hypothesis.settings(
    max_examples=CASES_EACH,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("openapi") / "root", wait_seconds=0.01) as running:
        yield running


def test_every_request_of_the_table_is_in_the_document_and_nothing_else(asked: Served) -> None:
    paths = asked("GET", "/openapi.json", user=None).json()["paths"]
    told = {(path, method.upper()) for path, methods in paths.items() for method in methods if method != "parameters"}
    there = {(path, method) for path, methods in TABLE.items() for method in methods}
    below = {("/tenants/{tenant}" + path, method) for path, method in there if path.startswith("/b")}
    assert told == there | below


def test_a_request_that_is_not_described_is_an_error_at_the_start() -> None:
    with pytest.raises(KeyError):
        openapi.encode({**TABLE, "/new": TABLE["/healthz"]})
    with pytest.raises(KeyError):
        openapi.encode({path: methods for path, methods in TABLE.items() if path != "/healthz"})


@pytest.mark.parametrize("path", sorted(TABLE))
def test_answers_are_as_the_document_says(asked: Served, path: str) -> None:
    asked("PUT", "/b/orders")
    asked("DELETE", "/b/orders/paused")
    asked("DELETE", "/b/orders/closed")
    for number in range(3):
        asked("POST", "/b/orders", f"order {number}".encode())
    schema = _schema(asked)
    for method in TABLE[path]:
        _ask(schema[path][method], asked)


def test_a_document_that_says_something_else_is_noticed(asked: Served) -> None:
    asked("PUT", "/b/orders")
    document = asked("GET", "/openapi.json", user=None).json()
    document["components"]["schemas"]["status"]["properties"]["first"] = {"type": "string"}
    with pytest.raises(FailureGroup, match="schema"):
        _ask(_schema(asked, document)["/b/{buffer}/status"]["GET"], asked)


@pytest.mark.parametrize(
    ("path", "method"), [("/b/{buffer}", "PUT"), ("/b/{buffer}", "GET"), ("/b/{buffer}/settings", "PATCH")]
)
def test_what_the_document_does_not_allow_is_no_error_of_the_server(asked: Served, path: str, method: str) -> None:
    operation = _schema(asked)[path][method]
    negative = operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)

    @SETTINGS
    @hypothesis.given(case=negative)
    def ask(case: Any) -> None:
        case.call_and_validate(headers=_headers(asked), verify=asked.cacert, checks=[checks.not_a_server_error])

    ask()


def _schema(asked: Served, document: dict[str, Any] | None = None) -> Any:
    schema = schemathesis.openapi.from_dict(document or asked("GET", "/openapi.json", user=None).json())
    schema.config.update(base_url=asked.url)
    return schema


def _headers(asked: Served) -> dict[str, str]:
    return {"authorization": f"Bearer {asked.tokens['admin']}"}


def _ask(operation: Any, asked: Served) -> None:
    @SETTINGS
    @hypothesis.given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        if "buffer" in case.path_parameters and f"{case.method} {case.path}" != "PUT /b/{buffer}":
            case.path_parameters["buffer"] = "orders"
        case.call_and_validate(headers=_headers(asked), verify=asked.cacert, checks=CHECKS)

    ask()
