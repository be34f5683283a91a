"""`users.json` on disk: of the whole server in its root, of a tenant in the tenant's directory.

It is for its owner alone, who is the owner of the directory: root may change it, and the daemon still reads it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from hbuf.errors import Damaged
from hbuf.format import names
from hbuf.format.users import Users, parse_users
from hbuf.store import fsops
from hbuf.store.exclusive import exclusively

_LOCK = "users.lock"


def holder(root: Path, tenant: str | None) -> Path:
    """The directory that has a `users.json`. Without a tenant it is that of the users of the server."""
    return root if tenant is None else root / names.TENANTS / names.check_tenant_name(tenant)


def read_users(directory: Path) -> Users:
    """No users where there is no file."""
    path = directory / names.USERS
    with fsops.os_errors(path):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return Users()
    try:
        return parse_users(data)
    except Damaged as error:
        hint = "mend it, or put an earlier one in its place: until then nobody is let in"
        raise Damaged(f"{path}: {error.message}", hint=hint) from None


def write_users(directory: Path, users: Users) -> None:
    """On disk when it returns, and never half of it. For who holds `changing`."""
    path = directory / names.USERS
    with fsops.os_errors(path):
        fsops.replace_durably(path, users.encode(), mode=0o600)


@contextlib.contextmanager
def changing(directory: Path) -> Iterator[Users]:
    """The users as they are now, and nobody else changes them meanwhile."""
    with exclusively(directory / _LOCK):
        yield read_users(directory)
