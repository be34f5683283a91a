"""The key that signs one buffer: what it signs, and how it makes way for the next one with every segment.

Forward-secure: whoever takes the key file today cannot sign for what was sealed before. The order of a rotation,
under the buffer's lock: the next secret is synced into the key file; the new segment's PUT announces it, signed
with the current one; segment and directory are synced; the key file has the next secret alone. Whatever step it
stops at, `serve` finishes or forgets it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hbuf.errors import NotAllowed
from hbuf.format.keys import KeyFile, new_key_file
from hbuf.format.note import encode_signature, head_text, put_text
from hbuf.format.record import Sign
from hbuf.store.keyring import key_of_kind, save_key
from hbuf.store.tail import Opening


def draw_secret() -> bytes:
    return os.urandom(32)


class Signer:
    """Not for two threads at once."""

    def __init__(self, path: Path, *, secrets: Callable[[], bytes] = draw_secret) -> None:
        self.path = path
        self._secrets = secrets
        self._key = _signing_key(path)

    @property
    def public(self) -> bytes:
        return self._key.public

    def head_signer(self, uuid: str) -> Sign:
        return lambda seq, record_id: _sign(self._key.secret, head_text(uuid, seq, record_id))

    def put_signer(self, uuid: str) -> Sign:
        return lambda first, record_id: _sign(self._key.secret, put_text(uuid, first, record_id))

    def serve(self, opening: Opening, where: str) -> None:
        """Binds the key to the buffer. Whatever `opening` is read from is on disk by now: a secret may be dropped."""
        bound = self.check(opening, where)
        if bound != _signing_key(self.path):
            save_key(self.path, bound)
        self._key = bound

    def check(self, opening: Opening, where: str) -> KeyFile:
        """The key as it signs behind `opening`. Raises NotAllowed where it is another's.

        The key file is read again: another writer may have gone on to the next key.
        """
        uuid, announced = opening.settings.uuid, opening.keys.sign
        key = self._key
        if key.public != announced or key.buffer != uuid or key.next_secret is not None:
            key = _signing_key(self.path)
        if key.buffer not in (None, uuid):
            raise NotAllowed(f"{where}: the key {self.path} serves another buffer")
        if key.next_secret is not None and new_key_file("sign", key.next_secret).public == announced:
            key = replace(new_key_file("sign", key.next_secret), buffer=uuid, first=key.first)
        if key.public != announced:
            raise NotAllowed(
                f"{where}: is signed, and not with the key {self.path}",
                hint="the key file may be an older copy, or the buffer may have lost its newest segments",
            )
        return replace(key, buffer=uuid, first=key.first or key.public, put=opening.last_id, next_secret=None)

    @property
    def is_used(self) -> bool:
        """Whether it serves a buffer already."""
        return self._key.buffer is not None

    def refuse_used(self) -> None:
        """A key serves one buffer, from its first use on."""
        if self.is_used:
            raise NotAllowed(f"{self.path}: the key serves another buffer", hint="hbuf-key new makes another key")

    def prepare_next(self) -> bytes:
        """Draws the next secret and puts it beside the current one, on disk. Returns its public key."""
        following = new_key_file("sign", self._secrets())
        self._key = replace(self._key, next_secret=following.secret)
        save_key(self.path, self._key)
        return following.public


def _signing_key(path: Path) -> KeyFile:
    return key_of_kind(path, "sign")


class RecoveryKey:
    """The offline key that may start a new line of keys: after a lost key, a promotion, a restore."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._key = key_of_kind(path, "recovery")

    @property
    def public(self) -> bytes:
        return self._key.public

    def put_signer(self, uuid: str) -> Sign:
        return lambda first, record_id: _sign(self._key.secret, put_text(uuid, first, record_id))


def _sign(secret: bytes, text: bytes) -> bytes:
    from nacl.signing import SigningKey

    return encode_signature(SigningKey(secret).sign(text).signature)
