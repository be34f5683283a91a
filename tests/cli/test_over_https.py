"""What commands say and do only where they are given a URL: trust, credentials, settings, and what they refuse."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hbuf
from hbuf.ops.authority import ensure_authority, issue_server_certificate

if TYPE_CHECKING:
    from conftest import StartDaemon
    from running_daemon import RunningDaemon

    from cli.conftest import MakeBuffer, Run


@pytest.fixture
def url(daemon: RunningDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a buffer with the message `one`, of a tenant of its own. Nothing is said of how to get in."""
    for name in ("HBUF_CACERT", "HBUF_TOKEN_FILE", "HBUF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("hbuf.remote.client_settings.state_root", lambda environment: tmp_path / "no-daemon")
    tenant = f"https-{os.getpid()}-{abs(hash(tmp_path))}"
    with hbuf.create(buffer_path(daemon, tenant)) as buffer:
        buffer.append(b"one")
    return f"https://localhost:{daemon.port}/tenants/{tenant}/b/orders"


def buffer_path(daemon: RunningDaemon, tenant: str) -> Path:
    return daemon.root / "tenants" / tenant / "buffers/orders"


def options(daemon: RunningDaemon) -> list[str]:
    return ["--cacert", str(daemon.root / "ca.pem"), "--token-file", str(daemon.root / "admin.token")]


def test_options_get_in(run: Run, daemon: RunningDaemon, url: str) -> None:
    assert run("hbuf-tail", url, *options(daemon)) == (0, b"one\n", "")


def test_client_toml_gets_in_and_what_it_says_of_one_server_wins(
    run: Run, daemon: RunningDaemon, url: str, tmp_path: Path
) -> None:
    settings = tmp_path / "config/hbuf/client.toml"
    settings.parent.mkdir(parents=True)
    settings.with_name("token").write_bytes((daemon.root / "admin.token").read_bytes())
    settings.with_name("token").chmod(0o600)
    settings.write_text(
        f'cacert = "/no/such/ca.pem"\ntoken_file = "token"\n'
        f'[server."localhost:{daemon.port}"]\ncacert = "{daemon.root}/ca.pem"\n'
    )
    assert run("hbuf-tail", url) == (0, b"one\n", "")
    settings.write_text('ca = "x"\n')
    done = run("hbuf-tail", url)
    assert (done.code, done.out) == (2, b"")
    assert f"{settings}: there is no setting 'ca'" in done.err


def test_environment_gets_in(run: Run, daemon: RunningDaemon, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HBUF_CACERT", str(daemon.root / "ca.pem"))
    monkeypatch.setenv("HBUF_TOKEN_FILE", str(daemon.root / "admin.token"))
    assert run("hbuf-tail", url) == (0, b"one\n", "")


def test_daemon_of_the_same_user_needs_nothing_said(
    run: Run, daemon: RunningDaemon, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbuf.remote.client_settings.state_root", lambda environment: daemon.root)
    assert run("hbuf-tail", url) == (0, b"one\n", "")


def test_token_of_the_own_daemon_is_not_sent_where_a_ca_is_said(
    run: Run, daemon: RunningDaemon, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbuf.remote.client_settings.state_root", lambda environment: daemon.root)
    assert run("hbuf-tail", url, "--cacert", daemon.root / "ca.pem").code == 77


def test_ca_that_did_not_sign_is_69_with_the_way_out(run: Run, daemon: RunningDaemon, url: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    ensure_authority(tmp_path / "other")
    for cacert in ([], ["--cacert", str(tmp_path / "other/ca.pem")]):
        done = run("hbuf-tail", url, *cacert, "--token-file", daemon.root / "admin.token")
        line, hint = done.err.splitlines()
        assert (done.code, done.out) == (69, b"")
        assert line.startswith(f"hbuf-tail: localhost:{daemon.port}: the server's certificate is not to be trusted: ")
        assert "--cacert" in hint or "ca.pem" in hint


def test_certificate_of_another_host_is_69(run: Run, start_daemon: StartDaemon, tmp_path: Path) -> None:
    root = tmp_path / "misnamed"
    root.mkdir(mode=0o700)
    ensure_authority(root)
    issue_server_certificate(root, ["elsewhere.example"])
    config = f'[tls]\ncertificate = "{root}/server.pem"\nkey = "{root}/server.key"\n'
    started = start_daemon("misnamed", config=config)
    done = run("hbuf-tail", f"https://localhost:{started.port}/b/orders", *options(started))
    assert (done.code, done.out) == (69, b"")
    assert "not to be trusted: Hostname mismatch" in done.err


@pytest.mark.parametrize("token", [None, "hbuf_+.aaaaaaaa_" + "b" * 43], ids=["none", "wrong"])
def test_no_token_and_a_wrong_one_are_77_and_no_token_is_said(
    run: Run, daemon: RunningDaemon, url: str, tmp_path: Path, token: str | None
) -> None:
    given = []
    if token:
        (tmp_path / "token").write_text(token)
        (tmp_path / "token").chmod(0o600)
        given = ["--token-file", str(tmp_path / "token")]
    for command in (["hbuf-tail", url], ["hbuf-append", url], ["hbuf-verify", url], ["hbuf-ls", url]):
        done = run(*command, "--cacert", daemon.root / "ca.pem", *given)
        assert (done.code, done.out) == (77, b"")
        assert "bbbb" not in done.err


def test_token_file_that_others_can_read_is_refused(run: Run, url: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hbuf_+.aaaaaaaa_bbbb")
    (tmp_path / "token").chmod(0o640)
    done = run("hbuf-tail", url, "--token-file", tmp_path / "token")
    assert (done.code, done.out) == (77, b"")
    assert done.err.splitlines()[1] == f"hint: chmod 600 {tmp_path}/token"
    assert "bbbb" not in done.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("http://localhost:4280/b/orders", "only HTTPS"),
        ("https://localhost:4280/", "names no buffer"),
        ("https://localhost:4280/c/orders", "is not a buffer's URL"),
        ("https://localhost:4280/b/Orders", "cannot be a buffer's name"),
        ("https://localhost:4280/b/orders?from=1", "behind the buffer's name"),
        ("https://localhost:x/b/orders", "is not a URL"),
        ("https:///b/orders", "names no host"),
        ("https://me:secret@localhost:4280/b/orders", "cannot hold a password"),
        ("s3://bucket/b/orders", "neither a directory nor"),
    ],
)
def test_what_is_no_buffers_url_is_2(run: Run, given: str, said: str) -> None:
    done = run("hbuf-tail", given)
    assert (done.code, done.out) == (2, b"")
    assert said in done.err
    assert "secret" not in done.err


@pytest.mark.parametrize(
    "command",
    [
        ["hbuf-append", "URL", "--sign", "audit"],
        ["hbuf-append", "URL", "--fsync", "never"],
        ["hbuf-create", "URL", "--sign", "audit"],
        ["hbuf-set", "URL", "--sign", "audit", "compress=true"],
        ["hbuf-erase", "URL", "1", "--reason", "x", "--sign", "audit"],
    ],
    ids=lambda command: " ".join(command[::2]),
)
def test_options_of_directories_are_2(run: Run, url: str, command: list[str]) -> None:
    done = run(*[url if part == "URL" else part for part in command])
    assert (done.code, done.out) == (2, b"")
    assert "is for a directory" in done.err


def test_missing_buffer_is_not_made_by_append(run: Run, daemon: RunningDaemon, url: str) -> None:
    missing = url.replace("/orders", "/others")
    done = run("hbuf-append", missing, *options(daemon), stdin=b"one\n")
    assert (done.code, done.out) == (66, b"")
    assert done.err.splitlines()[-1] == "hint: hbuf-create makes a buffer on a server; nothing else does"


def test_all_buffers_of_a_tenant_are_listed(run: Run, daemon: RunningDaemon, url: str) -> None:
    for tree in (url.removesuffix("/orders"), url.removesuffix("/b/orders")):
        done = run("hbuf-ls", "--json", tree, *options(daemon))
        listed = [json.loads(line) for line in done.lines]
        assert [(each["path"], each["last"]) for each in listed] == [(url, 1)]


def test_signed_buffer_is_made_and_its_head_holds(run: Run, daemon: RunningDaemon, url: str) -> None:
    signed = url.replace("/orders", "/signed")
    assert run("hbuf-create", signed, "--set", "sign=true", *options(daemon)) == (0, b"", "")
    assert run("hbuf-append", signed, *options(daemon), stdin=b"one\ntwo\n") == (0, b"", "")
    Path("note").write_bytes(run("hbuf-head", signed, *options(daemon)).out)
    done = run("hbuf-verify", "--json", "--head", "note", signed, *options(daemon))
    report = json.loads(done.out)
    assert (done.code, report["ok"], report["signed"], report["scope"]["messages"]) == (0, True, True, 2)


def test_encrypted_messages_are_read_with_a_key_that_stays_here(run: Run, daemon: RunningDaemon, url: str) -> None:
    closed = url.replace("/orders", "/closed")
    run("hbuf-key", "new", "alice", "--kind", "encrypt")
    settings = ["--set", "segment_messages=2", "--set", "compress=true"]
    assert run("hbuf-create", closed, "--encrypt-to", "alice", *settings, *options(daemon)) == (0, b"", "")
    for body in (b"one\n", b"two\n", b"three\n"):
        assert run("hbuf-append", closed, *options(daemon), stdin=body) == (0, b"", "")
    assert run("hbuf-tail", closed, "--identity", "alice", *options(daemon)) == (0, b"one\ntwo\nthree\n", "")
    assert run("hbuf-grep", "t", closed, "--identity", "alice", *options(daemon)) == (0, b"two\nthree\n", "")
    assert run("hbuf-tail", closed, *options(daemon)).code == 77
    assert run("hbuf-verify", "-q", closed, *options(daemon)) == (0, b"", "")


def test_older_copy_under_the_daemon_is_found_against_a_head(run: Run, daemon: RunningDaemon, url: str) -> None:
    path = buffer_path(daemon, url.split("/")[4])
    older = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    receipt = run("hbuf-append", "-v", url, *options(daemon), stdin=b"two\n").lines[0]
    head = receipt.replace(" ", ":")
    assert run("hbuf-verify", "-q", "--head", head, url, *options(daemon)).code == 0
    for each, content in older.items():
        each.write_bytes(content)
    done = run("hbuf-verify", "--head", head, url, *options(daemon))
    assert done.code == 65
    assert "message 2: --head: message 2 is not there" in done.out.decode()


def test_nothing_is_left_of_what_verify_downloaded(
    run: Run, daemon: RunningDaemon, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert run("hbuf-verify", "-q", url, *options(daemon)).code == 0
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("verb", ["append", "tail", "verify", "ls", "pause", "close"])
def test_directories_cost_no_import_of_http_and_tls(run: Run, make_buffer: MakeBuffer, verb: str) -> None:
    make_buffer("orders", [b"one"])
    script = (
        "import atexit, sys; atexit.register(lambda: sys.stderr.write("
        "repr([name for name in ('http.client', 'ssl', 'tomllib', 'cryptography') if name in sys.modules])));"
        f"sys.argv = ['hbuf-{verb}', 'orders']; from hbuf.cli.{verb} import main; main()"
    )
    assert run.real(sys.executable, "-c", script).err == "[]"
