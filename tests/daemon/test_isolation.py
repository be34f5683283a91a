"""Who has no role learns nothing: every request of the table, on what exists and on what does not, is one answer."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from hbuf.daemon.table import TABLE
from hbuf.format.users import parse_token
from hbuf.ops.user import new_token, revoke_token, revoke_user

from .served import Answer, Served, serving

SEGMENT = "00000000000000000001.http"
OPEN = {"/healthz", "/readyz", "/openapi.json"}
OF_BUFFERS = [(path, method) for path, methods in TABLE.items() for method in methods if path.startswith("/b")]
BODY = b'{"why": "to learn something"}'
# Names that exist and that do not, and names that are none: of the tenant, of the buffer, of what is in it.
THERE = ("shop", "orders", "1", SEGMENT)
MISSING = ("nobody", "nothing", "999999", "00000000000000000077.http")
NO_NAMES = ("SHOP%20", "..%2Forders", "12", "..%2fbuffer.json")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Tenant `shop` has the buffer `orders` with a message; `mallory` is the administrator of another tenant."""
    with serving(tmp_path_factory.mktemp("isolation") / "root") as served:
        served.user("owner", "admin:*", tenant="shop")
        served.user("mallory", "admin:*", tenant="others")
        served.user("clerk", "admin:other-*", tenant="shop")
        served.user("gone", "admin:*", tenant="shop")
        revoke_user(served.root, "shop", "gone")
        served.user("twice", "admin:*", tenant="shop")
        new_token(served.root, "shop", "twice")
        parsed = parse_token(served.tokens["twice"])
        assert parsed is not None
        revoke_token(served.root, "shop", "twice", parsed.id)
        served.tokens["nonsense"] = "hbuf_shop.12345678_" + "A" * 43
        served.default = "owner"
        served.buffer("orders", b"secret of shop")
        yield served


def _ask(served: Served, user: str | None, path: str, method: str, names: tuple[str, ...]) -> Answer:
    tenant, buffer, seq, file = names
    filled = path.replace("{buffer}", buffer).replace("{seq}", seq).replace("{file}", file)
    body = None if method in ("GET", "HEAD") else BODY
    return served(method, f"/tenants/{tenant}{filled}", body, {"content-type": "application/json"}, user=user)


def _same(answers: list[Answer]) -> Answer:
    first = answers[0]
    for answer in answers[1:]:
        assert answer.status == first.status
        assert answer.body == first.body
        assert [pair for pair in answer.headers.items() if pair[0] != "Date"] == [
            pair for pair in first.headers.items() if pair[0] != "Date"
        ]
    return first


@pytest.mark.parametrize(("path", "method"), OF_BUFFERS)
@pytest.mark.parametrize(
    ("user", "status"), [("mallory", 403), (None, 401), ("gone", 401), ("twice", 401), ("nonsense", 401)]
)
def test_another_tenant_is_the_same_whether_there_is_such_a_thing_or_not(
    shop: Served, path: str, method: str, user: str | None, status: int
) -> None:
    answer = _same([_ask(shop, user, path, method, names) for names in (THERE, MISSING, NO_NAMES)])
    assert answer.status == status
    assert b"secret" not in answer.body


@pytest.mark.parametrize(("path", "method"), [row for row in OF_BUFFERS if "{buffer}" in row[0]])
def test_a_buffer_without_a_role_on_it_is_the_same_whether_it_is_there_or_not(
    shop: Served, path: str, method: str
) -> None:
    everywhere = [("shop", *names[1:]) for names in (THERE, MISSING, NO_NAMES)]
    assert _same([_ask(shop, "clerk", path, method, names) for names in everywhere]).status == 403


@pytest.mark.parametrize(("path", "method"), OF_BUFFERS)
def test_the_owner_gets_something_else(shop: Served, path: str, method: str) -> None:
    """Or the tests above could not fail."""
    assert _ask(shop, "owner", path, method, ("shop", "other", "1", SEGMENT)).status not in (401, 403)


@pytest.mark.parametrize("path", [path for path in TABLE if "{" not in path])
def test_what_is_not_open_to_anybody_needs_a_credential(shop: Served, path: str) -> None:
    assert shop("GET", path, user=None).status == (200 if path in OPEN else 401)
    assert shop("GET", path, user="gone").status == (200 if path in OPEN else 401)


def test_a_wrong_method_says_nothing_either(shop: Served) -> None:
    asked = [_ask(shop, "mallory", "/b/{buffer}/status", "DELETE", names) for names in (THERE, MISSING)]
    assert _same(asked).status == 405
    assert _same([_ask(shop, None, "/b/{buffer}/status", "DELETE", names) for names in (THERE, MISSING)]).status == 401


def test_lists_and_numbers_are_of_the_own_tenant_alone(shop: Served) -> None:
    assert [each["buffer"] for each in shop("GET", "/b").json()["buffers"]] == ["_audit", "orders"]
    assert "orders" not in shop("GET", "/b", user="mallory").body.decode()
    assert "orders" not in shop("GET", "/", user="mallory").body.decode()
    assert 'tenant="shop"' in shop("GET", "/metrics").body.decode()
    assert "shop" not in shop("GET", "/metrics", user="mallory").body.decode()
    assert "hbuf_open_buffers" not in shop("GET", "/metrics").body.decode()
    assert shop("GET", "/b", user="clerk").json() == {"buffers": []}


def test_a_user_of_the_server_sees_all_tenants(shop: Served) -> None:
    shop.user("root", "admin:*", tenant=None)
    assert shop("GET", "/tenants/shop/b/orders/1", user="root").body == b"secret of shop"
    told = shop("GET", "/metrics", user="root").body.decode()
    assert 'tenant="shop"' in told
    assert re.search(r"^hbuf_open_buffers [1-9]", told, re.MULTILINE)


def test_without_a_tenant_it_is_the_own_one(shop: Served) -> None:
    assert shop("GET", "/b/orders/1").body == b"secret of shop"
    assert shop("GET", "/tenants/shop/b/orders/1").body == b"secret of shop"
    assert shop("GET", "/b/orders/1", user="mallory").status == 404


def test_what_is_told_names_no_path_of_the_server(shop: Served) -> None:
    for method, path in (("GET", "/b/missing"), ("GET", "/b/missing/settings"), ("GET", "/b/orders/head")):
        answer = shop(method, path)
        assert answer.status == 404
        assert str(shop.root) not in answer.body.decode()
        assert re.search(r"missing|orders", answer.json()["detail"])


def test_a_user_that_is_revoked_is_shut_out_at_once(shop: Served) -> None:
    shop.user("brief", "reader:*", tenant="shop")
    assert shop("GET", "/b/orders", user="brief").status == 200
    revoke_user(shop.root, "shop", "brief")
    assert shop("GET", "/b/orders", user="brief").status == 401
