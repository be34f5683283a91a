"""Signed chains: every batch ends signed, the right key alone signs on, and makes way for the next with each segment.

What crashes and power cuts leave of a key is asked in the tests of crash points and of power loss.
"""

from __future__ import annotations

import base64
import errno
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from hbuf.errors import CannotCreate, Damaged, DiskFull, HbufError, NotAllowed, UsageError
from hbuf.format.keys import new_key_file
from hbuf.ops.create import create
from hbuf.ops.set import set_settings
from hbuf.ops.verify import verify
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.keyring import create_key, load_key
from hbuf.store.signing import RecoveryKey, Signer
from hbuf.store.writer import Writer

from .checking import Stored, append, append_to, check_survived, check_verifies, open_writer, read_all, stored_of
from .real_command import APPEND, ENVIRONMENT
from .signed_scenarios import KEY, NEW_KEY, PUBLICS, RECOVERY_KEY, SECRETS, holders_of, make_key

if TYPE_CHECKING:
    from conftest import SlipIn

PUBLIC = PUBLICS[KEY]
TWICE = range(2)  # what was refused is refused again


@pytest.fixture
def where(ram_path: Path) -> Path:
    """A directory with the signed buffer `orders`, of three messages a segment, its key and its recovery key."""
    make_key(ram_path, KEY)
    make_key(ram_path, RECOVERY_KEY, "recovery")
    settings = {"segment_messages": "3"}
    create(str(ram_path / "orders"), settings, signer=Signer(ram_path / KEY), recovery_key=PUBLICS[RECOVERY_KEY])
    return ram_path


@pytest.fixture
def path(where: Path) -> Path:
    return where / "orders"


@pytest.fixture
def key(where: Path) -> Path:
    return where / KEY


def content(below: Path) -> dict[str, bytes]:
    return {str(each.relative_to(below)): each.read_bytes() for each in sorted(below.rglob("*")) if each.is_file()}


def segment_of(path: Path, first: int) -> Path:
    return path / "segments" / f"{first:020d}.http"


def decoded(encoded: bytes) -> bytes:
    return base64.urlsafe_b64decode(encoded + b"==")


def signed_numbers(path: Path) -> list[int]:
    """The messages with a signature, each of which is right. Read with expressions, and checked with PyNaCl alone."""
    found = []
    for segment in sorted(path.glob("segments/*.http")):
        text = segment.read_bytes()
        uuid = re.findall(rb"^x-hbuf-buffer: (\S+)\r$", text, re.MULTILINE)[-1]
        announced = VerifyKey(decoded(re.findall(rb"^x-hbuf-sign-key: (\S+)\r$", text, re.MULTILINE)[-1]))
        for seq, section in re.findall(rb"^x-hbuf-seq: (\d+)\r\n(.*?)\r\n\r\n", text, re.MULTILINE | re.DOTALL):
            record_id = base64.b64encode(bytes.fromhex(re.findall(rb"x-hbuf-id: (\S+)", section)[0].decode()))
            for signature in re.findall(rb"x-hbuf-sig: (\S+)", section):
                announced.verify(b"hbuf/%b\n%b\n%b\n" % (uuid, seq, record_id), decoded(signature))
                found.append(int(seq))
    return found


def refused(work: Callable[[], object], error: type[HbufError], below: Path) -> str:
    """Does what must be refused, and must change nothing."""
    before = content(below)
    with pytest.raises(error) as caught:
        work()
    assert content(below) == before
    assert "\n" not in caught.value.message
    return caught.value.message


# What is signed


def test_every_batch_ends_signed_and_no_other_message_is(path: Path, key: Path) -> None:
    assert signed_numbers(path) == []
    with open_writer(path, key=key) as writer:
        append(writer, [b"1"])
        append(writer, [b"2", b"3"])
        assert signed_numbers(path) == [1, 3]
        append(writer, [b"4", b"5"])
        append(writer, [b"6", b"7", b"8"])  # the first of them fills a segment, the others open the next
        assert signed_numbers(path) == [1, 3, 5, 6, 8]
        append(writer, [b"9", b"10", b"11", b"12"], unit=True)
    assert signed_numbers(path) == [1, 3, 5, 6, 8, 12]
    check_verifies(path, 12, signer=PUBLIC)


