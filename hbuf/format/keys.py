"""Keys as text: a public key is one line, a key file is a few, and each can be read by people.

    hbuf-sign-1 <public key>                a public key, to hand out

    hbuf secret key, version 1              a key file, for nobody else to read
    kind: sign
    secret: <seed or secret>
    public: <public key>
    buffer: <uuid>                          of the one buffer that a signing key serves, from its first use on
    first: <public key>                     with which the line of keys of that buffer begins
    put: <id>                               of the PUT that announced this key
    next-secret: <seed>                     while the next key takes over
    checksum: <SHA-256 of all lines before, in hex>

Keys have 32 bytes, in base64url without padding. It must not know where keys are kept, and it draws none.
Nothing here says a secret in an error or in a `repr()`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from hbuf.errors import Damaged, NewerFormat, UsageError

Kind = Literal["sign", "encrypt", "recovery"]  # Ed25519, X25519, Ed25519
KINDS: tuple[Kind, ...] = get_args(Kind)
KEY_BYTES = 32
KEY_FILE_VERSION = 1

_PUBLIC = re.compile(r"hbuf-([a-z]+)-([1-9][0-9]{0,8}) ([A-Za-z0-9_-]{43})")
_FIRST_LINE = re.compile(rb"hbuf secret key, version ([1-9][0-9]{0,8})\n")
_LINE = re.compile(r"([a-z-]+): ([!-~]+)\n")
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_RECORD_ID = re.compile(rb"[0-9a-f]{64}")


class PublicKey(NamedTuple):
    """What may be handed out."""

    kind: Kind
    data: bytes


@dataclass(frozen=True, slots=True)
class KeyFile:
    """What a key file holds. `first`, `put` and `next_secret` only where a signing key serves a buffer."""

    kind: Kind
    secret: bytes = field(repr=False)  # an Ed25519 seed, or an X25519 secret
    public: bytes
    buffer: str | None = None  # the uuid of the buffer that it serves
    first: bytes | None = None  # the first public key of that buffer's line
    put: bytes | None = None  # the id, in hex, of the PUT that announced this key
    next_secret: bytes | None = field(default=None, repr=False)


def new_key_file(kind: Kind, secret: bytes) -> KeyFile:
    """A key that serves no buffer yet, of 32 random bytes."""
    return KeyFile(kind, secret, public_of_secret(kind, secret))


def public_of_secret(kind: Kind, secret: bytes) -> bytes:
    _check_kind(kind)
    _check_length("a secret", secret)
    # PyNaCl takes 17 ms to import: only who has a secret waits for it.
    from nacl import bindings

    return (
        bindings.crypto_scalarmult_base(secret) if kind == "encrypt" else bindings.crypto_sign_seed_keypair(secret)[0]
    )


def public_key(key: KeyFile) -> PublicKey:
    """The public key to hand out: that with which the line of keys begins, the same however often it was rotated."""
    return PublicKey(key.kind, key.public if key.first is None else key.first)


def encode_public(key: PublicKey) -> str:
    """One line of text, without its newline."""
    _check_kind(key.kind)
    _check_length("a public key", key.data)
    return f"hbuf-{key.kind}-1 {_encode(key.data)}"


def parse_public(text: str) -> PublicKey:
    """Raises UsageError for anything that encode_public could not have written. One newline behind it may be."""
    found = _PUBLIC.fullmatch(text.removesuffix("\n"))
    if not found:
        raise UsageError(
            "it is not a public key", hint="hbuf-key export NAME prints one: hbuf-sign-1 and 43 characters"
        )
    kind, version, encoded = found.groups()
    if version != "1":
        raise UsageError(f"it is a public key of version {version}, and this version of hbuf reads 1")
    data = _decode(encoded)
    if data is None:
        raise UsageError("it is not a public key: its base64 is not canonical")
    return PublicKey(_check_kind(kind), data)


def looks_public(text: str) -> bool:
    """Whether `text` is meant as a public key, and not as a name or a file: both have no blank there."""
    return re.match(r"hbuf-[a-z]+-[0-9]+ ", text) is not None


def fingerprint(key: PublicKey) -> str:
    """16 hex digits that stand for a key wherever it is named."""
    return hashlib.sha256(b"hbuf1 key\n" + key.kind.encode() + b"\n" + key.data).hexdigest()[:16]


def looks_secret(data: bytes) -> bool:
    """Whether `data` begins as a key file does, whole or not."""
    return _FIRST_LINE.match(data) is not None


def encode_key_file(key: KeyFile) -> bytes:
    _check_key_file(key)
    lines = [f"hbuf secret key, version {KEY_FILE_VERSION}\n", f"kind: {key.kind}\n"]
    lines += [f"secret: {_encode(key.secret)}\n", f"public: {_encode(key.public)}\n"]
    if key.buffer is not None:
        lines.append(f"buffer: {key.buffer}\n")
    if key.first is not None:
        lines.append(f"first: {_encode(key.first)}\n")
    if key.put is not None:
        lines.append(f"put: {key.put.decode()}\n")
    if key.next_secret is not None:
        lines.append(f"next-secret: {_encode(key.next_secret)}\n")
    text = "".join(lines).encode()
    return text + f"checksum: {hashlib.sha256(text).hexdigest()}\n".encode()


def parse_key_file(data: bytes) -> KeyFile:
    """Raises Damaged for anything that encode_key_file could not have written."""
    found = _FIRST_LINE.match(data)
    if not found:
        raise Damaged("it is not a key file")
    if int(found[1]) > KEY_FILE_VERSION:
        version = found[1].decode()
        raise NewerFormat(f"a key file of version {version} is newer than this version of hbuf, which reads 1")
    try:
        key = _parse_lines(data[found.end() :].decode("ascii"))
        # One text for one key: a line too many, twice, elsewhere or changed does not come out the same.
        same = encode_key_file(key) == data
    except (UsageError, ValueError, KeyError):
        same = False
    if not same:
        raise Damaged("the key file is cut off or was changed")
    if public_of_secret(key.kind, key.secret) != key.public:
        raise Damaged("the public key in the key file does not belong to its secret")
    return key


def _parse_lines(text: str) -> KeyFile:
    values = dict(_LINE.findall(text))
    keys = {name: _decode(values[name]) for name in ("secret", "public", "first", "next-secret") if name in values}
    put = values.get("put")
    return KeyFile(
        _check_kind(values["kind"]),
        keys["secret"] or b"",
        keys["public"] or b"",
        values.get("buffer"),
        keys.get("first"),
        None if put is None else put.encode(),
        keys.get("next-secret"),
    )


def _check_key_file(key: KeyFile) -> None:
    _check_kind(key.kind)
    _check_length("a secret", key.secret)
    _check_length("a public key", key.public)
    of_a_line = (key.first, key.put, key.next_secret)
    if key.kind != "sign" and (key.buffer, *of_a_line) != (None,) * 4:
        raise UsageError("only a signing key serves one buffer")
    if key.buffer is None and of_a_line != (None,) * 3:
        raise UsageError("a key that serves no buffer has no line of keys")
    if key.buffer is not None and not _UUID.fullmatch(key.buffer):
        raise UsageError("the buffer of a key is not a uuid")
    if key.put is not None and not _RECORD_ID.fullmatch(key.put):
        raise UsageError("the PUT of a key is not an id")
    if key.first is not None:
        _check_length("a public key", key.first)
    if key.next_secret is not None:
        _check_length("a secret", key.next_secret)


def _check_kind(kind: str) -> Kind:
    for known in KINDS:
        if kind == known:
            return known
    raise UsageError(f"'{kind}' is not a kind of key", hint=f"kinds are {', '.join(KINDS)}")


def _check_length(what: str, data: bytes) -> None:
    if len(data) != KEY_BYTES:
        raise UsageError(f"{what} has {KEY_BYTES} bytes, not {len(data)}")


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(encoded: str) -> bytes | None:
    """32 bytes, or None for what is not exactly what `_encode` writes."""
    try:
        data = base64.urlsafe_b64decode(encoded + "=")
    except ValueError:
        return None
    return data if len(data) == KEY_BYTES and _encode(data) == encoded else None
