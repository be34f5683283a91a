"""Signed notes: what hbuf writes any reader of C2SP's takes, and hbuf takes nothing that it could not have written."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.bindings import crypto_sign, crypto_sign_seed_keypair
from nacl.exceptions import BadSignatureError

from hbuf.errors import BadInput
from hbuf.format.note import (
    Head,
    encode_note,
    encode_signature,
    head_text,
    is_signed,
    key_hash,
    parse_note,
    put_text,
    verifies,
)

if TYPE_CHECKING:
    from conftest import OpenNote

UUID = "2f6d1f0e-7a2b-4c56-9d3e-0123456789ab"
NAME = f"hbuf/{UUID}"
ID = b"fb" * 32  # its base64 has characters that base64url does not
ENCODED_ID = base64.b64encode(b"\xfb" * 32).decode()
DASH = "\u2014"

# RFC 8032 section 7.1, tests 1 and 2.
SECRET = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
OTHER_SECRET = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
OTHER_PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")


def signature(text: bytes, secret: bytes = SECRET) -> bytes:
    return crypto_sign(text, crypto_sign_seed_keypair(secret)[1])[:64]


def text_of(number: str = "42", encoded_id: str = ENCODED_ID, origin: str = NAME) -> str:
    return f"{origin}\n{number}\n{encoded_id}\n"


def signature_line(text: str, name: str = NAME, secret: bytes = SECRET, public: bytes = PUBLIC) -> str:
    """Written after C2SP's text, as the readers are."""
    hashed = hashlib.sha256(name.encode() + b"\n\x01" + public).digest()[:4]
    return f"{DASH} {name} {base64.b64encode(hashed + signature(text.encode(), secret)).decode()}\n"


def note_of(text: str) -> str:
    return f"{text}\n{signature_line(text)}"


NOTE = note_of(text_of())


def is_refused(note: str | bytes) -> bool:
    try:
        parse_note(note.encode() if isinstance(note, str) else note)
    except BadInput as error:
        return error.exit_code == 65 and "\n" not in error.message
    return False


def test_note_is_exactly_what_the_specification_makes_of_the_text() -> None:
    signed = signature(head_text(UUID, 42, ID))
    assert encode_note(UUID, 42, ID, PUBLIC, signed) == NOTE
    assert parse_note(NOTE.encode()) == Head(UUID, 42, ID, key_hash(NAME, PUBLIC), signed)


