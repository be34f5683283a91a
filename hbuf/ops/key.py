"""Making keys, showing what there is, and handing public keys out and in. No secret is returned."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hbuf.errors import CannotCreate, HbufError, NotFound
from hbuf.format.keys import KEY_BYTES, KeyFile, Kind, PublicKey, encode_public, fingerprint, new_key_file, public_key
from hbuf.store.keyring import (
    KEY_SUFFIX,
    PUBLIC_SUFFIX,
    check_key_name,
    create_key,
    create_public,
    key_files,
    load_any,
    load_public,
    parse_any,
    public_path,
)


@dataclass(frozen=True, slots=True)
class KeyListing:
    """What may be told of a key."""

    name: str
    path: str
    kind: Kind
    fingerprint: str
    public: str  # its text
    has_secret: bool
    buffer: str | None  # the uuid of the buffer that a signing key serves


def new(name: str, kind: Kind, directory: Path) -> KeyListing:
    """Draws a key and stores it under a name that no key has."""
    path = _vacant(name, directory, KEY_SUFFIX)
    key = new_key_file(kind, os.urandom(KEY_BYTES))
    create_key(path, key)
    return _listing(path, key)


def show(name_or_path: str, directory: Path) -> KeyListing:
    path = public_path(name_or_path, directory)
    return _listing(path, load_any(path))


def list_(directory: Path, notice: Callable[[HbufError], None]) -> list[KeyListing]:
    """All keys of the key directory, by name. `notice` is told of those that cannot be used."""
    found = []
    for path in key_files(directory):
        try:
            found.append(_listing(path, load_any(path)))
        except NotFound:
            continue  # it was removed since
        except HbufError as error:
            notice(error)
    return found


def export(name_or_path: str, directory: Path) -> str:
    """The public key as one line of text."""
    return encode_public(load_public(name_or_path, directory))


def import_(name: str, source: Path | bytes, directory: Path) -> KeyListing:
    """Stores a public key, or a whole key file, under a name that no key has.

    A key file that others can read is refused; of bytes that came from elsewhere nobody can tell.
    """
    key = parse_any(source) if isinstance(source, bytes) else load_any(source)
    if isinstance(key, KeyFile):
        path = _vacant(name, directory, KEY_SUFFIX)
        create_key(path, key)
    else:
        path = _vacant(name, directory, PUBLIC_SUFFIX)
        create_public(path, key)
    return _listing(path, key)


def _vacant(name: str, directory: Path, suffix: str) -> Path:
    """Where a key of this name goes. One name stands for one key, be it whole or public."""
    check_key_name(name)
    for taken in (directory / f"{name}{each}" for each in (KEY_SUFFIX, PUBLIC_SUFFIX)):
        if os.path.lexists(taken):
            raise CannotCreate(f"{taken}: exists already", hint="keys are never overwritten: take another name")
    return directory / f"{name}{suffix}"


def _listing(path: Path, key: KeyFile | PublicKey) -> KeyListing:
    public = public_key(key) if isinstance(key, KeyFile) else key
    return KeyListing(
        path.stem,
        str(path),
        public.kind,
        fingerprint(public),
        encode_public(public),
        has_secret=isinstance(key, KeyFile),
        buffer=key.buffer if isinstance(key, KeyFile) else None,
    )
