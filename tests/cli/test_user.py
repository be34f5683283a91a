"""hbuf-user as a shell uses it: users are made, listed and revoked, and a token is shown once and never again."""

from __future__ import annotations

import json
import os
import re
import ssl
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hbuf
from hbuf.daemon.callers import Callers
from hbuf.errors import Unauthorized

if TYPE_CHECKING:
    from cli.conftest import Ran, Run, Terminal

TOKEN = re.compile(r"hbuf_([a-z0-9._+-]+\.[a-z0-9]{8})_([\w-]{43})\n")
UserCommand = Callable[..., "Ran"]


@pytest.fixture
def user(run: Run) -> Iterator[UserCommand]:
    """user("list"): runs hbuf-user on the root `srv`. What it printed as a token may be in no file at the end."""
    Path("srv").mkdir(0o700)
    secrets: list[bytes] = []

    def run_user(subcommand: str, *arguments: str | Path) -> Ran:
        done = run("hbuf-user", subcommand, "--root", "srv", *arguments)
        assert "Traceback" not in done.err
        if subcommand == "token" and done.code == 0:
            found = TOKEN.fullmatch(done.out.decode())
            assert found
            secrets.append(found[2].encode())
        else:
            assert not TOKEN.search(done.out.decode() + done.err)
        return done

    yield run_user
    for file in Path("srv").rglob("*"):
        if file.is_file():
            assert not [secret for secret in secrets if secret in file.read_bytes()]
            if file.name in ("users.json", "users.lock", "ca.key"):
                assert stat.S_IMODE(file.stat().st_mode) == 0o600


def refused(done: Ran, code: int) -> str:
    assert (done.code, done.out) == (code, b""), done.err
    line, *hint = done.err.splitlines()
    assert line.startswith("hbuf-user: ")
    assert len(hint) <= 1
    assert all(each.startswith("hint: ") for each in hint)
    return line


def listed(user: UserCommand, *arguments: str) -> list[dict[str, Any]]:
    done = user("list", "--json", *arguments)
    assert (done.code, done.err) == (0, "")
    return [json.loads(line) for line in done.lines]


def trail(tenant: str = "default") -> list[dict[str, Any]]:
    with hbuf.open(f"srv/tenants/{tenant}/buffers/_audit") as buffer:
        return [json.loads(message.body) for message in buffer.read()]


def token_of(done: Ran) -> str:
    assert (done.code, done.err) == (0, "")
    return done.out.decode().removesuffix("\n")


def test_user_is_made_and_listed(user: UserCommand) -> None:
    assert user("add", "bob") == (0, b"", "")
    assert user("add", "alice", "reader:orders", "writer:shop-*") == (0, b"", "")
    assert user("list").lines == ["alice\treader:orders,writer:shop-*\t-\t-", "bob\t-\t-\t-"]
    alice, bob = listed(user)
    assert alice["grants"] == [{"role": "reader", "buffers": "orders"}, {"role": "writer", "buffers": "shop-*"}]
    assert (bob["tenant"], bob["name"], bob["grants"], bob["tokens"], bob["certificates"]) == (
        "default",
        "bob",
        [],
        [],
        [],
    )


def test_list_on_a_terminal_is_a_table(user: UserCommand, run: Run, terminal: Terminal) -> None:
    user("add", "alice", "reader:orders")
    assert run.start("hbuf-user", "list", "--root", "srv", stdout=terminal.theirs).wait(timeout=30) == 0
    assert terminal.read_all().splitlines() == [
        "NAME   ROLES          TOKENS  CERTIFICATES",
        "alice  reader:orders  -       -",
    ]


def test_tenants_and_the_server_have_users_of_their_own(user: UserCommand) -> None:
    for whose in ([], ["--tenant", "acme"], ["--server"]):
        assert user("add", "alice", *whose) == (0, b"", "")
        [found] = listed(user, *whose)
        assert found["tenant"] == {0: "default", 1: None, 2: "acme"}[len(whose)]
        assert token_of(user("token", "alice", *whose)).startswith(f"hbuf_{found['tenant'] or '+'}.")
    assert sorted(os.listdir("srv/tenants")) == ["acme", "default"]
    assert Path("srv/tenants/acme/buffers").is_dir()
    refused(user("add", "alice", "--server", "--tenant", "acme"), 2)


def test_token_alone_is_printed_and_works(user: UserCommand) -> None:
    user("add", "alice", "reader:orders")
    callers = Callers(Path("srv"))
    token = token_of(user("token", "alice", "--expires", "30d", "--note", "for web1"))
    assert callers.by_token(token).name == "alice"
    [kept] = listed(user)[0]["tokens"]
    assert set(kept) == {"id", "created", "expires", "note"}
    assert (kept["id"], kept["note"]) == (token.split("_")[1], "for web1")
    assert kept["expires"] > kept["created"]


