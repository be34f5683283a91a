"""Errors keep their meaning on the way from the daemon to a command."""

from __future__ import annotations

import json

import pytest

from hbuf import errors
from hbuf.errors import HbufError
from hbuf.format.problem import encode_problem, parse_problem


def _all_kinds() -> list[type[HbufError]]:
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HbufError)]


@pytest.mark.parametrize("kind", _all_kinds())
def test_every_error_comes_back_as_what_it_was(kind: type[HbufError]) -> None:
    error = kind("orders: it is so", hint="do this")
    error.seq, error.stored = 7, 3
    back = parse_problem(kind.http_status, encode_problem(error))
    assert (type(back), back.message, back.hint, back.seq, back.stored) == (kind, "orders: it is so", "do this", 7, 3)


@pytest.mark.parametrize("stored", [0, 3, None])
def test_how_much_was_stored_comes_back_and_so_does_that_it_is_not_known(stored: int | None) -> None:
    error = errors.StorageFailed("orders: Input/output error")
    error.stored = stored
    assert parse_problem(500, encode_problem(error)).stored == stored


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in _all_kinds()]
    assert len(codes) == len(set(codes))


def test_a_problem_document_has_what_the_standard_asks_for() -> None:
    values = json.loads(encode_problem(errors.Paused("orders: is paused")))
    assert values == {
        "type": "urn:hbuf:paused", "title": "paused", "status": 423, "detail": "orders: is paused", "code": "paused",
    }  # fmt: skip


@pytest.mark.parametrize(
    "body", [b"", b"<html>gateway</html>", b"[]", b'{"detail": 7}', b"[" * 100_000, b"\xff", b'{"code": ["x"]}']
)
def test_what_is_no_problem_document_is_told_by_its_status(body: bytes) -> None:
    assert type(parse_problem(404, body)) is errors.NotFound
    assert type(parse_problem(502, body)) is errors.Unavailable
    assert type(parse_problem(418, body)) is errors.UsageError
    assert parse_problem(502, body).message == "the server answered 502"


def test_errors_that_other_modules_have_of_their_own_do_not_stand_for_those_here() -> None:
    class Unknown(errors.Unavailable):
        pass

    assert type(parse_problem(503, encode_problem(Unknown("no answer came")))) is errors.Unavailable


def test_a_code_of_a_later_version_is_told_by_its_status() -> None:
    assert type(parse_problem(403, b'{"code": "far-future", "detail": "no"}')) is errors.NotAllowed
