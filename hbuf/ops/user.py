"""Users of a tenant, or of the whole server: made, given roles, tokens and certificates, and revoked.

Each change is noted in the audit trail: what lets somebody in before it is done, so that nobody is let in unnoted, and
what shuts somebody out behind it, so that nothing holds that up. The daemon sees either with its next request.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hbuf.errors import CannotCreate, HbufError, NotFound, UsageError
from hbuf.format import names
from hbuf.format.times import encode_time
from hbuf.format.users import (
    SERVER,
    Grant,
    Token,
    User,
    Users,
    check_user_name,
    encode_grant,
    encode_token,
    hash_of_secret,
)
from hbuf.ops.audit_trail import AuditTrail
from hbuf.ops.authority import CLIENT_DAYS, issue_client_certificate
from hbuf.store import fsops
from hbuf.store.clock import SystemClock
from hbuf.store.create import make_directories_like
from hbuf.store.markers import acting_user
from hbuf.store.users_file import changing, holder, read_users, write_users

_ID_CHARACTERS = string.ascii_lowercase + string.digits
_ID_LENGTH = 8
LEAST_FINGERPRINT = 16  # characters of a fingerprint that name a certificate


class CertificateFiles(NamedTuple):
    certificate: Path
    key: Path


def add_user(root: Path, tenant: str | None, name: str, grants: Iterable[Grant] = ()) -> None:
    """The first user of a tenant makes the tenant."""
    check_user_name(name)
    _require_root(root)
    if tenant is not None:
        with fsops.os_errors(root):
            make_directories_like(holder(root, tenant) / names.BUFFERS)
    given = list(grants)
    with _noting(root, tenant, name) as note, changing(holder(root, tenant)) as users:
        changed = users.with_user(name, _now(), given)
        note("user.add", grants=[encode_grant(grant) for grant in given])
        write_users(holder(root, tenant), changed)


def add_grants(root: Path, tenant: str | None, name: str, grants: Sequence[Grant]) -> None:
    if not grants:
        raise UsageError("there is no role to give", hint="write it like reader:orders or writer:shop-*")
    with _noting(root, tenant, name) as note, changing(_existing(root, tenant)) as users:
        changed = users.with_grants(name, grants)
        note("user.grant", grants=[encode_grant(grant) for grant in grants])
        write_users(holder(root, tenant), changed)


def list_users(root: Path, tenant: str | None) -> list[User]:
    return sorted(read_users(_existing(root, tenant)), key=lambda user: user.name)


def new_token(root: Path, tenant: str | None, name: str, *, expires_us: int | None = None, note: str = "") -> str:
    """The text of a token, which is shown this once: what is kept is a hash."""
    now_us = SystemClock().now_us()
    if expires_us is not None and expires_us <= now_us:
        raise UsageError("the token would have expired already")
    token_id = f"{tenant or SERVER}.{''.join(secrets.choice(_ID_CHARACTERS) for _ in range(_ID_LENGTH))}"
    secret = secrets.token_urlsafe(32)
    expires = None if expires_us is None else encode_time(expires_us)
    token = Token(token_id, hash_of_secret(secret), encode_time(now_us), expires, note)
    with _noting(root, tenant, name) as noted, changing(_existing(root, tenant)) as users:
        changed = users.with_token(name, token)
        noted("user.token", token=token_id, expires=expires)
        write_users(holder(root, tenant), changed)
    return encode_token(token_id, secret)


def new_certificate(
    root: Path, tenant: str | None, name: str, directory: Path, *, days: float = CLIENT_DAYS
) -> CertificateFiles:
    """Writes `NAME.pem` and `NAME.key` into `directory`, never over a file. The key is kept nowhere else."""
    files = CertificateFiles(directory / f"{check_user_name(name)}.pem", directory / f"{name}.key")
    for path in files:
        if os.path.lexists(path):
            raise CannotCreate(f"{path}: exists already", hint="move it away, or choose another directory")
    with _noting(root, tenant, name) as note, changing(_existing(root, tenant)) as users:
        users.get(name)
        issued = issue_client_certificate(root, tenant, name, days)
        changed = users.with_certificate(name, issued.certificate)
        with _unless_it_fails(files.key):
            _write(files.key, issued.key_pem, 0o600)
            note("user.certificate", certificate=issued.certificate.sha256, expires=issued.certificate.expires)
            write_users(holder(root, tenant), changed)
        _write(files.certificate, issued.certificate_pem, 0o644)
    return files


def revoke_user(root: Path, tenant: str | None, name: str) -> None:
    """The user is gone, with all tokens and certificates."""
    _take(root, tenant, name, "user.revoke", lambda users: users.without_user(name))


def revoke_token(root: Path, tenant: str | None, name: str, token_id: str) -> None:
    _take(root, tenant, name, "user.revoke-token", lambda users: users.without_token(name, token_id), token=token_id)


def revoke_certificate(root: Path, tenant: str | None, name: str, fingerprint: str) -> None:
    """`fingerprint` may be cut short, or be as openssl shows it, with colons and in capitals."""
    wanted = fingerprint.replace(":", "").lower()
    listed = [each.sha256 for each in read_users(_existing(root, tenant)).get(name).certificates]
    meant = [each for each in listed if each.startswith(wanted) and len(wanted) >= LEAST_FINGERPRINT]
    plain = meant[0] if len(meant) == 1 else wanted

    def change(users: Users) -> Users:
        return users.without_certificate(name, plain)

    _take(root, tenant, name, "user.revoke-certificate", change, certificate=plain)


def revoke_grants(root: Path, tenant: str | None, name: str, grants: Sequence[Grant]) -> None:
    gone = [encode_grant(grant) for grant in grants]
    _take(root, tenant, name, "user.revoke-grant", lambda users: users.without_grants(name, grants), grants=gone)


def _take(
    root: Path, tenant: str | None, name: str, what: str, change: Callable[[Users], Users], **details: object
) -> None:
    with _noting(root, tenant, name) as note, changing(_existing(root, tenant)) as users:
        write_users(holder(root, tenant), change(users))
        try:
            note(what, **details)
        except HbufError as error:
            raise type(error)(f"'{name}' was changed as asked, but {error.message}", hint=error.hint) from error


@contextlib.contextmanager
def _noting(root: Path, tenant: str | None, name: str) -> Iterator[Callable[..., None]]:
    """What is changed of users of the server is noted with the default tenant."""
    trail = AuditTrail(holder(root, tenant or names.DEFAULT_TENANT))
    who = f"unix:{acting_user().decode()}"
    about: dict[str, object] = {"user": name}
    if tenant is None:
        about["server"] = True
    try:
        yield lambda what, **details: trail.note(who, what, None, **about, **details)
    finally:
        trail.close()


def _existing(root: Path, tenant: str | None) -> Path:
    _require_root(root)
    directory = holder(root, tenant)
    if not directory.is_dir():
        raise NotFound(f"there is no tenant '{tenant}'", hint="hbuf-user add makes a tenant with its first user")
    return directory


def _require_root(root: Path) -> None:
    if not root.is_dir():
        raise NotFound(f"{root}: there is no such directory", hint="hbufd makes it when it first starts; see --root")


@contextlib.contextmanager
def _unless_it_fails(path: Path) -> Iterator[None]:
    """What was made is of no use where the rest did not succeed."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            fsops.unlink(path)
        raise


def _write(path: Path, data: bytes, mode: int) -> None:
    with fsops.os_errors(path):
        fsops.replace_durably(path, data, mode=mode)


def _now() -> str:
    return encode_time(SystemClock().now_us())
