"""Who makes a request: the user that a token or a certificate belongs to, and what this user may.

The files of users are looked at (one stat) with each request, so that whoever is revoked is shut out at once. What is
wrong with a credential is never told: a user that there is not, one of another tenant and a wrong secret are the same.
"""

from __future__ import annotations

import functools
import hmac
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hbuf.errors import HbufError, Unauthorized, UsageError
from hbuf.format import names
from hbuf.format.times import microseconds_of, parse_time
from hbuf.format.users import SERVER, Action, Grant, Users, hash_of_secret, parse_token
from hbuf.store.users_file import holder, read_users

if TYPE_CHECKING:
    from cryptography import x509

_LOG = logging.getLogger(__name__)
_NO_HASH = "0" * 64  # what a secret is compared with where there is no such token
# A file that changes twice within a tick of the file system's clock may look as it did after the first time.
_SETTLED_NS = 50_000_000
_KNOWN_CERTIFICATES = 1024


@dataclass(frozen=True, slots=True)
class Caller:
    """A user, as of one request."""

    name: str
    tenant: str  # its own; `default` for users of the server
    everywhere: bool  # a user of the server: what is granted holds in all tenants
    grants: tuple[Grant, ...]
    credential: str = ""  # the id of the token, or the certificate's fingerprint: no secret

    def may(self, action: Action, tenant: str, buffer: str) -> bool:
        return self._is_of(tenant) and any(grant.may(action, buffer) for grant in self.grants)

    def may_anything(self, action: Action, tenant: str) -> bool:
        """Whether there can be a buffer in this tenant on which it may."""
        return self._is_of(tenant) and any(grant.may_somewhere(action) for grant in self.grants)

    @property
    def who(self) -> str:
        """The name in the audit trail. A user of the server is not to be taken for one of the tenant."""
        return f"server:{self.name}" if self.everywhere and ":" not in self.name else self.name

    def _is_of(self, tenant: str) -> bool:
        return self.everywhere or tenant == self.tenant


# For who needs no credential, on the Unix socket. No user can have this name.
LOCAL_ADMIN = Caller("unix:socket", names.DEFAULT_TENANT, True, (Grant("admin", "*"),))


class _Credential(NamedTuple):
    sha256: str
    expires_us: int | None
    caller: Caller


@dataclass(frozen=True, slots=True)
class _Holder:
    """The users of one file, as they are asked for."""

    state: tuple[int, ...] | None  # of the file; None where it was too fresh to be sure
    tokens: Mapping[str, _Credential] = field(default_factory=dict)
    certificates: Mapping[str, _Credential] = field(default_factory=dict)
    callers: Mapping[str, Caller] = field(default_factory=dict)


_NOBODY = _Holder(None)


class _Shown(NamedTuple):
    """What is to be known of a certificate that a client showed."""

    tenant: str
    user: str
    fingerprint: str
    from_us: int
    until_us: int
    is_others: bool  # issued by one of the authorities that the operator named


