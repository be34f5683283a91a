"""Data keys: drawn by a writer, who needs public keys only, and unsealed by whoever has one of the secrets.

A writer forgets a data key when it is done: what it wrote it cannot read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from hbuf.format.chain import Hasher
from hbuf.format.keys import KeyFile, parse_public
from hbuf.format.sealing import (
    DATA_KEY_BYTES,
    Recipient,
    Seal,
    data_key_hash,
    encode_data_key_line,
    encode_recipient,
    fingerprint_of,
    sealer,
)
from hbuf.format.settings import Settings
from hbuf.store.keyring import key_of_kind, of_kind


@dataclass(frozen=True, slots=True)
class DataKey:
    """What one writer encrypts with in one segment, and the PUT that brought it there."""

    put_at: int
    put: bytes
    line: bytes  # that each message has
    seal: Seal = field(repr=False)


class DrawnKey:
    """A data key on its way into a segment."""

    def __init__(self, settings: Settings, hasher: Hasher) -> None:
        from nacl.bindings import crypto_box_seal

        self._uuid = settings.uuid
        self._key = os.urandom(DATA_KEY_BYTES)
        self._hash = data_key_hash(hasher, self._key)
        public_keys = [parse_public(text).data for text in settings.recipients]
        sealed = [Recipient(fingerprint_of(public), crypto_box_seal(self._key, public)) for public in public_keys]
        self.recipient_lines = b"".join(map(encode_recipient, sealed))

    def brought_by(self, put: bytes, put_at: int) -> DataKey:
        """The key as it is used behind its PUT, at byte `put_at` of a segment."""
        return DataKey(put_at, put, encode_data_key_line(self._hash, put_at), sealer(self._key, self._uuid))


def recipients_bytes(settings: Settings) -> int:
    """The bytes that the recipients' lines take."""
    line = encode_recipient(Recipient(b"0" * 16, bytes(DATA_KEY_BYTES + 48)))
    return len(line) * len(settings.recipients)


class Identity:
    """A secret that unseals the data keys of what was encrypted to its public key."""

    def __init__(self, path: Path, key: KeyFile | None = None) -> None:
        """`key` is what the file holds, where the caller has seen to it that nobody else can read it."""
        key = key_of_kind(path, "encrypt") if key is None else of_kind(key, "encrypt", path)
        self.fingerprint = fingerprint_of(key.public)
        self._public, self._secret = key.public, key.secret

    def unseal(self, sealed: bytes) -> bytes | None:
        """The data key; None where it was not sealed for this key, or was changed."""
        from nacl.bindings import crypto_box_seal_open
        from nacl.exceptions import CryptoError

        try:
            return crypto_box_seal_open(sealed, self._public, self._secret)
        except CryptoError:
            return None