def test_that_check_of_signatures_refuses_a_changed_one(path: Path, key: Path) -> None:
    append_to(path, b"1", key=key)
    segment = segment_of(path, 1)
    text = segment.read_bytes()
    segment.write_bytes(text.replace(b"x-hbuf-seq: 1\r", b"x-hbuf-seq: 2\r"))
    with pytest.raises(BadSignatureError):
        signed_numbers(path)


@pytest.mark.parametrize("settings", [{"hash": "sha256"}, {"erasable": "false"}, {"segment_bytes": "8KiB"}], ids=str)
def test_whatever_the_settings_all_is_signed_and_verifies(ram_path: Path, settings: dict[str, str]) -> None:
    key = make_key(ram_path, KEY)
    create(str(ram_path / "orders"), settings, signer=Signer(key))
    bodies = [b"%d " % n + b"." * 500 for n in range(40)]
    for body in bodies[::8]:
        append_to(ram_path / "orders", body, key=key)
    append_to(ram_path / "orders", *bodies[1:8], key=key)
    check_verifies(ram_path / "orders", 12, signer=PUBLIC)
    assert signed_numbers(ram_path / "orders")[-1] == 12


def test_first_public_key_alone_verifies_all_segments(path: Path, key: Path) -> None:
    for n in range(10):
        append_to(path, b"%d" % n, key=key)
    check_verifies(path, 10, signer=PUBLIC)
    for other in (load_key(key).public, PUBLICS[NEW_KEY]):
        report = verify(str(path), jobs=1, signer=other)
        assert [fault.kind for fault in report.faults] == ["signatures"]


# Who may sign


def test_writer_without_the_key_is_refused_and_changes_nothing(path: Path, key: Path, where: Path) -> None:
    append_to(path, b"1", b"2", key=key)
    with open_writer(path) as writer:
        for _ in TWICE:
            refused(lambda: append(writer, [b"x"]), NotAllowed, where)
            refused(writer.roll, NotAllowed, where)
    refused(lambda: set_settings(str(path), {"segment_messages": "9"}, timeout_seconds=0), NotAllowed, where)
    check_survived(path, stored_of(read_all(path)), key=key)


def test_writer_without_the_key_does_not_touch_what_a_crash_left(path: Path, key: Path, where: Path) -> None:
    append_to(path, b"1", key=key)
    with segment_of(path, 1).open("ab") as file:
        file.write(b"POST /b/orders HTTP/1.1\r\nhost: hb")
    refused(lambda: append_to(path, b"x"), NotAllowed, where)


def test_key_that_is_not_the_buffers_is_refused_and_changes_nothing(path: Path, key: Path, where: Path) -> None:
    append_to(path, b"1", key=key)
    make_key(where, NEW_KEY)
    with open_writer(path, key=where / NEW_KEY) as writer:
        for _ in TWICE:
            refused(lambda: append(writer, [b"x"]), NotAllowed, where)
    assert load_key(where / NEW_KEY).buffer is None


def test_key_of_another_buffer_is_refused_and_serves_its_own(path: Path, key: Path, where: Path) -> None:
    make_key(where, NEW_KEY)
    create(str(where / "bills"), signer=Signer(where / NEW_KEY))
    message = refused(lambda: append_to(path, b"x", key=where / NEW_KEY), NotAllowed, where)
    assert "serves another buffer" in message
    refused(lambda: append_to(where / "bills", b"x", key=key), NotAllowed, where)
    append_to(where / "bills", b"1", key=where / NEW_KEY)
    append_to(path, b"1", key=key)