def test_grants_are_given_and_taken(user: UserCommand) -> None:
    user("add", "alice", "reader:orders")
    assert user("grant", "alice", "operator:orders", "admin") == (0, b"", "")
    assert user("list").lines == ["alice\treader:orders,operator:orders,admin:*\t-\t-"]
    assert user("revoke", "alice", "--grant", "admin:*", "--grant", "reader:orders") == (0, b"", "")
    assert user("list").lines == ["alice\toperator:orders\t-\t-"]
    refused(user("revoke", "alice", "--grant", "admin:*"), 66)
    refused(user("grant", "alice"), 2)


def test_what_is_revoked_is_refused_at_once(user: UserCommand) -> None:
    user("add", "alice")
    first, second = (token_of(user("token", "alice")) for _ in range(2))
    assert user("certificate", "alice") == (0, b"", "")
    der = ssl.PEM_cert_to_DER_cert(Path("alice.pem").read_text())
    callers = Callers(Path("srv"))
    fingerprint = callers.by_certificate(der).credential
    assert user("revoke", "alice", "--token", first.split("_")[1]) == (0, b"", "")
    with pytest.raises(Unauthorized):
        callers.by_token(first)
    assert callers.by_token(second)
    assert user("revoke", "alice", "--certificate", fingerprint[:16]) == (0, b"", "")
    with pytest.raises(Unauthorized):
        callers.by_certificate(der)
    assert user("revoke", "alice") == (0, b"", "")
    with pytest.raises(Unauthorized):
        callers.by_token(second)
    assert listed(user) == []


@pytest.mark.parametrize("shown", ["whole", "openssl", "short"])
def test_certificate_is_revoked_by_its_fingerprint_however_it_is_written(user: UserCommand, shown: str) -> None:
    user("add", "alice")
    user("certificate", "alice")
    [kept] = listed(user)[0]["certificates"]
    whole = kept["sha256"]
    written = {
        "whole": whole,
        "short": user("list").lines[0].split("\t")[3],
        "openssl": ":".join(whole[i : i + 2] for i in range(0, 64, 2)).upper(),
    }
    refused(user("revoke", "alice", "--certificate", whole[:8]), 66)
    assert user("revoke", "alice", "--certificate", written[shown]) == (0, b"", "")
    assert listed(user)[0]["certificates"] == []


def test_certificate_and_key_are_files_that_openssl_takes(user: UserCommand) -> None:
    user("add", "alice", "--tenant", "acme")
    Path("out").mkdir()
    assert user("certificate", "alice", "--tenant", "acme", "--expires", "1d", "--directory", "out") == (0, b"", "")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in Path("out").iterdir()}
    assert modes == {"alice.pem": 0o644, "alice.key": 0o600}
    context = ssl.create_default_context(cafile="srv/ca.pem")
    context.load_cert_chain("out/alice.pem", "out/alice.key")
    key = Path("out/alice.key").read_bytes()
    content = b"".join(path.read_bytes() for path in Path("srv").rglob("*") if path.is_file())
    assert key.splitlines()[1] not in content


@pytest.mark.parametrize("file", ["alice.pem", "alice.key"])
def test_certificate_is_never_written_over_a_file(user: UserCommand, file: str) -> None:
    user("add", "alice")
    Path(file).write_text("mine")
    refused(user("certificate", "alice"), 73)
    assert Path(file).read_text() == "mine"
    assert {path.name for path in Path.cwd().glob("alice.*")} == {file}
    assert listed(user)[0]["certificates"] == []


def test_certificate_that_cannot_be_written_is_not_listed(user: UserCommand) -> None:
    user("add", "alice")
    refused(user("certificate", "alice", "--directory", "missing"), 66)
    assert listed(user)[0]["certificates"] == []
    assert [entry["what"] for entry in trail()] == ["user.add"]


def test_every_change_is_in_the_trail_and_the_trail_verifies(user: UserCommand, run: Run) -> None:
    user("add", "alice", "reader:orders", "--tenant", "acme")
    user("grant", "alice", "writer:orders", "--tenant", "acme")
    token = token_of(user("token", "alice", "--tenant", "acme"))
    user("certificate", "alice", "--tenant", "acme")
    fingerprint = listed(user, "--tenant", "acme")[0]["certificates"][0]["sha256"]
    user("revoke", "alice", "--tenant", "acme", "--token", token.split("_")[1])
    user("revoke", "alice", "--tenant", "acme", "--certificate", fingerprint)
    user("revoke", "alice", "--tenant", "acme", "--grant", "writer:orders")
    user("revoke", "alice", "--tenant", "acme")
    user("add", "chief", "admin", "--server")
    entries = trail("acme")
    assert [entry["what"] for entry in entries] == [
        "user.add",
        "user.grant",
        "user.token",
        "user.certificate",
        "user.revoke-token",
        "user.revoke-certificate",
        "user.revoke-grant",
        "user.revoke",
    ]
    assert {entry["user"] for entry in entries} == {"alice"}
    assert all(re.fullmatch(r"unix:\S+@\S+", entry["who"]) for entry in entries)
    assert entries[2]["token"] == entries[4]["token"] == token.split("_")[1]
    assert entries[3]["certificate"] == entries[5]["certificate"] == fingerprint
    assert [(entry["what"], entry["user"], entry["server"]) for entry in trail()] == [("user.add", "chief", True)]
    done = run("hbuf-verify", "srv/tenants/acme/buffers/_audit", "srv/tenants/default/buffers/_audit")
    assert (done.code, done.err) == (0, "")


