"""Certificates of hbuf's own authority, as openssl and TLS see them, and their files, as a crash leaves them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import ssl
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from hbuf.errors import Damaged, HbufError, NotAllowed, NotFound, UsageError
from hbuf.format.times import encode_time
from hbuf.ops.authority import (
    ensure_authority,
    ensure_server_certificate,
    issue_client_certificate,
    issue_server_certificate,
    server_certificate_is_due,
)
from hbuf.store import fsops
from hbuf.store.clock import SystemClock

NAMES = ["localhost", "127.0.0.1", "::1"]
DAY_US = 86_400_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir(0o700)
    issue_server_certificate(made, NAMES)
    return made


def write_client(root: Path, tenant: str | None = "acme", user: str = "alice", days: float = 90) -> tuple[Path, Path]:
    issued = issue_client_certificate(root, tenant, user, days)
    certificate, key = root / "alice.pem", root / "alice.key"
    certificate.write_bytes(issued.certificate_pem)
    key.write_bytes(issued.key_pem)
    return certificate, key


def openssl(*arguments: str | Path) -> str:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=30, check=False)
    return f"{done.returncode} {done.stdout}{done.stderr}"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_takes_the_certificates_for_what_they_are_for_and_for_nothing_else(root: Path) -> None:
    client, _ = write_client(root)
    verify: list[str | Path] = ["verify", "-x509_strict", "-CAfile", root / "ca.pem"]
    server = root / "server.pem"
    assert openssl(*verify, root / "ca.pem") == f"0 {root}/ca.pem: OK\n"
    assert openssl(*verify, "-purpose", "sslserver", server) == f"0 {server}: OK\n"
    assert openssl(*verify, "-purpose", "sslclient", client) == f"0 {client}: OK\n"
    assert openssl(*verify, "-purpose", "sslclient", server).startswith("2 ")
    assert openssl(*verify, "-purpose", "sslserver", client).startswith("2 ")
    for name in NAMES:
        check = "-verify_hostname" if name == "localhost" else "-verify_ip"
        assert openssl(*verify, check, name, server).startswith("0 ")
    assert openssl(*verify, "-verify_hostname", "example.org", server).startswith("2 ")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_fingerprint_is_the_one_that_openssl_shows(root: Path) -> None:
    issued = issue_client_certificate(root, None, "alice")
    (root / "alice.pem").write_bytes(issued.certificate_pem)
    shown = openssl("x509", "-noout", "-fingerprint", "-sha256", "-serial", "-subject", "-in", root / "alice.pem")
    assert issued.certificate.sha256 in shown.replace(":", "").lower()
    assert re.search(rf"^serial=0*{issued.certificate.serial}$", shown.lower(), re.MULTILINE)
    assert re.search(r'subject=O ?= ?\\?"?\+"?, ?CN ?= ?alice\n', shown)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> bytes | None:
    """A real one, over a socket. Returns the client's certificate as the server sees it."""
    ours, theirs = socket.socketpair()
    seen: list[bytes | None] = []

    def serve() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as wrapped:
                seen.append(wrapped.getpeercert(binary_form=True))
                wrapped.sendall(b"hello")
        except (ssl.SSLError, OSError):
            theirs.close()

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        with client.wrap_socket(ours, server_hostname=name) as wrapped:
            assert wrapped.recv(5) in (b"hello", b"")
    finally:
        ours.close()
        serving.join(timeout=30)
    return seen[0] if seen else None


def contexts(root: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=root / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(root / "server.pem", root / "server.key")
    client = ssl.create_default_context(cafile=root / "ca.pem")
    for each in (server, client):
        each.verify_flags |= ssl.VERIFY_X509_STRICT
    return server, client


@pytest.mark.parametrize("name", NAMES)
def test_tls_with_certificates_on_both_sides(root: Path, name: str) -> None:
    server, client = contexts(root)
    certificate, key = write_client(root)
    client.load_cert_chain(certificate, key)
    assert handshake(server, client, name) == ssl.PEM_cert_to_DER_cert(certificate.read_text())


def test_tls_with_another_name_or_another_authority_is_refused(root: Path, tmp_path: Path) -> None:
    server, client = contexts(root)
    client.load_cert_chain(*write_client(root))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client, "example.org")
    other = tmp_path / "other"
    other.mkdir()
    issue_server_certificate(other, NAMES)
    stranger = contexts(root)[1]
    stranger.load_cert_chain(*write_client(other))
    with contextlib.suppress(OSError):  # it may be told before it has read
        assert handshake(server, stranger, "localhost") is None
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, contexts(other)[1], "localhost")


def test_modes_of_keys_and_certificates(root: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in root.iterdir()}
    assert modes == {"ca.pem": 0o644, "server.pem": 0o644, "ca.key": 0o600, "server.key": 0o600, "ca.lock": 0o600}


def test_secret_is_never_in_a_file_that_others_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    write = fsops.write_all_at

    def looking(fd: int, data: bytes, offset: int) -> None:
        written.append((b"PRIVATE" in data, stat.S_IMODE(os.fstat(fd).st_mode)))
        write(fd, data, offset)

    monkeypatch.setattr(fsops, "write_all_at", looking)
    tmp_path.chmod(0o755)
    issue_server_certificate(tmp_path, NAMES)
    assert written == [(True, 0o600), (False, 0o644), (True, 0o600), (False, 0o644)]


