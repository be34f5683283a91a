"""A real hbufd from its first start to its end: what it makes, where it listens, how signals and systemd move it."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from running_daemon import PROGRAM, RunningDaemon, wait_until

from hbuf.ops.user import CertificateFiles, new_certificate

if TYPE_CHECKING:
    from conftest import StartDaemon

DEADLINE_SECONDS = 30


def run_hbufd(*arguments: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        env=os.environ | (env or {}),
        check=False,
    )


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_first_start_makes_all_that_is_needed_and_shows_the_request_to_try(own_daemon: RunningDaemon) -> None:
    root = own_daemon.root
    assert mode_of(root) == 0o700
    for secret in ("admin.token", "admin.header", "ca.key", "server.key", "users.json"):
        assert mode_of(root / secret) == 0o600, secret
    assert own_daemon.header.read_text() == f"authorization: Bearer {own_daemon.token}\n"
    assert re.fullmatch(r"hbuf_\+\.[a-z0-9]{8}_[A-Za-z0-9_-]{43}", own_daemon.token)
    [shown] = re.findall(r"^To try it: (curl .*)$", own_daemon.logs, re.MULTILINE)
    assert own_daemon.token not in own_daemon.logs
    tried = subprocess.run(["bash", "-c", f"{shown} --silent --fail"], capture_output=True, check=False, timeout=30)
    assert tried.returncode == 0, tried
    assert tried.stdout


def test_second_start_changes_nothing(own_daemon: RunningDaemon) -> None:
    def state() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in own_daemon.root.glob("*.*") if path.is_file()}

    before = state()
    assert own_daemon.terminate() == 0
    own_daemon.start()
    assert state() == before
    assert own_daemon.request("GET", "/b").status == 200
    assert own_daemon.logs.count("To try it") == 1


def test_second_daemon_on_the_same_root_is_refused_in_one_line(own_daemon: RunningDaemon) -> None:
    refused = run_hbufd("--root", own_daemon.root, "--listen", "127.0.0.1:0")
    assert refused.returncode == 75
    assert refused.stderr.startswith(f"hbufd: {own_daemon.root}: another hbufd serves it\n")
    own_daemon.kill()
    own_daemon.start()
    assert own_daemon.request("GET", "/healthz").status == 200


def test_client_that_trusts_another_authority_is_not_served(own_daemon: RunningDaemon) -> None:
    with (
        socket.create_connection(("127.0.0.1", own_daemon.port), timeout=DEADLINE_SECONDS) as plain,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        ssl.create_default_context().wrap_socket(plain, server_hostname="127.0.0.1")
    assert own_daemon.request("GET", "/healthz").status == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_is_spoken_from_version_1_2_on(daemon: RunningDaemon, version: ssl.TLSVersion) -> None:
    context = daemon.context()
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", daemon.port), timeout=DEADLINE_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as client,
    ):
        assert client.version() == version.name.replace("_", ".")
        assert client.selected_alpn_protocol() == "http/1.1"


def test_older_tls_and_plain_http_are_refused(daemon: RunningDaemon) -> None:
    context = daemon.context()
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", daemon.port), timeout=DEADLINE_SECONDS) as plain,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(plain, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=DEADLINE_SECONDS) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"HTTP/1.1 200" not in plain.recv(4096)


def test_unix_socket_speaks_plain_http_and_is_for_the_group(own_daemon: RunningDaemon) -> None:
    assert mode_of(own_daemon.unix) == 0o660
    assert own_daemon.request("GET", "/b", token=None, over_unix=True).status == 200
    assert own_daemon.terminate() == 0
    assert not own_daemon.unix.exists()


def test_socket_that_a_dead_daemon_left_is_replaced_and_no_other_is(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon()
    daemon.kill()
    assert daemon.unix.exists()
    daemon.start()
    assert daemon.request("GET", "/healthz", over_unix=True).status == 200
    taken = run_hbufd("--root", tmp_path / "second", "--listen", "127.0.0.1:0", "--unix", daemon.unix)
    assert taken.returncode == 73
    assert "another program listens there" in taken.stderr
    file = tmp_path / "file"
    file.write_text("mine")
    assert run_hbufd("--root", tmp_path / "third", "--listen", "127.0.0.1:0", "--unix", file).returncode == 73
    assert file.read_text() == "mine"


def test_port_that_is_taken_is_one_line_and_a_hint(daemon: RunningDaemon, tmp_path: Path) -> None:
    taken = run_hbufd("--root", tmp_path / "root", "--listen", f"127.0.0.1:{daemon.port}")
    assert taken.returncode == 73
    assert taken.stderr.splitlines() == [
        f"hbufd: 127.0.0.1:{daemon.port}: Address already in use",
        "hint: another program listens there; --listen names another port",
    ]


def test_every_address_is_listened_on(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(listen=["127.0.0.1:0", "localhost:0"])
    assert len([url for url in daemon.urls if url.startswith("https:")]) >= 2
    assert len(set(daemon.urls)) == len(daemon.urls)


def test_term_finishes_what_was_asked_and_closes_idle_connections(own_daemon: RunningDaemon) -> None:
    own_daemon.request("PUT", "/b/orders")
    body = b"a message that comes in two parts"
    head = f"POST /b/orders HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {own_daemon.token}\r\n"
    with own_daemon.raw() as idle, own_daemon.raw() as busy:
        busy.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body[:5])
        wait_until(lambda: _is_in_progress(own_daemon), "the request is under way")
        own_daemon.signal(signal.SIGTERM)
        wait_until(lambda: own_daemon.lines("stopping"), "it stops")
        assert idle.recv(1) == b""
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", own_daemon.port), timeout=DEADLINE_SECONDS)
        busy.sendall(body[5:])
        assert busy.recv(65536).startswith(b"HTTP/1.1 201 ")
    assert own_daemon.wait() == 0
    assert own_daemon.lines("stopped")
    own_daemon.start()
    assert own_daemon.request("GET", "/b/orders/1").body == body


def _is_in_progress(daemon: RunningDaemon) -> bool:
    # What was sent on the connection is read by the time that a later one is answered, on one event loop.
    return daemon.request("GET", "/healthz").status == 200


def test_reads_that_wait_are_answered_when_it_stops(own_daemon: RunningDaemon) -> None:
    own_daemon.request("PUT", "/b/orders")
    answers: list[int] = []
    waiting = threading.Thread(
        target=lambda: answers.append(own_daemon.request("GET", "/b/orders?from=end&wait=60").status)
    )
    waiting.start()
    wait_until(lambda: _is_in_progress(own_daemon), "it waits")
    time.sleep(0.1)
    assert own_daemon.terminate() == 0
    waiting.join(DEADLINE_SECONDS)
    assert answers == [200]


def test_second_term_ends_it_at_once(own_daemon: RunningDaemon) -> None:
    with own_daemon.raw() as busy:
        head = f"POST /b/orders HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {own_daemon.token}\r\n"
        own_daemon.request("PUT", "/b/orders")
        busy.sendall(f"{head}content-length: 9\r\n\r\n".encode())
        wait_until(lambda: _is_in_progress(own_daemon), "the request is under way")
        own_daemon.signal(signal.SIGTERM)
        wait_until(lambda: own_daemon.lines("stopping"), "it stops")
        own_daemon.signal(signal.SIGTERM)
        assert own_daemon.wait() == -signal.SIGTERM


def test_hup_takes_settings_anew_and_says_what_needs_a_restart(own_daemon: RunningDaemon) -> None:
    own_daemon.request("PUT", "/b/orders")
    assert own_daemon.request("POST", "/b/orders", b"123456").status == 201
    own_daemon.config.write_text('keys = "elsewhere"\n[limits]\nmessage_bytes = 5\n[log]\nlevel = "debug"\n')
    own_daemon.signal(signal.SIGHUP)
    wait_until(lambda: own_daemon.lines("reloaded"), "it reloads")
    [line] = own_daemon.lines("reloaded")
    assert line["needs_a_restart"] == "keys"
    assert own_daemon.request("POST", "/b/orders", b"123456").code == "too-large"
    assert own_daemon.request("POST", "/b/orders", b"12345").status == 201


def test_configuration_that_is_wrong_leaves_the_running_one(own_daemon: RunningDaemon) -> None:
    own_daemon.config.write_text("[limits]\nmessage_bytes = 'many'\n")
    own_daemon.signal(signal.SIGHUP)
    wait_until(lambda: own_daemon.lines("not-reloaded"), "it refuses")
    assert own_daemon.request("GET", "/b").status == 200


def certificate_of(daemon: RunningDaemon) -> bytes:
    with daemon.raw() as client:
        assert isinstance(client, ssl.SSLSocket)
        found = client.getpeercert(True)
    assert found
    return found


def test_certificate_is_taken_anew_and_open_connections_go_on(own_daemon: RunningDaemon) -> None:
    before = certificate_of(own_daemon)
    kept = own_daemon.connection()
    kept.request("GET", "/healthz")
    assert kept.getresponse().read()
    (own_daemon.root / "server.pem").unlink()
    own_daemon.signal(signal.SIGHUP)
    wait_until(lambda: own_daemon.lines("reloaded"), "it reloads")
    assert certificate_of(own_daemon) != before
    kept.request("GET", "/healthz")
    assert kept.getresponse().status == 200
    kept.close()


def test_certificate_of_somebody_else_is_served_and_is_not_renewed(
    own_daemon: RunningDaemon, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for name in ("server.pem", "server.key"):
        (given / name).write_bytes((own_daemon.root / name).read_bytes())
        (given / name).chmod(0o600)
    config = '[tls]\ncertificate = "credential:server.pem"\nkey = "credential:server.key"\n'
    daemon = start_daemon("second", config=config, env={"CREDENTIALS_DIRECTORY": str(given)})
    assert not (daemon.root / "server.pem").exists()
    daemon.cacert = own_daemon.cacert
    assert certificate_of(daemon) == certificate_of(own_daemon)


def test_key_that_does_not_fit_its_certificate_is_one_line(own_daemon: RunningDaemon, tmp_path: Path) -> None:
    config = tmp_path / "wrong.toml"
    config.write_text(f'[tls]\ncertificate = "{own_daemon.cacert}"\nkey = "{own_daemon.root}/server.key"\n')
    refused = run_hbufd("--config", config, "--root", tmp_path / "second", "--listen", "127.0.0.1:0")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "they are not a certificate and its key" in refused.stderr


def status_with_certificate(daemon: RunningDaemon, files: CertificateFiles) -> int:
    context = daemon.context()
    context.load_cert_chain(*files)
    with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", daemon.port, context=context)) as connection:
        connection.request("GET", "/b")
        return connection.getresponse().status


def test_client_certificates_of_our_authority_and_of_those_that_are_named_are_taken(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    other, trusting = start_daemon("other"), start_daemon("trusting")
    shown = new_certificate(other.root, None, "admin", tmp_path)
    assert status_with_certificate(other, shown) == 200
    with pytest.raises((OSError, http.client.HTTPException)):
        status_with_certificate(trusting, shown)
    assert trusting.request("GET", "/b", token=None).status == 401
    trusting.config.write_text(f'[tls]\nclient_ca = "{other.cacert}"\n')
    trusting.signal(signal.SIGHUP)
    wait_until(lambda: trusting.lines("reloaded"), "it reloads")
    # The chain is good now, but nobody was given this certificate here.
    assert status_with_certificate(trusting, shown) == 401
    assert status_with_certificate(trusting, new_certificate(trusting.root, None, "admin", trusting.root)) == 200


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(DEADLINE_SECONDS)
        listening.bind(str(tmp_path / "notify"))
        yield listening


def told(notified: socket.socket, until: str) -> list[str]:
    """What it says, up to the first that begins so."""
    found: list[str] = []
    while not found or not found[-1].startswith(until):
        found.append(notified.recv(4096).decode())
    return found


def test_systemd_is_told_of_readiness_reloads_and_the_end(
    start_daemon: StartDaemon, notified: socket.socket, tmp_path: Path
) -> None:
    daemon = start_daemon(env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "20000"})
    [ready] = told(notified, "READY=1")
    assert ready.split("\n")[1].startswith(f"STATUS=Serving {daemon.root} on https://127.0.0.1:")
    assert [notified.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
    before_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    daemon.signal(signal.SIGHUP)
    reloading = told(notified, "RELOADING=1")[-1]
    assert before_us < int(reloading.partition("MONOTONIC_USEC=")[2]) < time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    told(notified, "READY=1")
    daemon.signal(signal.SIGTERM)
    assert told(notified, "STOPPING=1")
    assert daemon.wait() == 0


def test_watchdog_hears_nothing_of_a_loop_that_hangs(
    start_daemon: StartDaemon, notified: socket.socket, tmp_path: Path
) -> None:
    daemon = start_daemon(env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "20000"})
    told(notified, "WATCHDOG=1")
    daemon.signal(signal.SIGSTOP)
    notified.setblocking(False)
    time.sleep(0.1)
    with contextlib.suppress(BlockingIOError):
        while notified.recv(4096):
            pass
    time.sleep(0.1)
    with pytest.raises(BlockingIOError):
        notified.recv(4096)
    daemon.signal(signal.SIGCONT)
    notified.settimeout(DEADLINE_SECONDS)
    assert told(notified, "WATCHDOG=1")


# Gives its sockets to what it becomes, as systemd does.
_ACTIVATE = """
import os, sys
os.environ["LISTEN_PID"], os.environ["LISTEN_FDS"] = str(os.getpid()), sys.argv[1]
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_sockets_of_systemd_take_the_place_of_its_own(tmp_path: Path) -> None:
    root, log = tmp_path / "root", tmp_path / "log"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
        open(log, "wb") as writing,
    ):
        unix.bind(str(tmp_path / "passed.sock"))
        unix.listen()
        passed = sorted([tcp.detach(), unix.detach()])
        # systemd passes them from 3 on.
        moving = f"exec 3<&{passed[0]} 4<&{passed[1]}" if passed != [3, 4] else ":"
        arguments = [sys.executable, "-c", _ACTIVATE, "2", *PROGRAM, "--root", str(root)]
        process = subprocess.Popen(
            ["bash", "-c", f'{moving}; exec "$@"', "bash", *arguments], stderr=writing, pass_fds=passed
        )
        for fd in passed:
            os.close(fd)
    try:
        wait_until(lambda: "event=ready" in log.read_text() or process.poll() is not None, "it starts")
        [port] = re.findall(r"url=https://127\.0\.0\.1:(\d+)", log.read_text())
        context = ssl.create_default_context(cafile=str(root / "ca.pem"))
        with (
            socket.create_connection(("127.0.0.1", int(port)), timeout=DEADLINE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            client.sendall(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
        with socket.socket(socket.AF_UNIX) as local:
            local.settimeout(DEADLINE_SECONDS)
            local.connect(str(tmp_path / "passed.sock"))
            local.sendall(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
            assert local.recv(4096).startswith(b"HTTP/1.1 200")
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 0
        assert (tmp_path / "passed.sock").exists(), "it is systemd's"
    finally:
        process.kill()
        process.wait()


def test_limit_that_the_system_does_not_give_is_told(tmp_path: Path) -> None:
    limited = ["bash", "-c", 'ulimit -n 200; exec "$@"', "bash", *PROGRAM, "--listen", "127.0.0.1:0"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([*limited, "--root", str(tmp_path / "root")], stderr=log)
    try:
        wait_until(lambda: "event=ready" in (tmp_path / "log").read_text(), "it starts")
        assert " event=few-file-descriptors files=200 connections=10000\n" in (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()


def test_connections_that_no_file_descriptor_is_left_for_wait_for_one(tmp_path: Path) -> None:
    limited = ["bash", "-c", 'ulimit -n 60; exec "$@"', "bash", *PROGRAM, "--listen", "127.0.0.1:0"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([*limited, "--root", str(tmp_path / "root")], stderr=log)
    try:
        wait_until(lambda: "event=ready" in (tmp_path / "log").read_text(), "it starts")
        [port] = re.findall(r"url=https://127\.0\.0\.1:(\d+)", (tmp_path / "log").read_text())
        with contextlib.ExitStack() as opened:
            for _ in range(80):
                opened.enter_context(socket.create_connection(("127.0.0.1", int(port)), timeout=DEADLINE_SECONDS))
            wait_until(lambda: "event=no-more-connections" in (tmp_path / "log").read_text(), "it is full")
        context = ssl.create_default_context(cafile=str(tmp_path / "root/ca.pem"))
        with (
            socket.create_connection(("127.0.0.1", int(port)), timeout=DEADLINE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            client.sendall(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
    finally:
        process.kill()
        process.wait()
