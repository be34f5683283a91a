"""Key files: where they are, who may read them, and how they are replaced so that no crash loses a key.

A key file is 0600 and never lies in a buffer, whose backups would take it along. A secret that was replaced is
overwritten where it lay, as far as the file system lets that be done. The secrets themselves are drawn elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from hbuf.errors import CannotCreate, HbufError, NotAllowed, NotFound, UsageError
from hbuf.format.keys import (
    KeyFile,
    Kind,
    PublicKey,
    encode_key_file,
    encode_public,
    looks_public,
    looks_secret,
    parse_key_file,
    parse_public,
    public_key,
)
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory

KEY_SUFFIX = ".key"
PUBLIC_SUFFIX = ".pub"
MAX_FILE_BYTES = 65_536

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_OTHERS = 0o077


# Where keys are


def check_key_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        # It is not repeated, for the same reason as in `_file_meant`.
        raise UsageError(
            "that cannot be a key's name",
            hint="a name is 1 to 128 of a-z, 0-9, '.', '_' and '-', and starts with a letter or a digit",
        )
    return name


def key_path(name_or_path: str, directory: Path) -> Path:
    """The key file that is meant: a name in the key directory before a file of that name elsewhere.

    So what a name means does not change with the directory that somebody works in.
    """
    return _file_meant(name_or_path, directory, [KEY_SUFFIX])


def public_path(name_or_path: str, directory: Path) -> Path:
    """The same where a public key is enough: of a name, the key's own file or one with the public key alone."""
    return _file_meant(name_or_path, directory, [KEY_SUFFIX, PUBLIC_SUFFIX])


def key_files(directory: Path) -> list[Path]:
    """Every key and public key in the key directory, by name. Nothing where it was not made yet."""
    with fsops.os_errors(directory):
        try:
            found = [Path(file) for file in os.listdir(directory)]
        except FileNotFoundError:
            return []
    keys = [file for file in found if file.suffix in (KEY_SUFFIX, PUBLIC_SUFFIX) and _NAME.fullmatch(file.stem)]
    return [directory / file for file in sorted(keys, key=lambda file: (file.stem, file.suffix))]


def refuse_in_buffer(path: Path) -> None:
    around = next((above for above in _real(path).parents if BufferDirectory(above).exists()), None)
    if around is not None:
        raise UsageError(
            f"{path}: is inside the buffer {around}", hint="keep keys elsewhere: a copy of the buffer would have them"
        )


def _file_meant(given: str, directory: Path, suffixes: list[str]) -> Path:
    is_name = _NAME.fullmatch(given) is not None
    if is_name:
        for suffix in suffixes:
            named = directory / f"{given}{suffix}"
            if os.path.lexists(named):
                return named
    if "/" in given or os.path.isfile(given):
        return Path(given)
    if is_name:
        return directory / f"{given}{KEY_SUFFIX}"
    # It is not repeated: what is no name may be a secret that somebody put in the wrong place.
    raise UsageError(
        "that is neither a key's name nor a file nor a public key", hint="hbuf-key list shows the names that there are"
    )


# Reading


def load_key(path: Path) -> KeyFile:
    """The key in a file that nobody else can read or write. A link is followed, and what it leads to is checked."""
    data, found = _read(path)
    _check_private(path, found)
    with _named(path):
        return parse_key_file(data)


def key_of_kind(path: Path, kind: Kind) -> KeyFile:
    return of_kind(load_key(path), kind, path)


def of_kind(key: KeyFile, kind: Kind, path: Path) -> KeyFile:
    if key.kind != kind:
        raise UsageError(f"{path}: is a key of kind {key.kind}, where one of kind {kind} is needed")
    return key


def load_public(name_or_path_or_text: str, directory: Path) -> PublicKey:
    """A public key given as its text, as a file with it, or as the name of a key whose secret or public key is here."""
    if looks_public(name_or_path_or_text):
        return parse_public(name_or_path_or_text)
    key = load_any(public_path(name_or_path_or_text, directory))
    return public_key(key) if isinstance(key, KeyFile) else key


def load_any(path: Path) -> KeyFile | PublicKey:
    """What a file holds: a whole key, which nobody else may read, or the text of a public key."""
    data, found = _read(path)
    if path.suffix == KEY_SUFFIX or looks_secret(data):
        _check_private(path, found)
    with _named(path):
        return parse_any(data, is_secret=path.suffix == KEY_SUFFIX)