def test_authority_that_is_there_stays(root: Path) -> None:
    before = {path.name: path.read_bytes() for path in root.iterdir()}
    assert ensure_authority(root) == root / "ca.pem"
    assert {path.name: path.read_bytes() for path in root.iterdir()} == before


def test_crash_between_a_key_and_its_certificate_is_made_good_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whichever rename it dies, there is no certificate without its key, and the key is used the next time."""
    rename = fsops.rename
    for dies_at in range(4):
        root = tmp_path / str(dies_at)
        root.mkdir()
        left = dies_at

        def dying(source: Path, target: Path) -> None:
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            rename(source, target)

        with monkeypatch.context() as patched:
            patched.setattr(fsops, "rename", dying)
            with pytest.raises(KeyboardInterrupt):
                issue_server_certificate(root, NAMES)
        keys = {path.name: path.read_bytes() for path in root.glob("[a-z]*.key")}
        assert len(keys) == (dies_at + 1) // 2
        assert server_certificate_is_due(root, NAMES)
        assert ensure_server_certificate(root, NAMES)
        assert {name: (root / name).read_bytes() for name in keys} == keys
        contexts(root)
        assert not ensure_server_certificate(root, NAMES)


def test_two_who_start_at_once_end_with_one_authority(tmp_path: Path) -> None:
    threads = [threading.Thread(target=issue_server_certificate, args=(tmp_path, NAMES)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not server_certificate_is_due(tmp_path, NAMES)
    contexts(tmp_path)


def test_server_certificate_is_due_before_it_ends_and_with_another_name(root: Path) -> None:
    now_us = SystemClock().now_us()
    assert not server_certificate_is_due(root, NAMES[:1])
    assert not server_certificate_is_due(root, NAMES, now_us + 360 * DAY_US)
    assert server_certificate_is_due(root, NAMES, now_us + 370 * DAY_US)
    assert server_certificate_is_due(root, NAMES, now_us - DAY_US)
    assert server_certificate_is_due(root, [*NAMES, "example.org"])
    key = (root / "server.key").read_bytes()
    assert ensure_server_certificate(root, [*NAMES, "example.org"])
    assert not server_certificate_is_due(root, [*NAMES, "example.org"])
    assert (root / "server.key").read_bytes() == key


@pytest.mark.parametrize("file", ["server.pem", "server.key"])
@pytest.mark.parametrize("content", [None, b"", b"garbage", "other"])
def test_server_certificate_that_does_not_fit_is_due(root: Path, tmp_path: Path, file: str, content: object) -> None:
    if content is None:
        (root / file).unlink()
    elif content == "other":
        other = tmp_path / "other"
        other.mkdir()
        issue_server_certificate(other, NAMES)
        (root / file).write_bytes((other / file).read_bytes())
    else:
        assert isinstance(content, bytes)
        (root / file).write_bytes(content)
    assert server_certificate_is_due(root, NAMES)


def test_nothing_is_issued_without_the_key_of_the_authority_and_no_other_is_made(root: Path) -> None:
    (root / "ca.key").unlink()
    before = (root / "ca.pem").read_bytes()
    with pytest.raises(NotAllowed, match=r"ca\.key"):
        issue_client_certificate(root, "acme", "alice")
    ensure_authority(root)
    assert (root / "ca.pem").read_bytes() == before
    assert not (root / "ca.key").exists()
    assert not server_certificate_is_due(root, NAMES)


def test_key_that_others_can_read_is_refused(root: Path) -> None:
    (root / "ca.key").chmod(0o640)
    with pytest.raises(NotAllowed, match="others can read"):
        issue_client_certificate(root, "acme", "alice")


@pytest.mark.parametrize("content", [b"", b"garbage", "other"])
def test_damaged_key_of_the_authority_is_said(root: Path, tmp_path: Path, content: bytes | str) -> None:
    (tmp_path / "other").mkdir()
    ensure_authority(tmp_path / "other")
    other = (tmp_path / "other" / "ca.key").read_bytes()
    (root / "ca.key").write_bytes(content if isinstance(content, bytes) else other)
    with pytest.raises(Damaged, match=r"ca\.key"):
        issue_client_certificate(root, "acme", "alice")


def test_client_s_certificate_does_not_outlast_the_authority(root: Path) -> None:
    issued = issue_client_certificate(root, "acme", "alice", days=100_000)
    assert issued.certificate.expires < encode_time(SystemClock().now_us() + 3653 * DAY_US)


@pytest.mark.parametrize(
    ("tenant", "user", "days"),
    [("a" * 65, "alice", 1), (None, "a" * 65, 1), ("acme", "alice", 0), ("acme", "alice", 1e12)],
)
def test_what_a_certificate_cannot_hold_is_refused(root: Path, tenant: str | None, user: str, days: float) -> None:
    with pytest.raises(UsageError):
        issue_client_certificate(root, tenant, user, days)


@pytest.mark.parametrize("names", [[], ["é.example"], ["a\x00b é"]])
def test_what_is_no_name_of_a_server_is_refused(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(UsageError):
        issue_server_certificate(tmp_path, names)


def test_missing_root_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as raised:
        ensure_authority(tmp_path / "missing")
    assert isinstance(raised.value, HbufError)
