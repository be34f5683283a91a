"""Credentials, other origins, versions, methods, and what users stored in a browser: none of it is trusted."""

from __future__ import annotations

import base64
import contextlib
import http.server
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from hbuf.ops.user import new_certificate, revoke_user

from .served import Served

DEADLINE_SECONDS = 60
EVIL = (
    b"<!doctype html><title>quiet</title><script>document.title='it ran'</script>"
    b"<img src=x onerror=document.title='it ran'>"
)
ALWAYS = {
    "x-content-type-options": "nosniff",
    "x-hbuf-version": "1",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}


@pytest.fixture
def orders(served: Served) -> Served:
    served.buffer("orders", b"order")
    return served


# Who


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "BEARER  {}", "Basic {basic}", "basic {basic}"])
def test_a_token_comes_as_bearer_or_as_the_password_of_a_browser(orders: Served, form: str) -> None:
    token = orders.tokens["admin"]
    basic = base64.b64encode(f"anybody:{token}".encode()).decode()
    given = form.format(token, basic=basic)
    assert orders("GET", "/b/orders", headers={"authorization": given}, user=None).status == 200


@pytest.mark.parametrize(
    "given",
    [
        *("", "Bearer", "Bearer ", "Bearer x", "Basic", "Basic !", "Basic eA==", "Basic /w==", "Digest x", "Bearer ü"),
        *("Bearer hbuf_default.aaaaaaaa_" + "A" * 43, "Bearer hbuf_+.aaaaaaaa_" + "A" * 43),
    ],
)
def test_what_is_no_valid_credential_is_always_the_same_answer(orders: Served, given: str) -> None:
    nobody = orders("GET", "/b/orders", user=None)
    answer = orders("GET", "/b/orders", headers={"authorization": given}, user=None)
    assert (answer.status, answer.json()["code"]) == (401, "unauthorized")
    assert 'Basic realm="hbuf"' in answer["www-authenticate"]
    assert answer.json()["code"] == nobody.json()["code"]


def test_on_the_unix_socket_the_own_user_needs_no_credential(orders: Served) -> None:
    assert orders("GET", "/b/orders", user=None, over_unix=True).status == 200
    assert orders("DELETE", "/b/orders/1?reason=x", user=None, over_unix=True).status == 200
    assert orders("GET", "/b/orders", user=None).status == 401
    given = {"authorization": "Bearer nonsense"}
    assert orders("GET", "/b/orders", headers=given, user=None, over_unix=True).status == 401


def test_a_certificate_says_who_it_is_until_it_is_revoked(orders: Served, tmp_path: Path) -> None:
    orders.user("till", "writer:*")
    files = new_certificate(orders.root, "default", "till", tmp_path)
    assert orders("POST", "/b/orders", b"x", certificate=files).status == 201
    assert orders("GET", "/b/orders", certificate=files).status == 403
    connection = orders.connection(files)
    for revoked in (False, True):  # on one connection
        if revoked:
            revoke_user(orders.root, "default", "till")
        connection.request("POST", "/b/orders", b"x")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == (401 if revoked else 201)
    connection.close()


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("reader", {"GET /b/orders", "GET /b/orders/1", "GET /b/orders/segments", "HEAD /b/orders"}),
        ("writer", {"POST /b/orders", "HEAD /b/orders"}),
        ("consumer", {"HEAD /b/orders"}),
        ("operator", {"PUT /b/orders", "PATCH /b/orders/settings", "PUT /b/orders/closed", "HEAD /b/orders", "GET /"}),
        (
            "admin",
            {
                *("GET /b/orders", "GET /b/orders/1", "GET /b/orders/segments", "HEAD /b/orders", "POST /b/orders"),
                *("PUT /b/orders", "PATCH /b/orders/settings", "PUT /b/orders/closed", "DELETE /b/orders/1", "GET /"),
            },
        ),
    ],
)
def test_a_role_gives_what_the_table_says_and_nothing_else(orders: Served, role: str, allowed: set[str]) -> None:
    orders.user("somebody", f"{role}:ord*")
    orders.user("elsewhere", f"{role}:shop-*")
    tried = (
        *("GET /b/orders", "GET /b/orders/1", "GET /b/orders/segments", "HEAD /b/orders", "POST /b/orders"),
        *("PUT /b/orders", "PATCH /b/orders/settings", "PUT /b/orders/closed", "DELETE /b/orders/1", "GET /"),
    )
    for request in tried:
        method, path = request.split()
        assert (orders(method, path, user="somebody").status != 403) == (request in allowed), request
        if path != "/":
            assert orders(method, path, user="elsewhere").status == 403