def parse_any(data: bytes, *, is_secret: bool = False) -> KeyFile | PublicKey:
    """A key file or the text of a public key. With `is_secret` it can only be a key file, a damaged one or not."""
    if is_secret or looks_secret(data):
        return parse_key_file(data)
    return parse_public(data.decode("ascii", "replace"))


def _read(path: Path) -> tuple[bytes, os.stat_result]:
    with fsops.os_errors(path):
        while True:
            try:
                with open(path, "rb") as file:
                    data = file.read(MAX_FILE_BYTES + 1)
                    found = os.fstat(file.fileno())
                    # A file that was replaced since it was opened may have been overwritten while it was read.
                    if found.st_nlink or _is_same_file(file.fileno(), path):
                        break
            except FileNotFoundError:
                hint = "hbuf-key list shows those that there are"
                raise NotFound(f"{path}: there is no such key", hint=hint) from None
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{path}: is too long for a key")
    return data, found


def _check_private(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        raise NotAllowed(f"{path}: belongs to somebody else, and is not used as a key")
    if found.st_mode & _OTHERS:
        hint = f"chmod 600 {shlex.quote(str(path))}"
        raise NotAllowed(f"{path}: others can read or write it, and it is not used as a key", hint=hint)
    refuse_in_buffer(path)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors about what a file holds say which file."""
    try:
        yield
    except HbufError as error:
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from None


# Writing


def create_key(path: Path, key: KeyFile) -> None:
    """Makes a key file, whole or not at all, and never over another file."""
    _write(path, encode_key_file(key), 0o600, new=True)


def create_public(path: Path, key: PublicKey) -> None:
    """The same for the text of a public key, which others may read."""
    _write(path, encode_public(key).encode() + b"\n", 0o644, new=True)


def save_key(path: Path, key: KeyFile) -> None:
    """`path` holds `key`, on disk, and at no time holds anything but what it held before or `key`."""
    _write(path, encode_key_file(key), 0o600, new=False)


def _write(path: Path, data: bytes, mode: int, *, new: bool) -> None:
    refuse_in_buffer(path)
    shown, path = path, _real(path)  # a link stays, and what it leads to is replaced
    with fsops.os_errors(shown), contextlib.ExitStack() as files:
        _make_key_directory(path.parent)
        beside = path.with_name(f".new-{path.name}")
        fd = _open_alone(beside, mode)
        files.callback(os.close, fd)
        try:
            if new and os.path.lexists(path):
                raise CannotCreate(f"{shown}: exists already", hint="keys are never overwritten: take another name")
            old = _open_old(path)
            if old is not None:
                files.callback(os.close, old)
            # What a crash left here may be a secret: it is written over, and not only cut off.
            fsops.write_all_at(fd, data, 0)
            fsops.truncate(fd, len(data))
            fsops.sync_data(fd)
            fsops.rename(beside, path)
        except BaseException:
            _drop(fd, beside)
            raise
        fsops.sync_directory(path.parent)
        if old is not None:
            _overwrite(old)


def _make_key_directory(path: Path) -> None:
    """The key directory is for its owner alone; what is missing above it is like any directory."""
    missing = []
    above = path
    while not above.exists():
        missing.append(above)
        above = above.parent
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):  # somebody else was faster
            os.mkdir(each, 0o700 if each == path else 0o777)
        fsops.sync_directory(each.parent)


def _open_alone(path: Path, mode: int) -> int:
    """The file that becomes the key, held by a lock: of two who make the same key the second is refused."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_same_file(fd, path):
                found = os.fstat(fd)
                if found.st_uid != os.geteuid() or found.st_nlink != 1:
                    raise NotAllowed(f"{path}: is in the way", hint="somebody else put it there; remove it")
                os.fchmod(fd, mode)
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _open_old(path: Path) -> int | None:
    """What is replaced, to be overwritten; None where there is nothing, or nothing that may be written."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return None


def _drop(fd: int, path: Path) -> None:
    """Nothing is left of a key that could not be written."""
    with contextlib.suppress(OSError):
        if _is_same_file(fd, path):
            fsops.unlink(path)
            _overwrite(fd)


def _overwrite(fd: int) -> None:
    """Zeros over a file that has no name any more. All else is done by then: where this fails, nothing else does."""
    with contextlib.suppress(OSError):
        found = os.fstat(fd)
        if found.st_nlink == 0:
            fsops.write_all_at(fd, bytes(found.st_size), 0)
            fsops.sync_data(fd)


def _is_same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