@settings(max_examples=50, deadline=None)
@given(st.uuids(), st.integers(1, 10**19 - 1), st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_note_comes_back_as_it_was(uuid: object, seq: int, record_id: bytes, secret: bytes) -> None:
    name, hexed = str(uuid), record_id.hex().encode()
    signed = signature(head_text(name, seq, hexed), secret)
    public = crypto_sign_seed_keypair(secret)[0]
    note = encode_note(name, seq, hexed, public, signed)
    assert parse_note(note.encode()) == Head(name, seq, hexed, key_hash(f"hbuf/{name}", public), signed)


def test_note_is_read_by_a_reader_that_knows_nothing_of_hbuf(open_note: OpenNote) -> None:
    signed = signature(head_text(UUID, 42, ID))
    note = encode_note(UUID, 42, ID, PUBLIC, signed).encode()
    assert open_note(note, NAME, PUBLIC) == [NAME, "42", ENCODED_ID]


def test_that_reader_refuses_another_key_another_name_and_a_changed_text(open_note: OpenNote) -> None:
    """A checker is tested with what it must reject."""
    note = NOTE.encode()
    with pytest.raises(ValueError, match="not enough values"):
        open_note(note, NAME, OTHER_PUBLIC)
    with pytest.raises(ValueError, match="not enough values"):
        open_note(note, f"{NAME}x", PUBLIC)
    with pytest.raises(BadSignatureError):
        open_note(note.replace(b"\n42\n", b"\n43\n"), NAME, PUBLIC)
    with pytest.raises(AssertionError):
        open_note(note[:-1], NAME, PUBLIC)


def test_text_of_a_head_and_of_a_put_can_never_be_the_same() -> None:
    assert head_text(UUID, 7, ID) == text_of("7").encode()
    assert put_text(UUID, 7, ID) == text_of("7", origin=f"{NAME}/put").encode()
    assert is_refused(note_of(put_text(UUID, 7, ID).decode()))


def test_signature_counts_only_for_its_text_its_key_and_all_of_its_bytes() -> None:
    text = head_text(UUID, 42, ID)
    signed = signature(text)
    assert verifies(PUBLIC, text, signed)
    assert is_signed(PUBLIC, text, encode_signature(signed))
    assert len(encode_signature(signed)) == 86
    assert not verifies(OTHER_PUBLIC, text, signed)
    assert not verifies(PUBLIC, head_text(UUID, 43, ID), signed)
    for at in range(64):
        changed = bytearray(signed)
        changed[at] ^= 1
        assert not verifies(PUBLIC, text, bytes(changed)), f"byte {at}"
    for length in (0, 63, 65):
        assert not verifies(PUBLIC, text, (signed + b"\0")[:length])
    assert not verifies(PUBLIC[:31], text, signed)


def test_note_cut_at_any_byte_is_refused() -> None:
    note = NOTE.encode()
    assert not is_refused(note)
    assert [length for length in range(len(note)) if not is_refused(note[:length])] == []


def test_note_with_a_byte_more_anywhere_is_refused() -> None:
    note = NOTE.encode()
    for extra in (b"x", b" ", b"\n", b"\r", b"\0", b"="):
        taken = [at for at in range(len(note) + 1) if not is_refused(note[:at] + extra + note[at:])]
        assert taken == [], f"{extra!r} was taken"


@pytest.mark.parametrize(
    "number", ["", "0", "00", "042", "+42", "-1", "4 2", " 42", "4_2", "4.0", "\u0664\u0662", "9" * 20, "9" * 5000]
)
def test_number_that_is_not_a_plain_one_from_1_on_is_refused(number: str) -> None:
    assert is_refused(note_of(text_of(number)))


@pytest.mark.parametrize(
    "encoded_id",
    [
        "",
        "QUJD",  # canonical, and no id has 3 bytes
        base64.b64encode(bytes(31)).decode(),
        base64.b64encode(bytes(33)).decode(),
        base64.urlsafe_b64encode(b"\xfb" * 32).decode(),
        ENCODED_ID.rstrip("="),
        ENCODED_ID[:-2] + "t=",  # bits behind the last byte
        "fb" * 32,
    ],
)
def test_id_that_is_not_32_bytes_in_canonical_base64_is_refused(encoded_id: str) -> None:
    assert is_refused(note_of(text_of(encoded_id=encoded_id)))


@pytest.mark.parametrize(
    "origin", ["", "hbuf", "hbuf/", UUID, f"HBUF/{UUID}", f"hbuf/{UUID.upper()}", "hbuf/orders", f"hbuf/{UUID}/x"]
)
def test_origin_that_is_not_a_buffer_is_refused(origin: str) -> None:
    text = text_of(origin=origin)
    assert is_refused(f"{text}\n{signature_line(text, origin)}")


def test_signature_with_another_name_is_refused() -> None:
    text = text_of()
    other = "hbuf/00000000-0000-4000-8000-000000000000"
    for name in (other, UUID, "", "example.com/witness"):
        assert is_refused(f"{text}\n{signature_line(text, name)}")


def test_two_signatures_none_and_data_behind_are_refused() -> None:
    text = text_of()
    witness = signature_line(text, "example.com/witness", OTHER_SECRET, OTHER_PUBLIC)
    for signatures in ("", signature_line(text) * 2, signature_line(text) + witness, witness + signature_line(text)):
        assert is_refused(f"{text}\n{signatures}")
    for behind in ("\n", "more\n", NOTE, "\0"):
        assert is_refused(NOTE + behind)
    assert is_refused(f"{text}one line more\n\n{signature_line(text)}")


def test_signature_line_of_another_form_is_refused() -> None:
    text = text_of()
    dash, name, encoded = signature_line(text).removesuffix("\n").split(" ")
    raw = base64.b64decode(encoded)
    assert raw[-1:] != b"\xff"
    lines = [
        f"- {name} {encoded}",
        f"{dash}{name} {encoded}",
        f"{name} {encoded}",
        f"{dash} {encoded}",
        f"{dash} {name} {encoded} more",
        f"{dash} {name} {encoded.rstrip('=')}",
        f"{dash} {name} {base64.b64encode(raw[:-1]).decode()}",
        f"{dash} {name} {base64.b64encode(raw + b'x').decode()}",
        f"{dash} {name} {base64.b64encode(raw[4:]).decode()}",
        f"{dash} {name} ",
        f"{dash} {name} {encoded[:10]} {encoded[10:]}",
        f"{dash} {name} {encoded[:-2] + chr(ord(encoded[-2]) + 1)}=",  # bits behind the last byte
    ]
    for line in lines:
        assert is_refused(f"{text}\n{line}\n"), line


def test_bytes_that_are_no_text_and_too_many_of_them_are_refused() -> None:
    for note in (b"", b"\xff", NOTE.encode().replace("\u2014".encode(), b"\xe2\x80"), NOTE.encode("utf-16")):
        assert is_refused(note)
    assert is_refused(NOTE.encode() + b"x" * 70_000)
