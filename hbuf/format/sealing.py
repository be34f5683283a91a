"""Encrypted bodies: what is encrypted with what, and the lines that say so.

A body is XChaCha20-Poly1305 under a data key. The nonce is the first 24 bytes of the record's salt; what must stay
with the body is authenticated beside it:

    "hbuf1 aad\\n" | uuid of the buffer | "\\n" | head | fields

    x-hbuf-data-key: <H("hbuf1 data key\\n" | data key), in hex> <offset of the PUT that brings it>
    x-hbuf-recipient: <fingerprint of a public key> <the data key in a libsodium sealed box>

The hash is checked after unsealing, because the cipher alone does not commit to its key; the offset is a hint.
It draws no keys, and knows nothing of files.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import NamedTuple

from hbuf.format.chain import Hasher
from hbuf.format.keys import PublicKey, fingerprint

DATA_KEY_BYTES = 32
HASH_CHARACTERS = 64  # of a data key's hash
TAG_BYTES = 16  # that a stored body is longer

Seal = Callable[[bytes, bytes, bytes, bytes], bytes]  # of salt, head, fields and body: the stored body
Open = Callable[[bytes, bytes, bytes, bytes], bytes | None]  # of salt, head, fields and stored body: the body

DATA_KEY = re.compile(rb"([0-9a-f]{64}) (0|[1-9][0-9]{0,9})")
# 80 bytes in base64url without padding: 107 characters, the last of which carries 4 bits only.
RECIPIENT = re.compile(rb"([0-9a-f]{16}) ([A-Za-z0-9_-]{106}[AEIMQUYcgkosw048])")

_ASSOCIATED = b"hbuf1 aad\n%b\n%b%b"  # uuid, head, fields
_DATA_KEY_LINE = re.compile(rb"(?m)^x-hbuf-data-key: " + DATA_KEY.pattern + rb"\r\n")
_RECIPIENT_LINE = re.compile(rb"(?m)^x-hbuf-recipient: " + RECIPIENT.pattern + rb"\r\n")
MAX_DATA_KEY_LINE_BYTES = len(b"x-hbuf-data-key: \r\n") + 64 + 1 + 10
_NONCE_CHARACTERS = 32  # of the salt's 43: 24 bytes


class DataKeyLine(NamedTuple):
    """Which data key a message is encrypted with, and where its PUT may be."""

    hash: bytes
    put_at: int


class Recipient(NamedTuple):
    """One who can unseal a data key."""

    fingerprint: bytes
    sealed: bytes


def data_key_hash(hasher: Hasher, key: bytes) -> bytes:
    return hasher(b"hbuf1 data key\n" + key).hexdigest().encode()


def encode_data_key_line(key_hash: bytes, put_at: int) -> bytes:
    return b"x-hbuf-data-key: %b %d\r\n" % (key_hash, put_at)


def parse_data_key_line(own: bytes) -> DataKeyLine | None:
    """What the own lines of a message's head say; None where the message is not encrypted."""
    found = _DATA_KEY_LINE.search(own)
    return DataKeyLine(found[1], int(found[2])) if found else None


def is_encrypted(own: bytes) -> bool:
    """Whether the own lines of a message's head name a data key. A producer's name may look like such a line."""
    return own.startswith(b"x-hbuf-data-key: ") or b"\r\nx-hbuf-data-key: " in own


def without_data_key_line(lines: bytes) -> bytes:
    return _DATA_KEY_LINE.sub(b"", lines, count=1)


def encode_recipient(recipient: Recipient) -> bytes:
    encoded = base64.urlsafe_b64encode(recipient.sealed).rstrip(b"=")
    return b"x-hbuf-recipient: %b %b\r\n" % (recipient.fingerprint, encoded)


def parse_recipients(own: bytes) -> list[Recipient]:
    """Those that the own lines of a PUT name."""
    return [Recipient(who, base64.urlsafe_b64decode(sealed + b"=")) for who, sealed in _RECIPIENT_LINE.findall(own)]


def fingerprint_of(public: bytes) -> bytes:
    """How a recipient's line names a public key: as it is named everywhere."""
    return fingerprint(PublicKey("encrypt", public)).encode()


def sealer(key: bytes, uuid: str) -> Seal:
    """What encrypts the bodies of one buffer with one data key."""
    from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as encrypt

    encoded_uuid = uuid.encode()
    decode = base64.urlsafe_b64decode

    def seal(salt: bytes, head: bytes, fields: bytes, body: bytes) -> bytes:
        return encrypt(body, _ASSOCIATED % (encoded_uuid, head, fields), decode(salt[:_NONCE_CHARACTERS]), key)

    return seal


def opener(key: bytes, uuid: str) -> Open:
    """What decrypts the bodies of one buffer with one data key.

    It gives None where key, buffer, salt, head, fields or stored body are not those that a body was sealed with.
    """
    from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as decrypt
    from nacl.exceptions import CryptoError

    encoded_uuid = uuid.encode()
    decode = base64.urlsafe_b64decode

    def open_body(salt: bytes, head: bytes, fields: bytes, stored: bytes) -> bytes | None:
        if len(stored) < TAG_BYTES:
            return None
        associated = _ASSOCIATED % (encoded_uuid, head, fields)
        try:
            return decrypt(stored, associated, decode(salt[:_NONCE_CHARACTERS]), key)
        except CryptoError:
            return None

    return open_body