def test_nobody_is_let_in_where_the_trail_cannot_be_written_and_whoever_is_shut_out_is_told_of(
    user: UserCommand,
) -> None:
    user("add", "alice")
    token = token_of(user("token", "alice"))
    closed = Path("srv/tenants/default/buffers/_audit/closed")
    closed.write_text("{}")
    before = Path("srv/tenants/default/users.json").read_bytes()
    for arguments in (["add", "bob"], ["grant", "alice", "admin"], ["token", "alice"], ["certificate", "alice"]):
        assert "the audit trail cannot be written" in refused(user(*arguments), 77)
    assert Path("srv/tenants/default/users.json").read_bytes() == before
    assert list(Path.cwd().glob("alice.*")) == []
    assert "changed as asked, but the audit trail" in refused(user("revoke", "alice"), 77)
    with pytest.raises(Unauthorized):
        Callers(Path("srv")).by_token(token)


def test_two_at_once_lose_nothing(user: UserCommand) -> None:
    user("add", "alice")
    commands = [["hbuf-user", "token", "--root", "srv", "alice", "--note", str(n)] for n in range(6)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for command in commands]
    tokens = [process.communicate(timeout=60)[0].decode().strip() for process in started]
    callers = Callers(Path("srv"))
    assert [callers.by_token(token).name for token in tokens] == ["alice"] * 6
    assert sorted(each["note"] for each in listed(user)[0]["tokens"]) == list("012345")
    assert len(trail()) == 7


def test_damaged_users_file_is_65_and_stays_as_it_is(user: UserCommand) -> None:
    user("add", "alice")
    path = Path("srv/tenants/default/users.json")
    path.write_text('{"users": {"alice": 1}}')
    for arguments in (["list"], ["add", "bob"], ["token", "alice"], ["revoke", "alice"]):
        assert "users.json: user 'alice' is not an object" in refused(user(*arguments), 65)
    assert path.read_text() == '{"users": {"alice": 1}}'


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["add", "Alice"], 2),
        (["add", "bob", "reader"], 0),
        (["add", "bob", "root:orders"], 2),
        (["add", "bob", "reader:[ab]"], 2),
        (["add", "bob", "--tenant", "../up"], 2),
        (["add", "bob", "--tenant", "+"], 2),
        (["add", "alice"], 73),
        (["grant", "bob", "reader"], 66),
        (["token", "bob"], 66),
        (["token", "alice", "--tenant", "missing"], 66),
        (["list", "--tenant", "missing"], 66),
        (["token", "alice", "--expires", "yesterday"], 2),
        (["token", "alice", "--expires", ""], 2),
        (["token", "alice", "--expires", "30"], 2),
        (["token", "alice", "--expires", "2020-01-01"], 2),
        (["token", "alice", "--expires", "0d"], 2),
        (["token", "alice", "--expires", "999999999999w"], 2),
        (["token", "alice", "--expires", "2999-01-01"], 0),
        (["certificate", "bob"], 66),
        (["certificate", "../bob"], 2),
        (["certificate", "alice", "--expires", "0s"], 2),
        (["revoke", "bob"], 66),
        (["revoke", "alice", "--token", "default.00000000"], 66),
        (["revoke", "alice", "--certificate", ""], 66),
        (["revoke", "alice", "--certificate", "", "--token", ""], 2),
    ],
    ids=str,
)
def test_what_cannot_be_is_one_line(user: UserCommand, arguments: list[str], code: int) -> None:
    user("add", "alice")
    done = user(*arguments)
    if code:
        refused(done, code)
    else:
        assert done.code == 0
    assert not Path("bob.key").exists()


@pytest.mark.parametrize("root", ["missing", "", "file"])
def test_root_that_is_not_there_is_not_made(run: Run, root: str) -> None:
    Path("file").write_text("content")
    for arguments in (["add", "alice"], ["list"], ["token", "alice"]):
        done = run("hbuf-user", *arguments, "--root", root)
        refused(done, 66 if root else 2)
    assert not Path("missing").exists()
    assert Path("file").read_text() == "content"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_makes_is_the_daemon_s(user: UserCommand) -> None:
    Path("srv").chmod(0o750)
    os.chown("srv", 12345, 12345)
    user("add", "alice", "reader:orders")
    user("add", "chief", "admin", "--server")
    token_of(user("token", "alice"))
    assert user("certificate", "alice") == (0, b"", "")
    assert {(path.stat().st_uid, path.stat().st_gid) for path in Path("srv").rglob("*")} == {(12345, 12345)}
    assert Path("alice.key").stat().st_uid == os.geteuid()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_root_of_somebody_else_is_77(user: UserCommand) -> None:
    user("add", "alice")
    Path("srv").chmod(0)
    try:
        refused(user("list"), 77)
    finally:
        Path("srv").chmod(0o700)