# Other origins


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1"},
        {"origin": "file://"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_page_of_another_origin_changes_nothing(orders: Served, headers: dict[str, str]) -> None:
    for method, path in (("POST", "/b/orders"), ("PUT", "/b/new"), ("DELETE", "/b/orders/1?reason=x")):
        answer = orders(method, path, headers=headers)
        assert (answer.status, answer.json()["code"]) == (403, "not-allowed")
    assert orders("GET", "/b/orders/1", headers=headers).status == 200


def test_a_page_of_the_own_origin_may(orders: Served) -> None:
    given = {"origin": orders.url, "sec-fetch-site": "same-origin"}
    assert orders("POST", "/b/orders", b"x", given).status == 201


# Versions, methods, paths


def test_another_version_is_refused(orders: Served) -> None:
    assert orders("GET", "/b/orders", headers={"x-hbuf-version": "1"}).status == 200
    for path in ("/b/orders", "/healthz"):
        answer = orders("GET", path, headers={"x-hbuf-version": "2"})
        assert (answer.status, answer["x-hbuf-version"]) == (400, "1")


@pytest.mark.parametrize(
    ("path", "allow"),
    [("/b/orders", "GET, HEAD, POST, PUT"), ("/healthz", "GET, HEAD"), ("/b/orders/1", "DELETE, GET, HEAD")],
)
def test_another_method_is_405_and_says_which_there_are(orders: Served, path: str, allow: str) -> None:
    for method in ("OPTIONS", "TRACE"):
        answer = orders(method, path)
        assert (answer.status, answer["allow"]) == (405, allow)
        assert answer.json()["code"] == "method"


@pytest.mark.parametrize(
    "path",
    [
        *("/nothing", "/b/", "/b//", "//b/orders", "/b/orders/", "/b/orders/nothing", "/b/orders/1/2", "/b/orders/-1"),
        *("/tenants", "/tenants/", "/tenants/default", "/tenants/default/metrics", "/tenants/default/b/orders/x/y/z"),
        *("/b/orders/%31%0a", "/%0a", "/b/orders/\u0661", "/b/orders/1.0", "/B/orders"),
    ],
)
def test_what_else_is_asked_for_is_404(orders: Served, path: str) -> None:
    from urllib.parse import quote

    answer = orders("GET", quote(path, safe="/%"))
    assert (answer.status, answer.json()["code"]) == (404, "not-found")


def test_an_encoded_name_is_the_same_name(orders: Served) -> None:
    assert orders("GET", "/%62/%6frders/%31").body == b"order"


def test_a_whole_url_in_the_request_line_is_its_path(orders: Served) -> None:
    assert orders("GET", f"{orders.url}/b/orders/1").body == b"order"


def test_the_body_is_asked_for_only_when_it_is_wanted(orders: Served) -> None:
    import socket

    for path, expected in (("/b/orders", b"HTTP/1.1 100 "), ("/b/missing%20", b"HTTP/1.1 400 ")):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(str(orders.unix))
            connection.sendall(
                f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {orders.tokens['admin']}\r\n"
                "expect: 100-continue\r\ncontent-length: 5\r\n\r\n".encode()
            )
            assert connection.recv(1000).startswith(expected)


# What users have stored


@pytest.mark.parametrize("path", ["/b/orders/2", "/b/orders", "/b/orders/segments/00000000000000000001.http"])
def test_what_is_stored_is_never_shown_by_a_browser(orders: Served, path: str) -> None:
    hostile = [
        ("content-type", "text/html"),
        ("x-content-type-options", "sniff"),
        ("x-frame-options", "ALLOWALL"),
        ("x-accel-redirect", "/internal"),
        ("x-sendfile", "/etc/passwd"),
        ("x-webkit-csp", "script-src *"),
        ("content-language", "<script>"),
    ]
    assert orders("POST", "/b/orders", EVIL, hostile).status == 201
    answer = orders("GET", path)
    for name, value in ALWAYS.items():
        assert answer.headers.get_all(name) == [value]
    assert answer.headers.get_all("content-security-policy") == ["default-src 'none'; sandbox"]
    assert answer["content-disposition"] == "attachment"
    for name in ("x-frame-options", "x-accel-redirect", "x-sendfile", "x-webkit-csp"):
        assert name not in answer.headers


@pytest.mark.parametrize("path", ["/healthz", "/b", "/b/orders/status", "/metrics", "/", "/openapi.json", "/nothing"])
def test_every_answer_says_how_a_browser_is_to_take_it(orders: Served, path: str) -> None:
    answer = orders("GET", path, headers={"accept": "text/html" if path == "/" else "*/*"})
    for name, value in ALWAYS.items():
        assert answer.headers.get_all(name) == [value]
    assert "default-src 'none'" in answer["content-security-policy"]
    assert answer["server"] == "hbuf"


def test_the_status_page_is_html_for_browsers_and_text_for_curl(orders: Served) -> None:
    page = orders("GET", "/", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert page["content-type"] == "text/html; charset=utf-8"
    assert b"<td" in page.body
    assert b">orders<" in page.body
    assert b"<script" not in page.body
    assert "unsafe" not in page["content-security-policy"]
    text = orders("GET", "/")
    assert text["content-type"] == "text/plain; charset=utf-8"
    assert b"orders  1      1" in text.body


def test_metrics_are_what_prometheus_reads(orders: Served) -> None:
    orders("GET", "/b/orders")
    told = orders("GET", "/metrics", over_unix=True).body.decode()
    values = dict(line.rsplit(" ", 1) for line in told.splitlines() if not line.startswith("#"))
    assert values['hbuf_appended_messages_total{tenant="default"}'] == "1"
    assert values['hbuf_read_messages_total{tenant="default"}'] == "1"
    assert values["hbuf_commits_total"] == "1"
    assert int(values['hbuf_request_seconds_count{method="POST"}']) == 1
    assert int(values['hbuf_request_seconds_bucket{method="POST",le="+Inf"}']) == 1


class Beacon(http.server.BaseHTTPRequestHandler):
    """Serves a page whose script calls home, and notes who called."""

    page = b""
    called: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.called.append(self.path)
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextlib.contextmanager
def _beacon() -> Iterator[str]:
    Beacon.called.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Beacon) as server:
        home = f"http://127.0.0.1:{server.server_port}"
        call = f"new Image().src='{home}/ran'"
        Beacon.page = f'<!doctype html><script>{call}</script><img src="data:," onerror="{call}">'.encode()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield home
        finally:
            server.shutdown()
            thread.join()


def _command(chromium: str) -> list[str]:
    options = ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "ignore-certificate-errors")
    return [chromium, *(f"--{option}" for option in options)]


