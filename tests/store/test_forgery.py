"""What somebody without the key puts behind the last signature: no honest writer signs over it, and nothing is cut.

Whoever can write to the files can do all this, and can make the index say what the segment says.
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nacl.signing import SigningKey

from hbuf.errors import Damaged, HbufError
from hbuf.format.index import DURABLE_LENGTH_AT, LENGTH, Header, encode_header
from hbuf.format.record import encode_put
from hbuf.format.settings import encode_settings
from hbuf.ops.verify import verify
from hbuf.store.clock import draw_salts
from hbuf.store.segment_file import PlainSegment
from hbuf.store.tail import Opening, read_opening

from .checking import append, append_to, check_survived, open_writer, read_all, refused, segment_of, stored_of
from .signed_scenarios import KEY, NEW_KEY, PUBLICS, SECRETS

if TYPE_CHECKING:
    from conftest import SlipIn

PUBLIC = PUBLICS[KEY]
FORGER = SECRETS[NEW_KEY]
TWICE = range(2)  # what was refused is refused again


def by_the_forger(origin: str) -> Callable[[int, bytes], bytes]:
    """Signs with a key that nobody announced, written after the format's text."""

    def sign(seq: int, record_id: bytes) -> bytes:
        text = f"{origin}\n{seq}\n{base64.b64encode(bytes.fromhex(record_id.decode())).decode()}\n"
        return base64.urlsafe_b64encode(SigningKey(FORGER).sign(text.encode()).signature).rstrip(b"=")

    return sign


def opening_of(path: Path) -> Opening:
    fd = os.open(max(path.glob("segments/*.http")), os.O_RDONLY)
    try:
        return read_opening(PlainSegment(fd), "newest")
    finally:
        os.close(fd)


def forge_put(path: Path, announced: bytes | None) -> None:
    """Another PUT in an empty segment, or one that opens a segment, signed by the forger and announcing `announced`."""
    opening, segment = opening_of(path), max(path.glob("segments/*.http"))
    content = segment.read_bytes()
    last = re.findall(rb"^x-hbuf-id: ([0-9a-f]{64})\r$", content, re.MULTILINE)[-1]
    numbers = re.findall(rb"^x-hbuf-seq: (\d+)\r$", content, re.MULTILINE)
    settings = opening.settings
    first = int(numbers[-1]) + 1 if numbers else opening.first
    put, put_id = encode_put(
        opening.hasher,
        path.name,
        last,
        first,
        time.time_ns() // 1000,
        draw_salts(1)[:43],
        encode_settings(settings),
        hash_name=settings.hash,
        uuid=settings.uuid,
        epoch=opening.epoch,
        sign_key=announced,
        recovery_key=opening.keys.recovery,
        sign=by_the_forger(f"hbuf/{settings.uuid}/put") if announced else None,
    )
    if numbers:
        header = Header(first, len(put), 0, bytes.fromhex(put_id.decode()))
        segment_of(path, first).write_bytes(put)
        segment_of(path, first).with_suffix(".idx").write_bytes(encode_header(header))
        return
    segment.write_bytes(content + put)
    listed = bytearray(segment.with_suffix(".idx").read_bytes())
    LENGTH.pack_into(listed, DURABLE_LENGTH_AT, len(content) + len(put))
    segment.with_suffix(".idx").write_bytes(listed)


@pytest.mark.parametrize("messages", [0, 2])
def test_records_slipped_in_without_a_signature_are_not_signed_over(
    signed: Path, audit: Path, slip_in: SlipIn, messages: int
) -> None:
    if messages:
        append_to(signed, b"1", b"2", key=audit)
    slip_in(signed, b"forged", b"forged too")
    with open_writer(signed, key=audit) as writer:
        for _ in TWICE:
            refused(lambda: append(writer, [b"x"]), Damaged, signed.parent)
            refused(writer.roll, Damaged, signed.parent)
    report = verify(str(signed), jobs=1, signer=PUBLIC)
    assert [fault.kind for fault in report.faults] == ["signatures"]
    assert report.faults[0].seq == messages + 1


