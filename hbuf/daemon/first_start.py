"""What has to be there before the daemon serves: its root, its authority, its certificate and an administrator.

Each step is done only if it is not done yet, and nothing is half done: killed at any point, the next start goes on.
An administrator is made once. Whoever takes it away later does not find it again after a restart.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from hbuf.daemon.addresses import is_everywhere, parse_address
from hbuf.daemon.config import Config
from hbuf.daemon.tls import certificate_files
from hbuf.errors import CannotCreate, Locked, NotFound
from hbuf.format import names
from hbuf.format.users import Grant
from hbuf.ops.authority import ensure_authority, ensure_server_certificate
from hbuf.ops.user import add_user, list_users, new_token, revoke_token
from hbuf.store import fsops

ADMIN = "admin"
ADMIN_TOKEN = "admin.token"  # noqa: S105  a file's name
ADMIN_HEADER = "admin.header"
LOCK = "hbufd.lock"
# Is there from before the administrator is made until its token is in its file.
_BEGUN = ".first-start"
_NOTE = "of the first start, in admin.token"
_SECRET = 0o600


def make_root(root: Path) -> None:
    """The root is there; one that is made now is for the daemon's own user alone."""
    with fsops.os_errors(root):
        if root.is_dir():
            return
        root.parent.mkdir(parents=True, exist_ok=True)
        try:
            root.mkdir(mode=0o700)
        except FileExistsError:
            raise CannotCreate(f"{root}: is there, and is no directory") from None
        fsops.sync_directory(root.parent)


@contextlib.contextmanager
def only_daemon(root: Path) -> Iterator[None]:
    """No other daemon serves this root meanwhile. Raises Locked."""
    path = root / LOCK
    with fsops.os_errors(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _SECRET)
        fsops.own_like(fd, os.stat(root), mode=_SECRET)  # root may have started it first
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Locked(f"{root}: another hbufd serves it", hint="--root names another directory") from None
        yield
    finally:
        os.close(fd)


def prepare(config: Config) -> bool:
    """All of it is there. Returns whether the administrator was made now."""
    ensure_authority(config.root)
    renew_certificate(config)
    return _ensure_administrator(config.root)


def renew_certificate(config: Config) -> bool:
    """The daemon's own certificate lasts for a while and has all names. Returns whether it is another now."""
    return certificate_files(config).own and ensure_server_certificate(config.root, certificate_names(config))


def certificate_names(config: Config) -> list[str]:
    """What clients may call this daemon."""
    hosts = [parse_address(text).host for text in config.listen]
    found = ["localhost", "127.0.0.1", "::1", socket.gethostname(), *hosts, *config.tls.names]
    plain = [name.partition("%")[0] for name in found if not is_everywhere(name) and name.isascii()]
    return list(dict.fromkeys(plain))


def _ensure_administrator(root: Path) -> bool:
    begun = root / _BEGUN
    if not begun.exists():
        if (root / names.USERS).exists():
            return False
        with fsops.os_errors(root):
            # A token of users that there were before would be none of the one that is made now.
            for name in (ADMIN_TOKEN, ADMIN_HEADER):
                (root / name).unlink(missing_ok=True)
            fsops.replace_durably(begun, b"", mode=_SECRET)
    token = _token_of_file(root)
    if token is None:
        token = _new_administrator(root)
        _write(root / ADMIN_TOKEN, f"{token}\n")
    _write(root / ADMIN_HEADER, f"authorization: Bearer {token}\n")
    with fsops.os_errors(begun):
        fsops.unlink(begun)
        fsops.sync_directory(root)
    return True


def _new_administrator(root: Path) -> str:
    known = {user.name: user for user in list_users(root, None)}
    if ADMIN not in known:
        add_user(root, None, ADMIN, [Grant("admin", "*")])
    else:
        # Their secrets went with a start that did not end.
        for token in known[ADMIN].tokens:
            if token.note == _NOTE:
                revoke_token(root, None, ADMIN, token.id)
    return new_token(root, None, ADMIN, note=_NOTE)


def _token_of_file(root: Path) -> str | None:
    path = root / ADMIN_TOKEN
    try:
        with fsops.os_errors(path):
            return path.read_text().strip()
    except NotFound:
        return None


def _write(path: Path, text: str) -> None:
    with fsops.os_errors(path):
        fsops.replace_durably(path, text.encode(), mode=_SECRET)
