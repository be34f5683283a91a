"""The signing keys of the daemon's buffers: KEYS/T/B.key signs buffer B of tenant T."""

from __future__ import annotations

from pathlib import Path

from hbuf.format.keys import new_key_file
from hbuf.store.directory import BufferDirectory
from hbuf.store.keyring import create_key
from hbuf.store.signing import Signer, draw_secret


def signing_key(keys: Path, directory: BufferDirectory) -> Path:
    return keys / directory.tenant / f"{directory.name}.key"


def signer_of(keys: Path, directory: BufferDirectory) -> Signer | None:
    """What signs a buffer, or None where there is no key for it."""
    path = signing_key(keys, directory)
    return Signer(path) if path.exists() else None


def make_signing_key(keys: Path, directory: BufferDirectory) -> Signer:
    """A key for a buffer that is to be made. One that is there and serves no buffer yet is taken."""
    path = signing_key(keys, directory)
    if not path.exists():
        create_key(path, new_key_file("sign", draw_secret()))
    return Signer(path)
