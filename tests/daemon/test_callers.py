"""Who makes a request: the right ones are let in, whoever is revoked is not, and nobody is told why."""

from __future__ import annotations

import hmac
import json
import logging
import os
import shutil
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hbuf.daemon import callers as callers_module
from hbuf.daemon.callers import LOCAL_ADMIN, Caller, Callers
from hbuf.errors import Unauthorized, UsageError
from hbuf.format.users import Grant
from hbuf.ops.authority import issue_client_certificate
from hbuf.ops.user import (
    add_grants,
    add_user,
    new_certificate,
    new_token,
    revoke_certificate,
    revoke_grants,
    revoke_token,
    revoke_user,
)
from hbuf.store.clock import SystemClock

DAY_US = 86_400_000_000
READER = Grant("reader", "orders")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two tenants with an alice each, and an administrator of the server."""
    made = tmp_path / "root"
    made.mkdir(0o700)
    add_user(made, "acme", "alice", [READER])
    add_user(made, "other", "alice", [Grant("writer", "*")])
    add_user(made, None, "chief", [Grant("admin", "*")])
    return made


def refused(look_up: Callable[[], object]) -> str:
    with pytest.raises(Unauthorized) as raised:
        look_up()
    return f"{type(raised.value).__name__} {raised.value.message} {raised.value.hint}"


def certificate_of(root: Path, tenant: str | None, name: str, **options: Any) -> bytes:
    files = new_certificate(root, tenant, name, root, **options)
    der = ssl.PEM_cert_to_DER_cert(files.certificate.read_text())
    for file in files:
        file.unlink()
    return der


# Tokens


def test_token_is_that_of_its_user_in_its_tenant(root: Path) -> None:
    tokens = [new_token(root, tenant, "alice") for tenant in ("acme", "other")]
    callers = Callers(root)
    acme, other = (callers.by_token(token) for token in tokens)
    assert (acme.name, acme.tenant, acme.everywhere, acme.grants) == ("alice", "acme", False, (READER,))
    assert (other.name, other.tenant, other.grants) == ("alice", "other", (Grant("writer", "*"),))
    assert acme.may("read", "acme", "orders")
    assert not acme.may("read", "acme", "orders-2")
    assert not acme.may("append", "acme", "orders")
    assert not acme.may("read", "other", "orders")
    assert not acme.may_anything("see", "other")
    assert acme.may_anything("read", "acme")
    assert not acme.may_anything("operate", "acme")


def test_user_of_the_server_is_one_in_all_tenants(root: Path) -> None:
    chief = Callers(root).by_token(new_token(root, None, "chief"))
    assert (chief.tenant, chief.everywhere) == ("default", True)
    assert chief.may("erase", "acme", "orders")
    assert chief.may("read", "not-made-yet", "_audit")
    assert not chief.may("append", "acme", "_audit")
    assert chief.may_anything("operate", "other")


def test_all_that_is_wrong_with_a_token_is_the_same_to_who_shows_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = new_token(root, "acme", "alice")
    expired = new_token(root, "acme", "alice", expires_us=SystemClock().now_us() + DAY_US)
    revoked = new_token(root, "acme", "alice")
    revoke_token(root, "acme", "alice", revoked.split("_")[1])
    callers = Callers(root)
    kept = callers.by_token(expired)
    start, secret = token[:-43], token[-43:]
    last = "A" if secret[-1] != "A" else "E"
    wrong = [
        start + secret[:-1] + last,
        start + secret.swapcase(),
        start.replace("acme", "other") + secret,
        start.replace("acme", "missing") + secret,
        start.replace("acme", "+") + secret,
        start.replace("acme.", "acme.x")[:-2] + "_" + secret,
        revoked,
        "",
        secret,
        "hbuf_" + secret,
        "../../etc/passwd",
        "é" * 20,
        "\udce9" * 20,
        token + "\n",
        "x" * 100_000,
    ]
    compared = []
    compare: Callable[[str, str], bool] = hmac.compare_digest

    def counting(one: str, other: str) -> bool:
        compared.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    monkeypatch.setattr(callers_module, "_now_us", lambda: SystemClock().now_us() + 2 * DAY_US)
    said = {refused(lambda shown=shown: callers.by_token(shown)) for shown in [*wrong, expired]}  # type: ignore[misc]
    assert len(said) == 1
    # As much is computed for a token that cannot be one, as for one with a wrong secret.
    assert compared == [(64, 64)] * (len(wrong) + 1)
    assert callers.by_token(token).credential == token.split("_")[1]
    refused(lambda: callers.renewed(kept))


def test_hash_of_a_token_does_not_serve_as_a_token(root: Path) -> None:
    token = new_token(root, "acme", "alice")
    kept = json.loads((root / "tenants/acme/users.json").read_text())["users"]["alice"]["tokens"][0]["sha256"]
    callers = Callers(root)
    refused(lambda: callers.by_token(f"{token[:-43]}{kept[:43]}"))
    refused(lambda: callers.by_token(f"{token[:-43]}{kept}"))


def test_no_file_holds_a_token(root: Path) -> None:
    tokens = [new_token(root, "acme", "alice"), new_token(root, None, "chief", note="a note")]
    content = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    for token in tokens:
        assert token.split("_")[1].encode() in content
        assert token[-43:].encode() not in content


def test_users_file_of_another_tenant_gives_its_tokens_nothing(root: Path) -> None:
    token = new_token(root, "acme", "alice")
    shutil.copy(root / "tenants/acme/users.json", root / "tenants/other/users.json")
    callers = Callers(root)
    refused(lambda: callers.by_token(token.replace("acme", "other")))
    assert callers.by_token(token).tenant == "acme"


# Changes


def test_change_holds_with_the_next_request(root: Path) -> None:
    """Many in a row, faster than the clock of the file system goes on."""
    callers = Callers(root)
    for _ in range(20):
        token = new_token(root, "acme", "alice")
        caller = callers.by_token(token)
        assert not caller.may("read", "acme", "other")
        add_grants(root, "acme", "alice", [Grant("reader", "other")])
        assert callers.by_token(token).may("read", "acme", "other")
        assert callers.renewed(caller).may("read", "acme", "other")
        revoke_grants(root, "acme", "alice", [Grant("reader", "other")])
        assert not callers.by_token(token).may("read", "acme", "other")
        revoke_token(root, "acme", "alice", token.split("_")[1])
        refused(lambda token=token: callers.by_token(token))  # type: ignore[misc]
        refused(lambda caller=caller: callers.renewed(caller))  # type: ignore[misc]


def test_file_that_changes_and_looks_as_before_is_read_again_while_it_is_fresh(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers_module, "_SETTLED_NS", 10**18)  # it is fresh, however slow the machine is
    token = new_token(root, "acme", "alice")
    callers = Callers(root)
    callers.by_token(token)
    path = root / "tenants/acme/users.json"
    before = path.stat()
    with open(path, "r+b") as file:  # in place: the same inode, the same size
        content = file.read()
        file.seek(0)
        file.write(content.replace(b'"reader"', b'"writer"'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert callers.by_token(token).grants == (Grant("writer", "orders"),)


def test_file_that_stays_as_it_is_is_read_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = new_token(root, "acme", "alice")
    for path in (root / "users.json", root / "tenants/acme/users.json"):
        os.utime(path, (1_000_000, 1_000_000))
    callers = Callers(root)

    def fail(directory: Path) -> None:
        raise AssertionError(f"{directory} is read again")

    monkeypatch.setattr(callers_module, "read_users", fail)
    assert callers.by_token(token) is callers.by_token(token)


def test_user_that_was_revoked_is_out_with_every_credential_and_comes_back_without_them(root: Path) -> None:
    token, der = new_token(root, "acme", "alice"), certificate_of(root, "acme", "alice")
    callers = Callers(root)
    kept = [callers.by_token(token), callers.by_certificate(der)]
    for again in (False, True):
        if again:
            add_user(root, "acme", "alice", [Grant("admin", "*")])
        else:
            revoke_user(root, "acme", "alice")
        refused(lambda: callers.by_token(token))
        refused(lambda: callers.by_certificate(der))
        for caller in kept:
            refused(lambda caller=caller: callers.renewed(caller))  # type: ignore[misc]


def test_tenant_that_is_made_later_and_one_that_is_removed(root: Path) -> None:
    callers = Callers(root)
    add_user(root, "late", "bob", [])
    token = new_token(root, "late", "bob")
    assert callers.by_token(token).tenant == "late"
    shutil.rmtree(root / "tenants" / "late")
    refused(lambda: callers.by_token(token))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"users": {"alice": {"created": "now"}}}', None])
def test_damaged_file_lets_nobody_in_and_is_logged_once(
    root: Path, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    token, chief, der = new_token(root, "acme", "alice"), new_token(root, None, "chief"), b""
    der = certificate_of(root, "acme", "alice")
    callers = Callers(root)
    path = root / "tenants/acme/users.json"
    whole = path.read_bytes()
    if content is None:
        path.unlink()
        path.mkdir()
    else:
        path.write_text(content)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            refused(lambda: callers.by_token(token))
            refused(lambda: callers.by_certificate(der))
    assert [record.getMessage().endswith(": nobody is let in") for record in caplog.records] == [True]
    assert "tenants/acme/users.json: " in caplog.text
    assert callers.by_token(chief).name == "chief"
    if content is not None:
        path.write_bytes(whole)
        assert callers.by_token(token).name == "alice"


def test_root_without_anything_lets_nobody_in(tmp_path: Path) -> None:
    callers = Callers(tmp_path / "missing")
    refused(lambda: callers.by_token("hbuf_acme.k3v9q0ab_" + "A" * 43))


# Certificates


def test_certificate_is_that_of_its_user(root: Path) -> None:
    der, chief = certificate_of(root, "acme", "alice"), certificate_of(root, None, "chief")
    callers = Callers(root)
    caller = callers.by_certificate(der)
    assert (caller.name, caller.tenant, caller.everywhere, caller.grants) == ("alice", "acme", False, (READER,))
    assert callers.by_certificate(chief).everywhere
    assert callers.renewed(caller) == caller


def test_certificate_that_was_revoked_or_has_ended_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    der, other = certificate_of(root, "acme", "alice"), certificate_of(root, "acme", "alice", days=1)
    callers = Callers(root)
    fingerprint = callers.by_certificate(der).credential
    callers.by_certificate(other)
    revoke_certificate(root, "acme", "alice", fingerprint)
    said = refused(lambda: callers.by_certificate(der))
    callers.by_certificate(other)
    monkeypatch.setattr(callers_module, "_now_us", lambda: SystemClock().now_us() + 2 * DAY_US)
    assert refused(lambda: callers.by_certificate(other)) == said
    assert said == refused(lambda: callers.by_token("no token"))


def test_certificate_that_is_not_listed_is_refused_although_the_authority_signed_it(root: Path) -> None:
    """As one that a thief of the authority's key makes."""
    certificate_of(root, "acme", "alice")
    forged = [issue_client_certificate(root, "acme", "alice"), issue_client_certificate(root, None, "chief")]
    for callers in (Callers(root), Callers(root, (root / "ca.pem").read_bytes())):
        for issued in forged:
            der = ssl.PEM_cert_to_DER_cert(issued.certificate_pem.decode())
            refused(lambda callers=callers, der=der: callers.by_certificate(der))  # type: ignore[misc]


