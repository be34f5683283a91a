"""The options that name keys, and how their values become keys: a NAME from the key directory, or a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hbuf.cli.key_directory import key_directory
from hbuf.errors import UsageError

if TYPE_CHECKING:
    from hbuf.format.keys import Kind
    from hbuf.store.data_keys import Identity
    from hbuf.store.signing import RecoveryKey, Signer

IdentityKeys = Annotated[
    list[str] | None, typer.Option("--identity", metavar="KEY", help="Decrypt with this key: a NAME or a file.")
]
EncryptTo = Annotated[
    list[str] | None, typer.Option("--encrypt-to", metavar="PUB", help="Encrypt bodies to this key: a NAME or a file.")
]
SignKey = Annotated[str | None, typer.Option("--sign", metavar="KEY", help="Sign with this key: a NAME or a file.")]


def signer_of(key: str | None) -> Signer | None:
    if key is None:
        return None
    from hbuf.store.keyring import key_path
    from hbuf.store.signing import Signer

    return Signer(key_path(key, key_directory()))


def recovery_of(key: str | None) -> RecoveryKey | None:
    if key is None:
        return None
    from hbuf.store.keyring import key_path
    from hbuf.store.signing import RecoveryKey

    return RecoveryKey(key_path(key, key_directory()))


def identities_of(keys: list[str] | None) -> list[Identity]:
    """The secrets that decrypt."""
    if not keys:
        return []
    from hbuf.store.data_keys import Identity
    from hbuf.store.keyring import key_path

    return [Identity(key_path(key, key_directory())) for key in keys]


def recipients_of(keys: list[str] | None) -> list[str]:
    """The texts of the public keys that bodies are encrypted to."""
    from hbuf.format.keys import PublicKey, encode_public

    return [encode_public(PublicKey("encrypt", public_of(key, "encrypt"))) for key in keys or []]


def public_of(key: str, kind: Kind) -> bytes:
    """A public key: the text itself, a file with it, or a NAME."""
    from hbuf.store.keyring import load_public

    found = load_public(key, key_directory())
    if found.kind != kind:
        raise UsageError(f"'{key}' is a key of kind {found.kind}, where one of kind {kind} is needed")
    return found.data
