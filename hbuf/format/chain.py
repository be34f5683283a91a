"""What ties records together: the commitment to a body, and the id over it and the head.

    commit = H("hbuf1 body " | salt | "\\n" | fields | stored body)
    id     = H("hbuf1 id\\n" | prev id | "\\n" | commit | "\\n" | head)

Ids and commitments are lower-case hex in ASCII bytes, the salt is its 43 characters (or nothing, where a
buffer is not erasable). The id covers salt, fields and body only through the commitment: that is what lets a
message be forgotten later with the chain intact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

from hbuf.errors import UsageError

ZERO_ID = b"0" * 64
HASH_NAMES = ("blake3", "sha256")

# The two texts that are hashed. Loops over many records fill them in themselves: a call costs as much as a hash.
COMMITTED = b"hbuf1 body %b\n%b%b"  # salt, fields, body
IDENTIFIED = b"hbuf1 id\n%b\n%b\n%b"  # id before, commitment, head

# Above this a body is hashed where it lies instead of being copied behind its prefix.
COPY_LIMIT_BYTES = 65_536


class Hash(Protocol):
    def update(self, data: bytes | memoryview, /) -> object: ...
    def hexdigest(self) -> str: ...
    def digest(self) -> bytes: ...


Hasher = Callable[[bytes], Hash]


def hasher_named(name: str) -> Hasher:
    """The hash function of a buffer. blake3 is imported only where a buffer uses it."""
    if name == "blake3":
        from blake3 import blake3

        return blake3
    if name == "sha256":
        return hashlib.sha256
    raise UsageError(f"'{name}' is not a hash that hbuf knows", hint=f"it knows {' and '.join(HASH_NAMES)}")


def commitment(hasher: Hasher, salt: bytes, fields: bytes, body: bytes | memoryview) -> bytes:
    state = hasher(COMMITTED % (salt, fields, b""))
    state.update(body)
    return state.hexdigest().encode()


def record_id(hasher: Hasher, prev: bytes, commit: bytes, head: bytes) -> bytes:
    return hasher(IDENTIFIED % (prev, commit, head)).hexdigest().encode()
