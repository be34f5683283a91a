"""Encrypted messages that cannot be opened: each reason has its own error, and the others are read all the same."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt, crypto_box_seal

import hbuf
from hbuf.errors import Damaged, HbufError, NotAllowed, UsageError
from hbuf.format.keys import new_key_file
from hbuf.format.message import Message
from hbuf.ops.filter import EVERYTHING, Filter, compile_pattern
from hbuf.ops.tail import messages
from hbuf.ops.verify import verify
from hbuf.store.data_keys import Identity
from hbuf.store.directory import BufferDirectory
from hbuf.store.keyring import create_key, load_key
from hbuf.store.opener import Opener
from hbuf.store.reader import Reader

from .checking import append_to, check_verifies, segment_of
from .encryption_keys import bodies_and_refusals, create_encrypted, read_bodies
from .rechaining import Part, chained, read_parts, write_parts

BODIES = {1: b"one", 2: b"two", 3: b"three"}
# The records of the buffer: its opening, a data key for message 1, and another for 2 and 3.
OPENING, FIRST_KEY, ONE, SECOND_KEY, TWO, THREE = range(6)


@pytest.fixture
def path(ram_path: Path, alice: Path) -> Path:
    made = ram_path / "orders"
    create_encrypted(made, alice)
    append_to(made, b"one")
    append_to(made, b"two", b"three")
    assert chained(read_parts(made)) == segment_of(made, 1).read_bytes()
    return made


@pytest.fixture
def parts(path: Path) -> list[Part]:
    return read_parts(path)


def opened(path: Path, *identities: Path, wanted: Filter = EVERYTHING) -> tuple[list[Message], list[HbufError]]:
    """What can be read, and why each of the others cannot."""
    errors: list[HbufError] = []
    with Reader(BufferDirectory(path)) as reader:
        opener = Opener(reader, [Identity(identity) for identity in identities], errors.append)
        found = list(messages(reader, reader.first_seq, reader.end_seq, wanted, opener))
        assert reader.damage == {}
    assert not any("\n" in error.message for error in errors)
    return found, errors


def check_closed(path: Path, alice: Path, closed: list[int], reason: str) -> None:
    """These messages are damaged for this reason, the others can be read, and the library raises behind the last."""
    found, errors = opened(path, alice)
    assert {message.seq: message.body for message in found} == {n: BODIES[n] for n in BODIES if n not in closed}
    assert [type(error) for error in errors] == [Damaged] * len(closed)
    for error, seq in zip(errors, closed, strict=True):
        assert error.message.startswith(f"{path}: message {seq} ")
        assert reason in error.message
    bodies, raised = bodies_and_refusals(path, alice)
    assert bodies == {n: BODIES[n] for n in BODIES if n not in closed}
    assert [error.message for error in raised] == [errors[0].message]


# Who cannot read


def test_with_its_identity_all_is_opened_as_if_it_had_been_stored_plain(path: Path, alice: Path) -> None:
    found, errors = opened(path, alice)
    assert ({message.seq: message.body for message in found}, errors) == (BODIES, [])
    stored = list(hbuf.open(path).read())
    assert [message.encrypted for message in stored] == [True] * 3
    assert [message._replace(body=b"", encrypted=True) for message in found] == [
        message._replace(body=b"") for message in stored
    ]


def test_without_an_identity_each_is_not_allowed(path: Path) -> None:
    found, errors = opened(path)
    assert found == []
    assert [(type(error), error.exit_code) for error in errors] == [(NotAllowed, 77)] * 3
    assert errors[1].message == f"{path}: message 2 is encrypted"
    assert "--identity" in str(errors[0].hint)


def test_who_is_no_recipient_is_not_allowed(path: Path, bob: Path) -> None:
    found, errors = opened(path, bob)
    assert found == []
    assert [(type(error), error.exit_code) for error in errors] == [(NotAllowed, 77)] * 3
    assert all("encrypted to others" in error.message for error in errors)
    assert bodies_and_refusals(path, bob)[0] == {}


@pytest.mark.parametrize("kind", ["sign", "recovery"])
def test_key_of_another_kind_is_no_identity(ram_path: Path, kind: str) -> None:
    create_key(ram_path / "other.key", new_key_file("sign" if kind == "sign" else "recovery", bytes(32)))
    with pytest.raises(UsageError):
        Identity(ram_path / "other.key")


# What happened to the data key


def sealed_in(part: Part) -> bytes:
    """The sealed box of a PUT with one recipient, as it is written."""
    return part.head.split(b"x-hbuf-recipient: ")[1].split()[1]


def encoded(data: bytes | bytearray) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def test_sealed_box_that_was_changed_is_a_damaged_data_key(path: Path, parts: list[Part], alice: Path) -> None:
    box = bytearray(base64.urlsafe_b64decode(sealed_in(parts[SECOND_KEY]) + b"="))
    box[50] ^= 1
    parts[SECOND_KEY] = parts[SECOND_KEY].replaced(sealed_in(parts[SECOND_KEY]), encoded(box))
    write_parts(path, parts)
    check_verifies(path, 3)
    check_closed(path, alice, [2, 3], "a data key that is damaged")


def test_another_data_key_in_the_box_is_not_taken(path: Path, parts: list[Part], alice: Path) -> None:
    other = encoded(crypto_box_seal(bytes(32), load_key(alice).public))
    parts[SECOND_KEY] = parts[SECOND_KEY].replaced(sealed_in(parts[SECOND_KEY]), other)
    write_parts(path, parts)
    check_verifies(path, 3)
    check_closed(path, alice, [2, 3], "a data key that is ")


def test_body_that_opens_with_another_key_than_the_one_it_names_is_not_shown(
    path: Path, parts: list[Part], alice: Path
) -> None:
    """The cipher would take it: only the hash in the head says which of two keys, and so which body, was meant."""
    key = b"another key for the same body..."
    other = encoded(crypto_box_seal(key, load_key(alice).public))
    parts[SECOND_KEY] = parts[SECOND_KEY].replaced(sealed_in(parts[SECOND_KEY]), other)
    three = parts[THREE]
    three = three.with_body(bytes(len(b"forged") + 16))
    associated = b"hbuf1 aad\n" + verify(str(path), jobs=1).uuid.encode() + b"\n" + three.head + three.fields
    nonce = base64.urlsafe_b64decode(three.salt + b"=")[:24]
    forged = crypto_aead_xchacha20poly1305_ietf_encrypt(b"forged", associated, nonce, key)
    parts[THREE] = three.with_body(forged)
    write_parts(path, parts)
    check_verifies(path, 3)
    check_closed(path, alice, [2, 3], "a data key that is ")


def test_put_that_is_missing_is_a_data_key_that_is_not_there(path: Path, parts: list[Part], alice: Path) -> None:
    del parts[SECOND_KEY]
    write_parts(path, parts)
    check_verifies(path, 3)
    check_closed(path, alice, [2, 3], "a data key that is not in this buffer")


def test_put_that_cannot_be_read_any_more_is_a_data_key_that_is_not_there(path: Path, alice: Path) -> None:
    segment = segment_of(path, 1)
    name = b"x-hbuf-recipient"
    before, _, behind = segment.read_bytes().rpartition(name)
    segment.write_bytes(before + b"x-hbuf-RECIPIENT" + behind)
    check_closed(path, alice, [2, 3], "a data key that is not in this buffer")


def reworded(path: Path, alice: Path, parts: list[Part], hint: Callable[[int], int]) -> list[Part]:
    """The same messages, as a writer would have encrypted them that gives other offsets for the PUTs."""
    uuid = verify(str(path), jobs=1).uuid.encode()
    made = []
    at, key = 0, b""
    for part in parts:
        if part.brings_key:
            key = Identity(alice).unseal(base64.urlsafe_b64decode(sealed_in(part) + b"=")) or b""
            put_at = at
        elif part.head.startswith(b"POST"):
            seq = int(part.head.split(b"x-hbuf-seq: ")[1].split()[0])
            part = part.replaced(b" %d\r\ncontent-length" % put_at, b" %d\r\ncontent-length" % hint(put_at))
            associated = b"hbuf1 aad\n" + uuid + b"\n" + part.head + part.fields
            nonce = base64.urlsafe_b64decode(part.salt + b"=")[:24]
            part = part.with_body(crypto_aead_xchacha20poly1305_ietf_encrypt(BODIES[seq], associated, nonce, key))
        made.append(part)
        at = len(chained(parts[: len(made)]))
    return made


@pytest.mark.parametrize(
    "hint",
    [lambda at: at, lambda at: at + 1, lambda at: 9_999_999_999, lambda at: 1, lambda at: 0],
    ids=["right", "one too far", "behind the end", "within the opening", "the opening itself"],
)
def test_offset_is_a_hint_and_the_put_is_found_all_the_same(
    path: Path, parts: list[Part], alice: Path, hint: Callable[[int], int]
) -> None:
    write_parts(path, reworded(path, alice, parts, hint))
    check_verifies(path, 3)
    assert read_bodies(path, alice) == list(BODIES.values())


def test_offset_may_be_that_of_another_data_key(path: Path, parts: list[Part], alice: Path) -> None:
    first = len(chained(parts[:FIRST_KEY]))
    second = len(chained(parts[:SECOND_KEY]))
    write_parts(path, reworded(path, alice, parts, lambda at: first if at == second else second))
    check_verifies(path, 3)
    assert read_bodies(path, alice) == list(BODIES.values())


# What happened to the record


def test_body_that_was_changed_is_named_as_changed(path: Path, alice: Path) -> None:
    segment = segment_of(path, 1)
    changed = bytearray(segment.read_bytes())
    changed[-3] ^= 1
    segment.write_bytes(changed)
    check_closed(path, alice, [3], "was changed")


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"x-hbuf-time: 2", b"x-hbuf-time: 3"), (b"POST /b/orders", b"POST /b/0rders")],
    ids=["time", "name"],
)
def test_head_that_was_changed_is_named_as_changed(path: Path, alice: Path, old: bytes, new: bytes) -> None:
    segment = segment_of(path, 1)
    before, _, behind = segment.read_bytes().rpartition(old)
    segment.write_bytes(before + new + behind)
    check_closed(path, alice, [3], "was changed")


@pytest.mark.parametrize(
    "change",
    [
        lambda part: part.with_body(part.body[:-1] + bytes([part.body[-1] ^ 1])),
        lambda part: part.with_body(part.body + b"\0"),
        lambda part: part.replaced(b"POST /b/orders", b"POST /b/others"),
        lambda part: Part(part.head, b"x-hbuf-key: k\r\n", part.salt, part.body),
        lambda part: Part(part.head, part.fields, encoded(bytes(32)), part.body),
    ],
    ids=["body", "longer body", "head", "fields", "salt"],
)
def test_record_that_was_changed_and_chained_again_does_not_open(
    path: Path, parts: list[Part], alice: Path, change: Callable[[Part], Part]
) -> None:
    parts[TWO] = change(parts[TWO])
    write_parts(path, parts)
    check_verifies(path, 3)
    check_closed(path, alice, [2], "was encrypted for another buffer or another place")


@pytest.mark.parametrize("length", [0, 1, 15])
def test_body_shorter_than_any_encrypted_one_does_not_open(
    path: Path, parts: list[Part], alice: Path, length: int
) -> None:
    parts[TWO] = parts[TWO].with_body(parts[TWO].body[:length])
    write_parts(path, parts)
    check_verifies(path, 3)
    check_closed(path, alice, [2], "was encrypted for another buffer or another place")


def test_bodies_that_changed_places_do_not_open(path: Path, parts: list[Part], alice: Path) -> None:
    two, three = parts[TWO], parts[THREE]
    parts[TWO], parts[THREE] = three.replaced(b"-seq: 3\r", b"-seq: 2\r"), two.replaced(b"-seq: 2\r", b"-seq: 3\r")
    write_parts(path, parts)
    check_verifies(path, 3)
    check_closed(path, alice, [2, 3], "was encrypted for another buffer or another place")


def test_messages_that_do_not_open_do_not_make_it_read_the_segment_again_and_again(
    ram_path: Path, alice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ram_path / "orders"
    create_encrypted(path, alice)
    append_to(path, *[b"%d" % n for n in range(100)])
    parts = read_parts(path)
    write_parts(path, [*parts[:2], *(part.with_body(bytes(20)) for part in parts[2:])])
    real_pread, read_bytes = os.pread, 0

    def pread(fd: int, size: int, offset: int) -> bytes:
        nonlocal read_bytes
        data = real_pread(fd, size, offset)
        read_bytes += len(data)
        return data

    monkeypatch.setattr(os, "pread", pread)
    found, errors = opened(path, alice)
    assert (found, len(errors)) == ([], 100)
    assert read_bytes < 10 * segment_of(path, 1).stat().st_size


@pytest.fixture
def foreign(ram_path: Path, alice: Path, path: Path) -> list[Part]:
    """Message 3 of another buffer of the same name and recipient, and the data key of that alone."""
    other = ram_path / "elsewhere" / "orders"
    create_encrypted(other, alice)
    append_to(other, b"1", b"2")
    append_to(other, b"of another buffer")
    assert read_bodies(other, alice) == [b"1", b"2", b"of another buffer"]
    return read_parts(other)[-2:]


def test_record_of_another_buffer_with_its_data_key_does_not_open(
    path: Path, parts: list[Part], alice: Path, foreign: list[Part]
) -> None:
    write_parts(path, [*parts[:THREE], *foreign])
    check_verifies(path, 3)
    check_closed(path, alice, [3], "was encrypted for another buffer or another place")


def test_record_of_another_buffer_without_its_data_key_does_not_open(
    path: Path, parts: list[Part], alice: Path, foreign: list[Part]
) -> None:
    write_parts(path, [*parts[:THREE], foreign[1]])
    check_verifies(path, 3)
    check_closed(path, alice, [3], "a data key that is not in this buffer")


def test_each_of_two_recipients_gets_the_body_that_was_meant_or_none(ram_path: Path, alice: Path, bob: Path) -> None:
    """Somebody gives bob another data key than alice."""
    path = ram_path / "orders"
    create_encrypted(path, alice, bob)
    append_to(path, b"meant for both")
    parts = read_parts(path)
    line = parts[1].head.split(b"x-hbuf-recipient: ")[2].split(b"\r\n")[0]
    parts[1] = parts[1].replaced(line.split()[1], encoded(crypto_box_seal(bytes(32), load_key(bob).public)))
    write_parts(path, parts)
    assert read_bodies(path, alice) == [b"meant for both"]
    found, errors = opened(path, bob)
    assert (found, [type(error) for error in errors]) == ([], [Damaged])


# What needs no key, and what is damaged beside


def test_erased_message_is_given_as_erased(path: Path, alice: Path) -> None:
    segment = segment_of(path, 1)
    before, _, behind = segment.read_bytes().rpartition(b"x-hbuf-salt: ")
    length = len(b"three") + 16
    segment.write_bytes((before + b"x-hbuf-gone: " + behind)[: -length - 2] + bytes(length) + b"\r\n")
    for identities in ([alice], []):
        found, _ = opened(path, *identities)
        assert [(message.seq, message.body, message.erased) for message in found if message.erased] == [(3, b"", True)]
    assert [message.body for message in opened(path, alice)[0]] == [b"one", b"two", b""]


def test_plain_messages_need_no_identity(path: Path, ram_path: Path, alice: Path) -> None:
    """One whose body looks like an encrypted record is plain all the same."""
    plain = ram_path / "plain"
    fake = segment_of(path, 1).read_bytes()
    create_encrypted(plain)
    append_to(plain, fake, b"plain")
    for identities in ([alice], []):
        found, errors = opened(plain, *identities)
        assert ([message.body for message in found], errors) == ([fake, b"plain"], [])


@pytest.mark.parametrize("invert", [True, False])
@pytest.mark.parametrize("in_fields", [True, False])
def test_damage_in_an_opened_chunk_is_named_once_at_its_byte(
    path: Path, alice: Path, invert: bool, in_fields: bool
) -> None:
    segment = segment_of(path, 1)
    content = segment.read_bytes()
    at = content.rindex(b"POST", 0, content.index(b"x-hbuf-seq: 2\r"))
    segment.write_bytes(content.replace(b"x-hbuf-seq: 2\r", b"x-hbuf-sek: 2\r"))
    pattern = compile_pattern("nothing like this" if invert else "e")
    with Reader(BufferDirectory(path)) as reader:
        opener = Opener(reader, [Identity(alice)])
        wanted = Filter(pattern=pattern, in_fields=in_fields, invert=invert)
        found = [message.body for message in messages(reader, 1, 4, wanted, opener)]
        assert found == [b"one", b"three"]
        assert [*reader.damage] == [(1, at)]


def test_segments_behind_one_whose_opening_is_damaged_are_read(ram_path: Path, alice: Path) -> None:
    path = ram_path / "orders"
    create_encrypted(path, alice, segment_messages="2")
    append_to(path, *BODIES.values())
    segment = segment_of(path, 1)
    segment.write_bytes(segment.read_bytes().replace(b"x-hbuf-format: 1", b"x-hbuf-format: x", 1))
    bodies, raised = bodies_and_refusals(path, alice)
    assert bodies == {3: b"three"}
    assert [type(error) for error in raised] == [Damaged]


def test_without_its_index_it_is_read_all_the_same(path: Path, alice: Path) -> None:
    for index in path.glob("segments/*.idx"):
        index.unlink()
    assert read_bodies(path, alice) == list(BODIES.values())
