"""What is signed, and how a signed head is handed out: as a C2SP signed note, which other tools can check.

    text of a head        hbuf/<uuid> LF <number> LF <id in standard base64> LF
    text of a PUT         hbuf/<uuid>/put LF <first number> LF <id in standard base64> LF
    a note                text LF "— " <name> " " base64(<key hash> | <signature>) LF
    key hash              the first 4 bytes of SHA-256(<name> LF 0x01 <public key>)

The name of the key is the text's first line. A signature in a record is the same 64 bytes of Ed25519 in base64url.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import NamedTuple

from hbuf.errors import BadInput

_ED25519 = b"\x01"
_SIGNATURE_START = "\u2014 "
_MAX_NOTE_BYTES = 65_536
_UUID = rb"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_NOTE = re.compile(
    rb"hbuf/(" + _UUID + rb")\n([1-9][0-9]{0,18})\n([A-Za-z0-9+/]{43}=)\n\n"
    + _SIGNATURE_START.encode() + rb"hbuf/(" + _UUID + rb") ([A-Za-z0-9+/]{91}=)\n"
)  # fmt: skip


class Head(NamedTuple):
    """A signed head: this buffer had this message, with this id."""

    uuid: str
    seq: int
    id: bytes  # hex
    key_hash: bytes
    signature: bytes  # 64 bytes


def head_text(uuid: str, seq: int, record_id: bytes) -> bytes:
    return _text(f"hbuf/{uuid}", seq, record_id)


def put_text(uuid: str, first: int, record_id: bytes) -> bytes:
    return _text(f"hbuf/{uuid}/put", first, record_id)


def encode_signature(signature: bytes) -> bytes:
    """64 bytes as a record has them: 86 characters."""
    return base64.urlsafe_b64encode(signature).rstrip(b"=")


def is_signed(public: bytes, text: bytes, encoded_signature: bytes) -> bool:
    """Whether the holder of `public` signed `text`."""
    return verifies(public, text, base64.urlsafe_b64decode(encoded_signature + b"=="))


def verifies(public: bytes, text: bytes, signature: bytes) -> bool:
    from nacl.exceptions import BadSignatureError
    from nacl.signing import VerifyKey

    try:
        VerifyKey(public).verify(text, signature)
    except (BadSignatureError, ValueError):
        return False
    return True


def key_hash(name: str, public: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + public).digest()[:4]


def encode_note(uuid: str, seq: int, record_id: bytes, public: bytes, signature: bytes) -> str:
    """The note of a head that `public` signed with these 64 bytes."""
    name = f"hbuf/{uuid}"
    signed = base64.b64encode(key_hash(name, public) + signature).decode()
    return f"{head_text(uuid, seq, record_id).decode()}\n{_SIGNATURE_START}{name} {signed}\n"


def parse_note(data: bytes) -> Head:
    """Raises BadInput for anything that is not one head with one signature by its buffer's name."""
    if len(data) > _MAX_NOTE_BYTES:
        raise BadInput("the note is too long")
    found = _NOTE.fullmatch(data)
    if not found:
        raise BadInput("it is not a signed note of a head")
    uuid, number, encoded_id, name, encoded = found.groups()
    record_id, signed = base64.b64decode(encoded_id), base64.b64decode(encoded)
    # Base64 is canonical: what decodes to the same bytes is not another way to write it.
    if (base64.b64encode(record_id), base64.b64encode(signed), uuid) != (encoded_id, encoded, name):
        raise BadInput("it is not a signed note of a head")
    return Head(uuid.decode(), int(number), record_id.hex().encode(), signed[:4], signed[4:])


def _text(origin: str, number: int, record_id: bytes) -> bytes:
    return f"{origin}\n{number}\n{base64.b64encode(bytes.fromhex(record_id.decode())).decode()}\n".encode()
