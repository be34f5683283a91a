"""Keys that bodies are encrypted to, and reading with them."""

from __future__ import annotations

from pathlib import Path

import hbuf
from hbuf.errors import HbufError
from hbuf.format.keys import encode_public, new_key_file, public_key
from hbuf.format.message import Message
from hbuf.ops.create import create
from hbuf.store.keyring import create_key, load_key


def make_identity(below: Path, name: str) -> Path:
    """A new key file. Its secret is always the same, and another for each name."""
    path = below / "keys" / f"{name}.key"
    create_key(path, new_key_file("encrypt", name.encode().ljust(32, b"\xfb")))
    return path


def public_text(identity: Path) -> str:
    return encode_public(public_key(load_key(identity)))


def create_encrypted(path: Path, *identities: Path, **settings: str) -> None:
    create(str(path), settings, recipients=[public_text(identity) for identity in identities])


def bodies_and_refusals(path: Path, *identities: Path) -> tuple[dict[int, bytes], list[HbufError]]:
    """What the library gives, by number, and what it raises behind the last message."""
    bodies: dict[int, bytes] = {}
    try:
        for message in hbuf.Buffer(path, identities=identities).read():
            bodies[message.seq] = message.body
    except HbufError as error:
        return bodies, [error]
    return bodies, []


def read_bodies(path: Path, *identities: Path) -> list[bytes]:
    """All bodies; whatever cannot be read is an error."""
    return [message.body for message in read_messages(path, *identities)]


def read_messages(path: Path, *identities: Path) -> list[Message]:
    return list(hbuf.Buffer(path, identities=identities).read())
