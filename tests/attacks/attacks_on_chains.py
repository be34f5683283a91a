"""Changing records and computing every id anew, as anybody can: what is left is a chain that fits."""

from __future__ import annotations

import shutil

from hbuf.format.deletes import Erasure, Retirement, encode_delete
from hbuf.format.keys import public_of_secret
from hbuf.format.record import encode_key
from hbuf.store.keyring import load_key

from .buffers import ENCRYPTED, SIGNED, UNSIGNED, Target, make_target
from .forging import Forged, signs_with
from .registry import attack


@attack("a message is changed and all is chained anew, against a head")
def change_and_chain(target: Target) -> None:
    forged = Forged(target.path)
    forged.message(5).set_body(b"forged" + bytes(16))
    forged.chain()
    forged.write()


@attack("a message is taken out and all is numbered and chained anew, against a head")
def take_out_and_chain(target: Target) -> None:
    forged = Forged(target.path)
    forged.segments[7].remove(forged.message(8))
    forged.message(9).set(b"x-hbuf-seq", b"8")
    forged.chain()
    forged.write()


@attack("a message is added at the end, chained, without the key", unnoticed=UNSIGNED)
def add_at_end(target: Target) -> None:
    """Who can write to the files can append: without signatures that is no fault."""
    forged = Forged(target.path)
    forged.append(b"forged")
    forged.chain()
    forged.write()


@attack("everything is signed anew with a stolen newest key", kinds=[SIGNED])
def sign_with_stolen_key(target: Target) -> None:
    forged = Forged(target.path)
    forged.message(2).set_body(b"forged")
    forged.chain(signs_with(target.secret))
    forged.write()


@attack("the newest segment is signed anew with a stolen newest key, against a head", kinds=[SIGNED])
def sign_newest_with_stolen_key(target: Target) -> None:
    forged = Forged(target.path)
    kept = {id(part): part.sig for first in (1, 4) for part in forged.segments[first]}
    kept[id(forged.segments[7][0])] = forged.segments[7][0].sig
    forged.message(8).set_body(b"forged")
    forged.chain(signs_with(target.secret))
    for part in forged.parts():
        part.sig = kept.get(id(part), part.sig)
    forged.write()


@attack("everything is signed anew by a stranger's key", kinds=[SIGNED])
def sign_as_stranger(target: Target) -> None:
    forged = Forged(target.path)
    secret = load_key(target.keys / "stranger.key").secret
    for segment in forged.segments.values():
        segment[0].set(b"x-hbuf-sign-key", encode_key(public_of_secret("sign", secret)))
    forged.chain(signs_with(secret))
    forged.write()


@attack("all signatures and keys are removed", kinds=[SIGNED])
def remove_signatures(target: Target) -> None:
    forged = Forged(target.path)
    for part in forged.parts():
        part.sig = None
        if part.is_full_put:
            part.head = part.head.replace(b"x-hbuf-sign-key: %b\r\n" % part.value(b"x-hbuf-sign-key"), b"")
    forged.chain()
    forged.write()


@attack("a recovery key is added", kinds=[SIGNED])
def add_recovery_key(target: Target) -> None:
    forged = Forged(target.path)
    for segment in forged.segments.values():
        put = segment[0]
        line = b"x-hbuf-sign-key: %b\r\n" % put.value(b"x-hbuf-sign-key")
        put.head = put.head.replace(line, line + b"x-hbuf-recovery-key: %b\r\n" % encode_key(bytes(32)))
    forged.chain()
    forged.write()


@attack("a message is erased by a DELETE without the key", unnoticed=UNSIGNED)
def forge_erasure(target: Target) -> None:
    """Who can write to the files can erase: without signatures nobody can tell who did."""
    forged = Forged(target.path)
    erasure = forged.message(5).make_gone(forged.hasher)
    forged.append(b"", own=encode_delete(erasure, b"mallory", b"none"), method=b"DELETE")
    forged.chain()
    forged.write()


@attack("a DELETE names another commitment than the message has")
def forge_commitment(target: Target) -> None:
    forged = Forged(target.path)
    erasure = forged.message(5).make_gone(forged.hasher)
    wrong = erasure._replace(commitment=erasure.commitment[::-1])
    forged.append(b"", own=encode_delete(wrong, b"mallory", b"none"), method=b"DELETE")
    forged.chain()
    forged.write()


@attack("a DELETE says that a message was erased, and it is there")
def forge_unerased(target: Target) -> None:
    forged = Forged(target.path)
    part = forged.message(5)
    erasure = Erasure(5, part.id, part.commitment(forged.hasher))
    forged.append(b"", own=encode_delete(erasure, b"mallory", b"none"), method=b"DELETE")
    forged.chain()
    forged.write()


@attack("the oldest segment is retired by a DELETE without the key", unnoticed=UNSIGNED)
def forge_retirement(target: Target) -> None:
    """Who can write to the files can retire: without signatures nobody can tell who did."""
    forged = Forged(target.path)
    last = forged.message(3)
    forged.append(b"", own=encode_delete(Retirement(3, last.id), b"mallory", b"none"), method=b"DELETE")
    forged.chain()
    del forged.segments[1]
    forged.write()


@attack("a DELETE retires up to a record of another id")
def forge_retirement_of_another(target: Target) -> None:
    forged = Forged(target.path)
    forged.append(b"", own=encode_delete(Retirement(3, b"0" * 64), b"mallory", b"none"), method=b"DELETE")
    forged.chain()
    del forged.segments[1]
    forged.write()


@attack("an encrypted message is moved here from another buffer, chained, against a head", kinds=[ENCRYPTED])
def move_ciphertext(target: Target) -> None:
    other = make_target(target.root / "other", ENCRYPTED)
    shutil.copy(other.keys / "reader.key", target.keys / "other.key")
    theirs, forged = Forged(other.path), Forged(target.path)
    put = next(part for part in theirs.segments[7] if part.is_put and not part.is_full_put)
    forged.segments[7] += [put, theirs.message(9)]
    theirs.message(9).set(b"x-hbuf-seq", b"10")
    forged.message(9).set_body(b"x" * 20)
    forged.chain()
    forged.write(indexed=False)
