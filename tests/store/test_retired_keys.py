"""keys.http and hbuf-verify: the line of keys goes on across what was retired, and whoever tampers is named."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from hbuf.errors import Damaged
from hbuf.format.deletes import Retirement, encode_delete
from hbuf.ops.report import Report
from hbuf.ops.set import set_settings
from hbuf.ops.verify import verify
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import opened_index
from hbuf.store.writer import Writer

from .retiring import Retiring

FIRST_KEY = bytes(SigningKey(b"k" * 32).verify_key)


@pytest.fixture
def signed(tmp_path: Path) -> Retiring:
    """Several runs retired several segments each; one of them opened with two PUTs."""
    buffer = Retiring(tmp_path / "ledger", key=tmp_path / "k.key", retention_messages="3")
    for run in range(3):
        buffer.append(6)
        set_settings(str(buffer.path), {"segment_bytes": f"{5000 + run}"}, timeout_seconds=20, signer=buffer.signer())
        set_settings(str(buffer.path), {"segment_bytes": f"{6000 + run}"}, timeout_seconds=20, signer=buffer.signer())
        buffer.retire()
    return buffer


@pytest.fixture
def plain(tmp_path: Path) -> Retiring:
    buffer = Retiring(tmp_path / "orders", retention_messages="3")
    buffer.append(9)
    buffer.retire()
    return buffer


def report_of(buffer: Retiring, signer: bytes | None = None) -> Report:
    return verify(str(buffer.path), jobs=1, signer=signer)


def puts(buffer: Retiring) -> list[bytes]:
    return [b"PUT /b/" + part for part in (buffer.path / "keys.http").read_bytes().split(b"PUT /b/")[1:]]


def test_first_key_verifies_all_however_often_segments_were_retired(signed: Retiring) -> None:
    report = report_of(signed, FIRST_KEY)
    assert (report.ok, report.notes) == (True, [])
    assert report.verdicts["completeness"]["retired"] == signed.firsts[0] - 1 > 6
    kept = (signed.path / "keys.http").stat().st_size
    assert report.bytes_checked == kept + sum(signed.segment(first).stat().st_size for first in signed.firsts)
    # Every PUT is signed: those of keys.http, those of the segments, and the last message of each.
    firsts = [int(put.split(b"x-hbuf-first: ")[1].split(b"\r\n")[0]) for put in puts(signed)]
    assert firsts == sorted(firsts)
    assert len(set(firsts)) < len(firsts), "no segment opened with two PUTs"
    assert report.signatures > len(firsts)


def test_another_first_key_is_named(signed: Retiring) -> None:
    report = report_of(signed, b"x" * 32)
    assert [fault.reason for fault in report.faults] == ["it is signed by another key"]


Tamper = Callable[[list[bytes]], list[bytes]]


def swap_first_two(parts: list[bytes]) -> list[bytes]:
    return [parts[1], parts[0], *parts[2:]]


TAMPERED: dict[str, Tamper] = {
    "all dropped": lambda parts: [],
    "the first dropped": lambda parts: parts[1:],
    "one dropped": lambda parts: [*parts[:2], *parts[3:]],
    "the last dropped": lambda parts: parts[:-1],
    "two swapped": swap_first_two,
    "one twice": lambda parts: [*parts[:2], *parts[1:]],
    "a setting changed": lambda parts: [parts[0], parts[1].replace(b'"segment_messages": 2', b'"segment_messages": 3')],
    "a key changed": lambda parts: [re.sub(rb"sign-key: .....", b"sign-key: AAAAA", parts[0]), *parts[1:]],
    "a signature changed": lambda parts: [re.sub(rb"hbuf-sig: .....", b"hbuf-sig: AAAAA", parts[0]), *parts[1:]],
    "a signature dropped": lambda parts: [re.sub(rb"x-hbuf-sig: [^\r]*\r\n", b"", parts[0]), *parts[1:]],
    "a cut end": lambda parts: [*parts[:-1], parts[-1][:-7]],
    "bytes behind": lambda parts: [*parts, b"more"],
    "a message behind": lambda parts: [*parts, b"POST /b/ledger HTTP/1.1\r\nhost: hbuf\r\n"],
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED)
def test_tampered_keys_of_a_signed_buffer_are_a_fault_of_signatures(signed: Retiring, tamper: Tamper) -> None:
    (signed.path / "keys.http").write_bytes(b"".join(tamper(puts(signed))))
    report = report_of(signed)
    assert not report.ok
    assert "signatures" in {fault.kind for fault in report.faults}
    assert {fault.verdict for fault in report.faults} == {"tampered"}
    assert not report_of(signed, FIRST_KEY).ok


def test_missing_keys_of_a_signed_buffer_are_a_fault_and_nothing_more_is_retired(signed: Retiring) -> None:
    (signed.path / "keys.http").unlink()
    [fault] = report_of(signed, FIRST_KEY).faults
    assert (fault.kind, fault.file) == ("signatures", "keys.http")
    signed.append(6)
    before = signed.firsts
    with pytest.raises(Damaged, match=r"keys\.http is missing"):
        signed.retire()
    assert signed.firsts == before


def test_keys_of_another_buffer_are_refused(signed: Retiring, tmp_path: Path) -> None:
    other = Retiring(tmp_path / "other", key=tmp_path / "other.key", retention_messages="3")
    other.append(9)
    other.retire()
    shutil.copy(other.path / "keys.http", signed.path / "keys.http")
    kinds = {fault.kind for fault in report_of(signed).faults}
    assert {"signatures", "settings"} <= kinds


def test_damaged_keys_of_an_unsigned_buffer_are_named_and_missing_ones_are_not_needed(plain: Retiring) -> None:
    keys = plain.path / "keys.http"
    assert report_of(plain).ok
    content = keys.read_bytes()
    keys.write_bytes(content.replace(b'"segment_messages": 2', b'"segment_messages": 3', 1))
    assert {fault.kind for fault in report_of(plain).faults} == {"chain"}
    keys.write_bytes(content[:-1])
    assert {fault.kind for fault in report_of(plain).faults} == {"bytes"}
    plain.append(4)
    with pytest.raises(Damaged, match=r"keys\.http: byte"):
        plain.retire()
    keys.unlink()
    assert report_of(plain).ok
    plain.retire()
    assert report_of(plain).ok


@pytest.mark.parametrize("is_signed", [False, True])
def test_segments_that_were_deleted_without_a_delete_are_named(tmp_path: Path, is_signed: bool) -> None:
    key = tmp_path / "k.key" if is_signed else None
    buffer = Retiring(tmp_path / "orders", key=key, retention_messages="3")
    buffer.append(12)
    buffer.retire()
    assert buffer.firsts[0] == 9
    buffer.append(4)
    buffer.segment(9).unlink()
    report = report_of(buffer)
    reasons = [fault.reason for fault in report.faults if fault.verdict == "incomplete"]
    assert "the buffer begins with message 11, and nothing says why" in reasons


def test_delete_with_a_wrong_id_is_named(plain: Retiring) -> None:
    with plain.writer() as writer, writer.locked():
        writer.append_deletes([encode_delete(Retirement(plain.firsts[0] - 1, b"f" * 64), b"me", b"none")])
    [fault] = report_of(plain).faults
    assert fault.reason == f"what was retired does not end with message {plain.firsts[0] - 1} as the DELETE names it"


def test_forged_retirement_in_a_signed_buffer_is_named(tmp_path: Path) -> None:
    """Somebody without the key writes a DELETE with a right id, and removes what it names."""
    buffer = Retiring(tmp_path / "ledger", key=tmp_path / "k.key", retention_messages="3")
    buffer.append(9)
    prev = buffer.segment(5).read_bytes().split(b"x-hbuf-prev: ")[1][:64]
    unsigned = tmp_path / "copy"
    shutil.copytree(buffer.path, unsigned)
    with pytest.MonkeyPatch.context() as patch:
        # What such a one has is a program that does not ask for the key.
        patch.setattr("hbuf.store.signed_writing.Signing.admit", lambda self, opening: None)
        with Writer(BufferDirectory(unsigned)) as writer, writer.locked():
            writer.append_deletes([encode_delete(Retirement(4, prev), b"me", b"retention_messages 3")])
    for first in (1, 3):
        for suffix in (".http", ".idx", ".tags"):
            (unsigned / "segments" / f"{first:020d}{suffix}").unlink()
    (unsigned / "keys.http").write_bytes(b"".join(_opening(buffer.segment(first)) for first in (1, 3)))
    report = verify(str(unsigned), jobs=1, signer=FIRST_KEY)
    assert [(fault.kind, fault.reason) for fault in report.faults] == [
        ("signatures", "no signature covers messages 10 to 10")
    ]


def _opening(segment: Path) -> bytes:
    with opened_index(segment.with_suffix(".idx"), int(segment.stem)) as listed:
        assert listed is not None
        return segment.read_bytes()[: listed.entry(0).offset]


def test_writer_finds_the_key_before_an_empty_newest_segment_among_the_retired_ones(tmp_path: Path) -> None:
    """As somebody may leave it who removes segments by hand: hbuf-retire writes into the newest segment first."""
    buffer = Retiring(tmp_path / "ledger", key=tmp_path / "k.key")
    buffer.append(2)
    with buffer.writer() as writer:
        writer.roll()
    put = _opening(buffer.segment(1))
    for suffix in (".http", ".idx", ".tags"):
        buffer.segment(1).with_suffix(suffix).unlink(missing_ok=True)
    with pytest.raises(Damaged, match=r"keys\.http is missing"):
        buffer.append(1)
    (buffer.path / "keys.http").write_bytes(put)
    buffer.append(1)
    assert buffer.seqs == [3]
    assert {fault.kind for fault in report_of(buffer, FIRST_KEY).faults} == {"completeness"}


def test_interrupted_retirement_with_other_keys_than_the_segments_have_is_named(signed: Retiring) -> None:
    own = _opening(signed.segment(signed.firsts[0]))
    with (signed.path / "keys.http").open("ab") as keys:
        keys.write(own)
    assert report_of(signed, FIRST_KEY).ok  # as a crash leaves it
    with (signed.path / "keys.http").open("ab") as keys:
        keys.write(own)
    assert {fault.kind for fault in report_of(signed).faults} == {"signatures"}


def test_verifying_starts_again_when_segments_are_retired_meanwhile(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="3")
    buffer.append(9)
    calls = 0

    def progress(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            buffer.retire()

    report = verify(str(buffer.path), jobs=1, progress=progress)
    assert report.ok
    assert report.verdicts["completeness"]["retired"] == 6
    assert report.bytes_checked == (buffer.path / "keys.http").stat().st_size + sum(
        buffer.segment(first).stat().st_size for first in buffer.firsts
    )