def test_key_serves_one_buffer_and_a_second_is_not_made_with_it(path: Path, key: Path, where: Path) -> None:
    refused(lambda: create(str(where / "bills"), signer=Signer(key)), NotAllowed, where)
    assert not (where / "bills").exists()
    refused(lambda: create(str(path), signer=Signer(key)), CannotCreate, where)


@pytest.mark.parametrize("kind", ["recovery", "encrypt"])
def test_key_of_another_kind_is_refused(path: Path, where: Path, kind: str) -> None:
    other = where / "keys" / "other.key"
    create_key(other, new_key_file("encrypt" if kind == "encrypt" else "recovery", bytes(32)))
    refused(lambda: append_to(path, b"x", key=other), UsageError, where)


def test_signing_key_on_an_unsigned_buffer_is_refused(where: Path) -> None:
    make_key(where, NEW_KEY)
    create(str(where / "plain"))
    refused(lambda: append_to(where / "plain", b"x", key=where / NEW_KEY), UsageError, where)


def test_older_copy_of_the_key_file_is_refused_once_a_segment_was_opened(path: Path, key: Path, where: Path) -> None:
    copy = where / "keys" / "copy.key"
    shutil.copy(key, copy)
    append_to(path, b"1", key=key)
    append_to(path, b"2", key=copy)  # it is the same key still
    append_to(path, b"3", b"4", key=key)
    with open_writer(path, key=copy) as writer:
        for _ in TWICE:
            refused(lambda: append(writer, [b"x"]), NotAllowed, where)
    shutil.copy(copy, key)
    with open_writer(path, key=key) as writer, pytest.raises(NotAllowed) as caught:
        append(writer, [b"x"])
    assert caught.value.hint is not None
    assert "older copy" in caught.value.hint
    check_verifies(path, 4, signer=PUBLIC)


# Rotation


def test_each_roll_leaves_one_secret_on_disk_and_it_is_the_newest(path: Path, key: Path, where: Path) -> None:
    secrets = [bytes([n]) * 31 + b"\xfb" for n in range(1, 6)]
    assert holders_of(SECRETS[KEY], where) == [key]
    drawn = iter(secrets)
    signer = Signer(key, secrets=lambda: next(drawn))
    before = [SECRETS[KEY]]
    with Writer(BufferDirectory(path), timeout_seconds=20, signer=signer) as writer:
        for n, secret in enumerate(secrets):
            append(writer, [b"%d.%d" % (n, i) for i in range(3)])
            assert holders_of(secret, where) == []
            writer.roll()
            assert holders_of(secret, where) == [key]
            assert [holders_of(old, where) for old in before] == [[]] * len(before)
            before.append(secret)
    assert len(list(path.glob("segments/*.http"))) == 6
    assert load_key(key).first == PUBLIC
    check_verifies(path, 15, signer=PUBLIC)


def test_no_secret_is_in_the_buffer(path: Path, key: Path) -> None:
    append_to(path, *[b"%d" % n for n in range(7)], key=key)
    assert holders_of(load_key(key).secret, path) == []
    assert holders_of(SECRETS[KEY], path) == []


def test_another_put_in_an_empty_segment_announces_the_same_key(path: Path, key: Path) -> None:
    for number in ("4", "5"):
        set_settings(str(path), {"segment_messages": number}, timeout_seconds=20, signer=Signer(key))
    announced = re.findall(rb"^x-hbuf-sign-key: (\S+)\r$", segment_of(path, 1).read_bytes(), re.MULTILINE)
    assert [decoded(each) for each in announced] == [PUBLIC] * 3
    assert load_key(key).public == PUBLIC
    check_survived(path, append_to(path, b"1", key=key), key=key)


