"""An administrator of one tenant, over raw connections, tries to learn of another's or to change it, in vain."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from hbuf.format.users import parse_grant, parse_token
from hbuf.ops.user import add_user, new_certificate, new_token, revoke_token

if TYPE_CHECKING:
    from running_daemon import RunningDaemon

SECRET = b"what only the shop may know"
OWN = b"what the attacker has"
SEGMENT = f"{1:020}.http"
_DEADLINE_SECONDS = 10
# A request that none of the daemon's answers would be one to.
_SMUGGLED = "GET /tenants/shop/b/orders/1 HTTP/1.1\r\nhost: x\r\n\r\n"


class Answer(NamedTuple):
    status: int
    head: bytes
    body: bytes


class Scene:
    def __init__(self, daemon: RunningDaemon) -> None:
        self.daemon = daemon
        self.tokens: dict[str, str] = {}
        for tenant, body in (("shop", SECRET), ("evil", OWN)):
            assert daemon.request("PUT", f"/tenants/{tenant}/b/orders", {}).status == 201
            assert daemon.request("POST", f"/tenants/{tenant}/b/orders", body).status == 201
            add_user(daemon.root, tenant, "admin", [parse_grant("admin:*")])
            self.tokens[tenant] = new_token(daemon.root, tenant, "admin")

    def as_user(self, tenant: str) -> str:
        return f"authorization: Bearer {self.tokens[tenant]}\r\n"

    def send(self, data: bytes | str, *, context: ssl.SSLContext | None = None) -> list[Answer]:
        """All that is answered until the daemon closes the connection."""
        plain = socket.create_connection(("127.0.0.1", self.daemon.port), timeout=_DEADLINE_SECONDS)
        received = b""
        with (context or self.daemon.context()).wrap_socket(plain, server_hostname="127.0.0.1") as connection:
            connection.sendall(data if isinstance(data, bytes) else data.encode())
            with contextlib.suppress(ConnectionError):
                while part := connection.recv(65536):
                    received += part
        return list(_answers(received))

    def ask(self, line: str, headers: str = "", body: str = "", *, tenant: str = "evil") -> Answer:
        """One request, whose connection is closed behind it."""
        text = f"{line}\r\nhost: 127.0.0.1\r\nconnection: close\r\n{self.as_user(tenant)}{headers}\r\n{body}"
        [answer] = self.send(text.encode("latin-1"))
        return answer


def _answers(data: bytes) -> Iterator[Answer]:
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        yield Answer(int(head.split(b" ")[1]), head, rest[:length])
        data = rest[length:]


@pytest.fixture(scope="module")
def scene(daemon: RunningDaemon) -> Scene:
    return Scene(daemon)


PATHS = [
    "/tenants/shop/b/orders/1",
    "//tenants/shop/b/orders/1",
    "/tenants//shop/b/orders/1",
    "/tenants/shop//b/orders/1",
    "/tenants/%73hop/b/orders/1",
    "/%74enants/shop/b/orders/1",
    "/tenants/shop/%62/orders/1",
    "/tenants/evil/../shop/b/orders/1",
    "/tenants/evil%2f..%2fshop/b/orders/1",
    "/tenants/evil/b/../../shop/b/orders/1",
    "/tenants/evil/b/orders/../../../shop/b/orders/1",
    "/tenants/shop%00/b/orders/1",
    "/tenants/shop%20/b/orders/1",
    "/tenants/shop./b/orders/1",
    "/tenants/./b/orders/1",
    "/tenants/../b/orders/1",
    "/tenants/..%2f..%2fshop/b/orders/1",
    "/tenants/*/b/orders/1",
    "/tenants/SHOP/b/orders/1",
    "/tenants/shop;evil/b/orders/1",
    "/tenants/shop,evil/b/orders/1",
    "/tenants/\uff53hop/b/orders/1".encode().decode("latin-1"),
    "/tenants/%ff%fe/b/orders/1",
    "/tenants/shop%252fb/b/orders/1",
    "/tenants/shop/b",
    "/tenants/shop/metrics",
    "/tenants/shop/",
    "/b/..%2f..%2fshop%2fbuffers%2forders/1",
    "/b/..%2F..%2F..%2Fshop/1",
    "/b/../../shop/buffers/orders/1",
    "/b/%2e%2e/%2e%2e/shop/buffers/orders/1",
    f"/b/orders/segments/..%2f..%2f..%2f..%2fshop%2fbuffers%2forders%2fsegments%2f{SEGMENT}",
    f"/b/orders/segments/../../../../shop/buffers/orders/segments/{SEGMENT}",
    "/b/orders/segments/..%2f..%2f..%2fusers.json",
    "/b/orders/segments/%2fetc%2fpasswd",
    "/b/orders/segments/..%2fproducers",
    "/b/shop%2forders/1",
    "/b/tenants%2fshop%2fb%2forders",
    "/b/\\..\\..\\shop\\buffers\\orders/1",
    "http://127.0.0.1/tenants/shop/b/orders/1",
    "https://shop/tenants/shop/b/orders/1",
    "https://evil@shop:1//tenants/shop/b/orders/1",
    "tenants/shop/b/orders/1",
    "*",
    "shop:443",
    "/" + "a/" * 10_000,
    "/b/" + "x" * 60_000,
    "/b/" + "%2e" * 15_000,
    "/b/orders/99999999999999999999999999999999",
    "/b/orders/1?" + "&".join(f"a{i}=1" for i in range(5000)),
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ascii(path[:50]))
@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS"])
def test_no_path_leads_to_another_tenant(scene: Scene, method: str, path: str) -> None:
    answer = scene.ask(f"{method} {path} HTTP/1.1")
    assert 400 <= answer.status < 500
    assert SECRET not in answer.body
    assert str(scene.daemon.root).encode() not in answer.head + answer.body


@pytest.mark.parametrize("path", ["/b/orders/1", "/b/%6frders/%31", "/tenants/evil/b/orders/1", "http://x/b/orders/1"])
def test_the_own_message_is_found_in_every_way_that_names_it(scene: Scene, path: str) -> None:
    """Or the test above could not fail."""
    assert scene.ask(f"GET {path} HTTP/1.1").body == OWN


@pytest.mark.parametrize(
    "header",
    [
        "x-original-url: /tenants/shop/b/orders/1",
        "x-rewrite-url: /tenants/shop/b/orders/1",
        "x-forwarded-prefix: /tenants/shop",
        "x-http-method-override: DELETE",
        "x-hbuf-tenant: shop",
        "x-forwarded-host: shop",
        "x-ssl-client-cert: shop/admin",
        "x-forwarded-user: admin",
        "forwarded: for=unix",
        "cookie: tenant=shop",
    ],
)
def test_no_header_leads_to_another_tenant(scene: Scene, header: str) -> None:
    assert scene.ask("GET /b/orders/1 HTTP/1.1", f"{header}\r\n").body == OWN


def test_another_tenant_cannot_be_told_from_one_that_is_not_there(scene: Scene) -> None:
    for rest in ("/b", "/b/orders", "/b/orders/1", "/b/orders/status", f"/b/orders/segments/{SEGMENT}", "/b/none/1"):
        for method in ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"):
            there, missing = (
                scene.ask(f"{method} /tenants/{tenant}{rest} HTTP/1.1", "content-length: 2\r\n", "{}")
                for tenant in ("shop", "nobody")
            )
            assert (there.status, there.body) == (missing.status, missing.body)
            assert there.status in (403, 405)


@pytest.mark.parametrize(
    "headers",
    [
        "content-length: 5\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        "content-length: 5\r\ncontent-length: 6\r\n",
        "content-length: +5\r\n",
        "content-length: 5, 5\r\n",
        "content-length: -1\r\n",
        "content-length: 0x5\r\n",
        "content-length: \x005\r\n",
        "transfer-encoding: identity, chunked, identity\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding : chunked\r\n",
        " transfer-encoding: chunked\r\n",
        "transfer-encoding:\x0bchunked\r\n",
        "transfer-encoding\r\n : chunked\r\n",
        "x: a\rtransfer-encoding: chunked\r\ncontent-length: 5\r\n",
        "x: a\x00b\r\n",
        "\x00: a\r\n",
        "content-length: 5\r\n\ttransfer-encoding: chunked\r\n",
    ],
    ids=ascii,
)
def test_what_two_readers_could_take_for_different_requests_is_none(scene: Scene, headers: str) -> None:
    """Nothing is stored, and what follows on the connection is not read as a request."""
    body = "0\r\n\r\n" + _SMUGGLED
    text = f"POST /b/orders HTTP/1.1\r\nhost: x\r\n{scene.as_user('evil')}{headers}\r\n{body}"
    answers = scene.send(text.encode("latin-1"))
    assert [answer.status for answer in answers] == [400]
    assert scene.ask("HEAD /b/orders HTTP/1.1").head.lower().count(b"x-hbuf-last: 1\r\n") == 1


def test_each_request_of_a_connection_has_its_own_credential(scene: Scene) -> None:
    get = "GET /b/orders/1 HTTP/1.1\r\nhost: x\r\n"
    last = "connection: close\r\n\r\n"
    text = f"{get}{scene.as_user('shop')}\r\n{get}\r\n{get}{scene.as_user('evil')}\r\n{get}{last}"
    answers = scene.send(text)
    assert [answer.status for answer in answers] == [200, 401, 200, 401]
    assert [SECRET in answer.body for answer in answers] == [True, False, False, False]
    assert answers[2].body == OWN


def test_two_credentials_in_one_request_are_not_the_sum_of_both(scene: Scene) -> None:
    shop, evil = (f"Bearer {scene.tokens[tenant]}" for tenant in ("shop", "evil"))
    for first, second in ((evil, "Bearer nonsense"), (evil, shop), ("Bearer nonsense", evil)):
        text = f"GET /tenants/shop/b/orders/1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: {first}\r\n"
        [answer] = scene.send(f"{text}authorization: {second}\r\n\r\n")
        assert answer.status in (400, 401, 403)
    text = "GET /b/orders/1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    [answer] = scene.send(f"{text}authorization: {evil}, {shop}\r\n\r\n")
    assert answer.status == 401


def test_a_token_and_the_certificate_of_another_tenant_are_not_the_sum_of_both(scene: Scene, tmp_path: Path) -> None:
    """The token says who asks; where it is not valid nobody does, whatever certificate the connection has."""
    context = scene.daemon.context()
    context.load_cert_chain(*new_certificate(scene.daemon.root, "shop", "admin", tmp_path))
    get = "GET {} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{}\r\n"
    revoked = new_token(scene.daemon.root, "evil", "admin")
    parsed = parse_token(revoked)
    assert parsed is not None
    revoke_token(scene.daemon.root, "evil", "admin", parsed.id)
    for path, headers, status, body in (
        ("/b/orders/1", "", 200, SECRET),
        ("/b/orders/1", scene.as_user("evil"), 200, OWN),
        ("/tenants/shop/b/orders/1", scene.as_user("evil"), 403, None),
        ("/tenants/evil/b/orders/1", "", 403, None),
        ("/b/orders/1", f"authorization: Bearer {revoked}\r\n", 401, None),
        ("/b/orders/1", "authorization: Bearer\r\n", 401, None),
        ("/b/orders/1", "authorization: \r\n", 401, None),
    ):
        [answer] = scene.send(get.format(path, headers), context=context)
        assert answer.status == status
        assert body in (None, answer.body)


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_an_older_version_of_http_needs_a_credential_too(scene: Scene, version: str) -> None:
    [refused] = scene.send(f"GET /b/orders/1 {version}\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert refused.status == 401
    assert scene.ask(f"GET /b/orders/1 {version}").body == OWN


@pytest.mark.parametrize(
    "line",
    [
        "GET /b/orders/1 HTTP/2.0",
        "GET /b/orders/1",
        "GET /b/orders/1 HTTP/9",
        "GET /b/orders/1 HTTQ/1.1",
        "PRI * HTTP/2.0",
        "GET\0 / HTTP/1.1",
    ],
)
def test_what_is_no_request_of_http_1_is_400(scene: Scene, line: str) -> None:
    assert [answer.status for answer in scene.send(f"{line}\r\nhost: x\r\n{scene.as_user('evil')}\r\n")] == [400]


def test_after_all_that_nothing_of_the_other_tenant_has_changed(scene: Scene) -> None:
    head = scene.daemon.request("HEAD", "/tenants/shop/b/orders")
    assert head.headers["x-hbuf-last"] == "1"
    assert scene.ask("GET /b/orders/1 HTTP/1.1", tenant="shop").body == SECRET
    names = [each["buffer"] for each in scene.daemon.request("GET", "/tenants/shop/b").json()["buffers"]]
    assert names == ["_audit", "orders"]


def test_changes_of_a_paused_buffer_are_refused_at_once_and_hold_nobody_up(scene: Scene) -> None:
    """Each of them would wait on a thread, and others' appends for a thread."""
    assert scene.ask("PUT /b/orders/paused HTTP/1.1", "content-length: 0\r\n").status == 201
    for method, path, body in (
        ("PATCH", "/b/orders/settings", '{"segment_bytes": 8192}'),
        ("DELETE", "/b/orders/1?reason=x", ""),
        ("POST", "/b/orders/erased", '{"numbers": ["1"], "reason": "x"}'),
        ("PUT", "/b/orders/closed", ""),
        ("DELETE", "/b/orders/closed", ""),
        ("POST", "/b/orders", "x"),
    ):
        answer = scene.ask(f"{method} {path} HTTP/1.1", f"content-length: {len(body)}\r\n", body)
        assert (answer.status, b"\r\nretry-after: " in answer.head.lower()) == (423, True)
    assert scene.ask("DELETE /b/orders/paused HTTP/1.1").status == 204