class Callers:
    """Not for two threads at once. Looking somebody up takes microseconds, unless a file has changed."""

    def __init__(self, root: Path, client_authorities: bytes | None = None) -> None:
        self._root = root
        self._at = os.fspath(root)
        self._holders: dict[str, _Holder] = {}
        self._told: dict[str, str] = {}  # what was logged of damaged files
        self._authorities: list[x509.Certificate] = []
        self._look_at = functools.lru_cache(_KNOWN_CERTIFICATES)(self._parse_certificate)
        self.trust(client_authorities)
        for tenant in [SERVER, *self._tenants()]:
            self._holder(tenant)  # so that a first request does not take longer where there is such a tenant

    def trust(self, client_authorities: bytes | None) -> None:
        """From now on, certificates of these authorities (PEM) name users. hbuf's own is not to be among them."""
        self._authorities = _authorities(client_authorities, self._root) if client_authorities else []
        self._look_at.cache_clear()

    def by_token(self, token: str) -> Caller:
        parsed = parse_token(token)
        found = self._holder(parsed.tenant).tokens.get(parsed.id) if parsed else None
        # The same work whether there is such a token or not.
        matches = hmac.compare_digest(
            hash_of_secret(parsed.secret if parsed else ""), found.sha256 if found else _NO_HASH
        )
        if parsed is None or found is None or not matches or _has_expired(found.expires_us):
            raise _refused()
        return found.caller

    def by_certificate(self, der: bytes) -> Caller:
        """Of a client whose chain the TLS layer has checked: one of hbuf's own authority must still be listed."""
        shown = self._look_at(der)
        if shown is None or not shown.from_us <= _now_us() < shown.until_us:
            raise _refused()
        users = self._holder(shown.tenant)
        listed = users.certificates.get(shown.fingerprint)
        if listed is not None and listed.caller.name == shown.user and not _has_expired(listed.expires_us):
            return listed.caller
        named = users.callers.get(shown.user)
        if named is not None and shown.is_others and shown.tenant != SERVER:
            return named
        raise _refused()

    def renewed(self, caller: Caller) -> Caller:
        """The same caller as it is now, for a request that goes on for long. Raises Unauthorized if it was revoked."""
        if caller is LOCAL_ADMIN:
            return caller
        users = self._holder(SERVER if caller.everywhere else caller.tenant)
        found = users.tokens.get(caller.credential) or users.certificates.get(caller.credential)
        if found is not None and not _has_expired(found.expires_us):
            return found.caller
        if not caller.credential and caller.name in users.callers:
            return users.callers[caller.name]
        raise _refused()

    # Users

    def _holder(self, tenant: str) -> _Holder:
        """The users of a tenant, or of the server, as they are now. None for a tenant that there is not."""
        if tenant != SERVER and not names.is_tenant_name(tenant):
            return _NOBODY
        try:
            # Not with pathlib, which would take longer than all the rest.
            inner = "" if tenant == SERVER else f"{names.TENANTS}/{tenant}/"
            found = os.stat(f"{self._at}/{inner}{names.USERS}")
        except OSError:
            self._holders.pop(tenant, None)
            return _NOBODY
        state = (found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev)
        known = self._holders.get(tenant)
        if known is not None and known.state == state:
            return known
        settled = abs(time.time_ns() - found.st_mtime_ns) > _SETTLED_NS
        try:
            made = _index(
                read_users(holder(self._root, None if tenant == SERVER else tenant)), tenant, state if settled else None
            )
            self._told.pop(tenant, None)
        except HbufError as error:
            made = _Holder(state if settled else None)
            if self._told.get(tenant) != error.message:
                self._told[tenant] = error.message
                _LOG.error("%s: nobody is let in", error.message)
        self._holders[tenant] = made
        return made

    def _tenants(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._root / names.TENANTS) if names.is_tenant_name(name)]
        except OSError:
            return []

    # Certificates

    def _parse_certificate(self, der: bytes) -> _Shown | None:
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.x509.oid import NameOID

        try:
            certificate = x509.load_der_x509_certificate(der)
            [tenant] = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
            [user] = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            return _Shown(
                str(tenant.value),
                str(user.value),
                certificate.fingerprint(SHA256()).hex(),
                microseconds_of(certificate.not_valid_before_utc),
                microseconds_of(certificate.not_valid_after_utc),
                any(_is_issued_by(certificate, authority) for authority in self._authorities),
            )
        except ValueError:
            return None


def _index(users: Users, tenant: str, state: tuple[int, ...] | None) -> _Holder:
    tokens, certificates, callers = {}, {}, {}
    everywhere = tenant == SERVER
    for user in users:
        of = (user.name, names.DEFAULT_TENANT if everywhere else tenant, everywhere, user.grants)
        callers[user.name] = Caller(*of)
        for token in user.tokens:
            expires_us = None if token.expires is None else parse_time(token.expires)
            tokens[token.id] = _Credential(token.sha256, expires_us, Caller(*of, token.id))
        for listed in user.certificates:
            caller = Caller(*of, listed.sha256)
            certificates[listed.sha256] = _Credential(listed.sha256, parse_time(listed.expires), caller)
    return _Holder(state, tokens, certificates, callers)


def _authorities(pem: bytes, root: Path) -> list[x509.Certificate]:
    """Without hbuf's own: what it has issued is let in by being listed, and by nothing else."""
    from cryptography import x509

    from hbuf.ops.authority import AUTHORITY

    try:
        named = x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise UsageError("what is given as authorities of clients is not certificates in PEM") from None
    try:
        own = x509.load_pem_x509_certificates((root / AUTHORITY).read_bytes())
    except (OSError, ValueError):
        own = []
    return [each for each in named if each not in own]


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


def _has_expired(expires_us: int | None) -> bool:
    return expires_us is not None and _now_us() >= expires_us


def _now_us() -> int:
    return time.time_ns() // 1000


def _refused() -> Unauthorized:
    return Unauthorized("there is no credential, or none that is valid")