def test_rotation_that_cannot_be_written_down_stops_before_a_segment_is_opened(
    path: Path, key: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = fsops.rename

    def no_room(source: Path, target: Path) -> None:
        if target == key:
            raise OSError(errno.ENOSPC, "no room")
        rename(source, target)

    with open_writer(path, key=key) as writer:
        stored = append(writer, [b"1", b"2", b"3"])
        with monkeypatch.context() as patch:
            patch.setattr(fsops, "rename", no_room)
            for _ in TWICE:
                refused(lambda: append(writer, [b"4"]), DiskFull, where)
        stored += append(writer, [b"4"])
    check_survived(path, stored, key=key)


def test_two_processes_with_the_same_key_file_take_turns(path: Path, key: Path) -> None:
    lines = [[b"process %d line %d" % (n, i) for i in range(25)] for n in range(2)]
    command = [*APPEND, str(path), "--sign", str(key), "--fsync", "always", "-v"]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRONMENT) for _ in lines]
    try:
        for process, each in zip(processes, lines, strict=True):
            assert process.stdin is not None
            process.stdin.write(b"".join(line + b"\n" for line in each))
            process.stdin.close()
        stored: list[Stored] = []
        for process, each in zip(processes, lines, strict=True):
            assert process.wait(timeout=30) == 0
            assert process.stdout is not None
            told = [line.split() for line in process.stdout.read().decode().splitlines()]
            stored += [Stored(int(seq), id_, body) for (seq, id_), body in zip(told, each, strict=True)]
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
    assert len(stored) == 50
    check_survived(path, stored, key=key)
    check_verifies(path, 51, signer=PUBLIC)


# A new line of keys


@pytest.fixture
def recovery(where: Path) -> RecoveryKey:
    return RecoveryKey(where / RECOVERY_KEY)


def take_over(path: Path, key: Path, recovery: RecoveryKey, **changes: str) -> None:
    set_settings(str(path), changes, timeout_seconds=20, signer=Signer(key), recovery=recovery)


@pytest.mark.parametrize("messages", [0, 2, 3, 4])
def test_recovery_key_starts_a_new_line_and_verify_tells_so(
    path: Path, key: Path, where: Path, recovery: RecoveryKey, messages: int
) -> None:
    if messages:
        append_to(path, *[b"%d" % n for n in range(messages)], key=key)
    key.unlink()
    new = make_key(where, NEW_KEY)
    take_over(path, new, recovery)
    append_to(path, b"of the new line", key=new)
    report = verify(str(path), jobs=1, signer=PUBLIC)
    assert (report.ok, report.recoveries, report.messages) == (True, 1, messages + 1)
    assert load_key(new).first == PUBLICS[NEW_KEY]
    append_to(path, *[b"more %d" % n for n in range(4)], key=new)
    check_verifies(path, messages + 5, signer=PUBLIC)
    assert holders_of(SECRETS[NEW_KEY], where) == []


def test_old_key_is_refused_once_a_new_line_began(path: Path, key: Path, where: Path, recovery: RecoveryKey) -> None:
    append_to(path, b"1", key=key)
    with open_writer(path, key=key) as writer:
        append(writer, [b"2"])
        take_over(path, make_key(where, NEW_KEY), recovery)
        for _ in TWICE:
            refused(lambda: append(writer, [b"x"]), NotAllowed, where)


def test_taking_over_again_with_a_key_that_signs_already_does_no_harm(
    path: Path, where: Path, recovery: RecoveryKey
) -> None:
    new = make_key(where, NEW_KEY)
    for n in range(3):
        take_over(path, new, recovery)
        append_to(path, b"%d" % n, key=new)
    report = verify(str(path), jobs=1, signer=PUBLIC)
    assert (report.ok, report.recoveries, report.messages) == (True, 1, 3)


def test_recovery_key_of_another_buffer_is_refused(path: Path, key: Path, where: Path) -> None:
    append_to(path, b"1", key=key)
    new, stranger = make_key(where, NEW_KEY), where / "keys" / "stranger.key"
    create_key(stranger, new_key_file("recovery", bytes(32)))
    refused(lambda: take_over(path, new, RecoveryKey(stranger)), NotAllowed, where)
    create(str(where / "bills"), signer=Signer(new))
    other = where / "keys" / "other.key"
    create_key(other, new_key_file("sign", bytes(32)))
    refused(lambda: take_over(where / "bills", other, RecoveryKey(stranger)), NotAllowed, where)