def test_records_slipped_in_with_a_strangers_signature_are_not_signed_over(
    signed: Path, audit: Path, slip_in: SlipIn
) -> None:
    append_to(signed, b"1", key=audit)
    slip_in(signed, b"forged", sign=by_the_forger(f"hbuf/{opening_of(signed).settings.uuid}"))
    refused(lambda: append_to(signed, b"x", key=audit), Damaged, signed.parent)
    assert not verify(str(signed), jobs=1).ok


def test_signature_of_another_number_is_not_taken(signed: Path, audit: Path, slip_in: SlipIn) -> None:
    append_to(signed, b"1", key=audit)
    taken = re.findall(rb"^x-hbuf-sig: (\S+)\r$", segment_of(signed, 1).read_bytes(), re.MULTILINE)[-1]
    slip_in(signed, b"forged", sign=lambda seq, record_id: taken)
    refused(lambda: append_to(signed, b"x", key=audit), Damaged, signed.parent)
    assert not verify(str(signed), jobs=1).ok


def test_signature_that_was_changed_stops_the_writer_and_nothing_is_cut(signed: Path, audit: Path) -> None:
    append_to(signed, b"1", b"2", key=audit)
    segment = segment_of(signed, 1)
    text = bytearray(segment.read_bytes())
    at = text.rindex(b"x-hbuf-sig: ") + len(b"x-hbuf-sig: ")
    text[at] = ord("A") if text[at] != ord("A") else ord("B")
    segment.write_bytes(text)
    refused(lambda: append_to(signed, b"x", key=audit), Damaged, signed.parent)


def test_unsigned_records_that_nothing_lists_are_set_aside_and_the_rest_is_kept(
    signed: Path, audit: Path, slip_in: SlipIn
) -> None:
    """A process that died in a batch leaves the same: whole records, and not the last, which is signed."""
    stored = append_to(signed, b"1", key=audit)
    length, index = segment_of(signed, 1).stat().st_size, segment_of(signed, 1).with_suffix(".idx")
    listed = index.read_bytes()
    slip_in(signed, b"forged")
    index.write_bytes(listed)
    slipped = segment_of(signed, 1).read_bytes()[length:]
    assert stored_of(read_all(signed)) == stored
    check_survived(signed, stored, key=audit)
    assert [file.read_bytes() for file in (signed / "quarantine").iterdir()] == [slipped]


ANNOUNCED = {"the same key": PUBLIC, "its own key": PUBLICS[NEW_KEY], "no key": None}


@pytest.mark.parametrize("messages", [0, 2])
@pytest.mark.parametrize("announced", ANNOUNCED)
def test_put_slipped_in_that_the_key_before_did_not_sign_is_damage(
    signed: Path, audit: Path, messages: int, announced: str
) -> None:
    if messages:
        append_to(signed, b"1", b"2", key=audit)
    forge_put(signed, ANNOUNCED[announced])
    with open_writer(signed, key=audit) as writer:
        for _ in TWICE:
            refused(lambda: append(writer, [b"x"]), Damaged, signed.parent)
    report = verify(str(signed), jobs=1, signer=PUBLIC)
    assert "signatures" in {fault.kind for fault in report.faults}


@pytest.mark.parametrize("messages", [0, 2])
@pytest.mark.parametrize("announced", ANNOUNCED)
def test_put_slipped_in_does_not_let_a_writer_without_a_key_in(
    signed: Path, audit: Path, messages: int, announced: str
) -> None:
    if messages:
        append_to(signed, b"1", b"2", key=audit)
    forge_put(signed, ANNOUNCED[announced])
    with open_writer(signed) as writer:
        for _ in TWICE:
            refused(lambda: append(writer, [b"x"]), HbufError, signed.parent)