@contextlib.contextmanager
def _browser(chromium: str, url: str, folder: Path) -> Iterator[None]:
    """Opens a page. What is saved and not shown would keep a browser without a window waiting for ever."""
    command = [
        chromium,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--ignore-certificate-errors",
    ]
    command += ["--disable-background-networking", f"--user-data-dir={folder / 'profile'}", "--dump-dom", url]
    environment = {**os.environ, "HOME": str(folder)}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet, env=environment, start_new_session=True)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.05)


def _has_read_more_than(served: Served, before: int) -> Callable[[], bool]:
    return lambda: _reads(served) > before


def _reads(served: Served) -> int:
    told = served("GET", "/metrics").body.decode()
    return sum(int(line.rsplit(" ", 1)[1]) for line in told.splitlines() if line.startswith("hbuf_reads_total{"))


def test_a_browser_runs_nothing_that_was_stored(orders: Served, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium")
    with _beacon() as home:
        with _browser(chromium, home, tmp_path):  # or this test could not fail
            _wait_until(lambda: "/ran" in Beacon.called, "the script of a page that is shown")
        Beacon.called.clear()
        assert orders("POST", "/b/orders", Beacon.page, {"content-type": "text/html"}).status == 201
        token = orders.tokens["admin"]
        for path in ("/b/orders/2", "/b/orders?from=2"):
            before = _reads(orders)
            with _browser(chromium, f"https://x:{token}@127.0.0.1:{orders.port}{path}", tmp_path):
                _wait_until(_has_read_more_than(orders, before), "the browser reads the message")
                time.sleep(1)  # longer than the script took above; there is nothing to wait for
        assert Beacon.called == []


def test_a_browser_shows_the_status_page(orders: Served, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium")
    command = [
        chromium,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--ignore-certificate-errors",
        "--dump-dom",
    ]
    command += [
        f"--user-data-dir={tmp_path / 'profile'}",
        f"https://x:{orders.tokens['admin']}@127.0.0.1:{orders.port}/",
    ]
    ended = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert b">orders<" in ended.stdout