def test_key_of_another_buffer_cannot_start_a_new_line(path: Path, where: Path, recovery: RecoveryKey) -> None:
    new = make_key(where, NEW_KEY)
    create(str(where / "bills"), signer=Signer(new))
    refused(lambda: take_over(path, new, recovery), NotAllowed, where)


# What others put behind the last signature


def by(secret: bytes, uuid: str) -> Callable[[int, bytes], bytes]:
    """Signs a head with this secret, written after the format's text."""

    def sign(seq: int, record_id: bytes) -> bytes:
        text = f"hbuf/{uuid}\n{seq}\n{base64.b64encode(bytes.fromhex(record_id.decode())).decode()}\n"
        return base64.urlsafe_b64encode(SigningKey(secret).sign(text.encode()).signature).rstrip(b"=")

    return sign


def uuid_of(path: Path) -> str:
    return str(verify(str(path), jobs=1).uuid)


@pytest.mark.parametrize("messages", [0, 2])
def test_records_slipped_in_without_a_signature_are_not_signed_over(
    path: Path, key: Path, where: Path, slip_in: SlipIn, messages: int
) -> None:
    if messages:
        append_to(path, b"1", b"2", key=key)
    slip_in(path, b"forged", b"forged too")
    with open_writer(path, key=key) as writer:
        for _ in TWICE:
            refused(lambda: append(writer, [b"x"]), Damaged, where)
            refused(writer.roll, Damaged, where)
    report = verify(str(path), jobs=1, signer=PUBLIC)
    assert [fault.kind for fault in report.faults] == ["signatures"]
    assert report.faults[0].seq == messages + 1


def test_records_slipped_in_with_a_strangers_signature_are_not_signed_over(
    path: Path, key: Path, where: Path, slip_in: SlipIn
) -> None:
    append_to(path, b"1", key=key)
    slip_in(path, b"forged", sign=by(SECRETS[NEW_KEY], uuid_of(path)))
    refused(lambda: append_to(path, b"x", key=key), Damaged, where)
    assert not verify(str(path), jobs=1).ok


def test_signature_of_another_number_is_not_taken(path: Path, key: Path, where: Path, slip_in: SlipIn) -> None:
    append_to(path, b"1", key=key)
    taken = re.findall(rb"^x-hbuf-sig: (\S+)\r$", segment_of(path, 1).read_bytes(), re.MULTILINE)[-1]
    slip_in(path, b"forged", sign=lambda seq, record_id: taken)
    refused(lambda: append_to(path, b"x", key=key), Damaged, where)
    assert not verify(str(path), jobs=1).ok


def test_signature_that_was_changed_stops_the_writer_and_nothing_is_cut(path: Path, key: Path, where: Path) -> None:
    append_to(path, b"1", b"2", key=key)
    segment = segment_of(path, 1)
    text = bytearray(segment.read_bytes())
    at = text.rindex(b"x-hbuf-sig: ") + len(b"x-hbuf-sig: ")
    text[at] = ord("A") if text[at] != ord("A") else ord("B")
    segment.write_bytes(text)
    refused(lambda: append_to(path, b"x", key=key), Damaged, where)


def test_unsigned_records_that_nothing_lists_are_set_aside_and_the_rest_is_kept(
    path: Path, key: Path, slip_in: SlipIn
) -> None:
    """A process that died in a batch leaves the same: whole records, and not the last, which is signed."""
    stored = append_to(path, b"1", key=key)
    length, index = segment_of(path, 1).stat().st_size, segment_of(path, 1).with_suffix(".idx")
    listed = index.read_bytes()
    slip_in(path, b"forged")
    index.write_bytes(listed)
    slipped = segment_of(path, 1).read_bytes()[length:]
    assert stored_of(read_all(path)) == stored
    check_survived(path, stored, key=key)
    assert [file.read_bytes() for file in (path / "quarantine").iterdir()] == [slipped]