class OtherAuthority:
    """An operator's own, which issues whatever it is asked for."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "corporate")])
        self.certificate = self._signed(self.name, self.key.public_key())
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, *subject: tuple[x509.ObjectIdentifier, str]) -> bytes:
        name = x509.Name([x509.NameAttribute(oid, value) for oid, value in subject])
        made = self._signed(name, ec.generate_private_key(ec.SECP256R1()).public_key())
        return made.public_bytes(serialization.Encoding.DER)

    def _signed(self, subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(public)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(1))
        return builder.not_valid_after(now + timedelta(1)).sign(self.key, hashes.SHA256())


def subject(tenant: str, user: str) -> list[tuple[x509.ObjectIdentifier, str]]:
    return [(NameOID.ORGANIZATION_NAME, tenant), (NameOID.COMMON_NAME, user)]


def test_certificate_of_the_operator_s_own_authority_names_a_user_that_there_is(root: Path) -> None:
    authority = OtherAuthority()
    der = authority.issue(*subject("acme", "alice"))
    refused(lambda: Callers(root).by_certificate(der))
    callers = Callers(root, authority.pem)
    caller = callers.by_certificate(der)
    assert (caller.name, caller.tenant, caller.grants) == ("alice", "acme", (READER,))
    assert callers.renewed(caller) == caller
    revoke_user(root, "acme", "alice")
    refused(lambda: callers.by_certificate(der))
    refused(lambda: callers.renewed(caller))
    add_user(root, "acme", "alice", [])
    callers.by_certificate(der)
    callers.trust(None)
    refused(lambda: callers.by_certificate(der))


@pytest.mark.parametrize(
    "named",
    [
        subject("acme", "bob"),
        subject("missing", "alice"),
        subject("+", "chief"),
        subject("../root", "chief"),
        subject("acme", "alice")[:1],
        subject("acme", "alice")[1:],
        [*subject("acme", "alice"), *subject("acme", "chief")],
        [],
    ],
    ids=str,
)
def test_operator_s_own_authority_cannot_name_who_is_not_there_nor_users_of_the_server(
    root: Path, named: list[tuple[x509.ObjectIdentifier, str]]
) -> None:
    authority = OtherAuthority()
    callers = Callers(root, authority.pem)
    refused(lambda: callers.by_certificate(authority.issue(*named)))


def test_authority_that_calls_itself_as_another_does_is_not_taken_for_it(root: Path) -> None:
    der = OtherAuthority().issue(*subject("acme", "alice"))
    refused(lambda: Callers(root, OtherAuthority().pem).by_certificate(der))


def test_own_authority_that_is_named_too_does_not_bring_back_what_was_revoked(root: Path) -> None:
    der = certificate_of(root, "acme", "alice")
    callers = Callers(root, (root / "ca.pem").read_bytes() + OtherAuthority().pem)
    revoke_certificate(root, "acme", "alice", callers.by_certificate(der).credential)
    refused(lambda: callers.by_certificate(der))


def test_listed_certificate_serves_no_other_user_and_no_other_tenant(root: Path) -> None:
    der = certificate_of(root, "acme", "alice")
    path = root / "tenants/acme/users.json"
    values = json.loads(path.read_text())
    values["users"]["bob"] = values["users"].pop("alice")
    path.write_text(json.dumps(values))
    refused(lambda: Callers(root).by_certificate(der))


@pytest.mark.parametrize("der", [b"", b"garbage", b"\x30\x82" + bytes(100)])
def test_what_is_no_certificate_is_refused(root: Path, der: bytes) -> None:
    refused(lambda: Callers(root).by_certificate(der))


@pytest.mark.parametrize("pem", [b"garbage", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_authorities_that_are_none_are_said(root: Path, pem: bytes) -> None:
    with pytest.raises(UsageError):
        Callers(root, pem)


# Names in the audit trail


def test_who_did_it_cannot_be_mistaken(root: Path) -> None:
    add_user(root, None, "alice", [])
    callers = Callers(root)
    tenants = callers.by_token(new_token(root, "acme", "alice"))
    servers = callers.by_token(new_token(root, None, "alice"))
    assert [caller.who for caller in (tenants, servers, LOCAL_ADMIN)] == ["alice", "server:alice", "unix:socket"]
    assert callers.renewed(LOCAL_ADMIN) is LOCAL_ADMIN
    assert LOCAL_ADMIN.may("erase", "acme", "orders")


def test_credential_is_no_secret(root: Path) -> None:
    token = new_token(root, "acme", "alice")
    shown = repr(Callers(root).by_token(token))
    assert token[-43:] not in shown
    assert isinstance(Callers(root).by_token(token), Caller)
