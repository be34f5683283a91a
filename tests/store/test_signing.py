"""Signed chains: every batch ends signed, the right key alone signs on, and makes way for the next with each segment.

What crashes and power cuts leave of a key is asked in the tests of crash points and of power loss.
"""

from __future__ import annotations

import base64
import errno
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from hbuf.errors import CannotCreate, DiskFull, NotAllowed, UsageError
from hbuf.format.keys import new_key_file
from hbuf.ops.create import create
from hbuf.ops.set import set_settings
from hbuf.ops.verify import verify
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.keyring import create_key, load_key
from hbuf.store.signing import RecoveryKey, Signer
from hbuf.store.writer import Writer

from .checking import (
    Stored,
    append,
    append_to,
    check_survived,
    check_verifies,
    open_writer,
    read_all,
    refused,
    segment_of,
    stored_of,
)
from .real_command import APPEND, ENVIRONMENT
from .signed_scenarios import KEY, NEW_KEY, PUBLICS, RECOVERY_KEY, SECRETS, holders_of, make_key

PUBLIC = PUBLICS[KEY]
TWICE = range(2)  # what was refused is refused again


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


# What is signed


def test_every_batch_ends_signed_and_no_other_message_is(signed: Path, audit: Path) -> None:
    assert signed_numbers(signed) == []
    with open_writer(signed, key=audit) as writer:
        append(writer, [b"1"])
        append(writer, [b"2", b"3"])
        assert signed_numbers(signed) == [1, 3]
        append(writer, [b"4", b"5"])
        append(writer, [b"6", b"7", b"8"])  # the first of them fills a segment, the others open the next
        assert signed_numbers(signed) == [1, 3, 5, 6, 8]
        append(writer, [b"9", b"10", b"11", b"12"], unit=True)
    assert signed_numbers(signed) == [1, 3, 5, 6, 8, 12]
    check_verifies(signed, 12, signer=PUBLIC)


def test_that_check_of_signatures_refuses_a_changed_one(signed: Path, audit: Path) -> None:
    append_to(signed, b"1", key=audit)
    segment = segment_of(signed, 1)
    text = segment.read_bytes()
    segment.write_bytes(text.replace(b"x-hbuf-seq: 1\r", b"x-hbuf-seq: 2\r"))
    with pytest.raises(BadSignatureError):
        signed_numbers(signed)


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


def test_first_public_key_alone_verifies_all_segments(signed: Path, audit: Path) -> None:
    for n in range(10):
        append_to(signed, b"%d" % n, key=audit)
    check_verifies(signed, 10, signer=PUBLIC)
    for other in (load_key(audit).public, PUBLICS[NEW_KEY]):
        report = verify(str(signed), jobs=1, signer=other)
        assert [fault.kind for fault in report.faults] == ["signatures"]


# Who may sign


def test_writer_without_the_key_is_refused_and_changes_nothing(signed: Path, audit: Path) -> None:
    append_to(signed, b"1", b"2", key=audit)
    with open_writer(signed) as writer:
        for _ in TWICE:
            refused(lambda: append(writer, [b"x"]), NotAllowed, signed.parent)
            refused(writer.roll, NotAllowed, signed.parent)
    refused(lambda: set_settings(str(signed), {"segment_messages": "9"}, timeout_seconds=0), NotAllowed, signed.parent)
    check_survived(signed, stored_of(read_all(signed)), key=audit)


def test_writer_without_the_key_does_not_touch_what_a_crash_left(signed: Path, audit: Path) -> None:
    append_to(signed, b"1", key=audit)
    with segment_of(signed, 1).open("ab") as file:
        file.write(b"POST /b/orders HTTP/1.1\r\nhost: hb")
    refused(lambda: append_to(signed, b"x"), NotAllowed, signed.parent)


def test_key_that_is_not_the_buffers_is_refused_and_changes_nothing(signed: Path, audit: Path) -> None:
    append_to(signed, b"1", key=audit)
    make_key(signed.parent, NEW_KEY)
    with open_writer(signed, key=signed.parent / NEW_KEY) as writer:
        for _ in TWICE:
            refused(lambda: append(writer, [b"x"]), NotAllowed, signed.parent)
    assert load_key(signed.parent / NEW_KEY).buffer is None


def test_key_of_another_buffer_is_refused_and_serves_its_own(signed: Path, audit: Path) -> None:
    make_key(signed.parent, NEW_KEY)
    create(str(signed.parent / "bills"), signer=Signer(signed.parent / NEW_KEY))
    message = refused(lambda: append_to(signed, b"x", key=signed.parent / NEW_KEY), NotAllowed, signed.parent)
    assert "serves another buffer" in message
    refused(lambda: append_to(signed.parent / "bills", b"x", key=audit), NotAllowed, signed.parent)
    append_to(signed.parent / "bills", b"1", key=signed.parent / NEW_KEY)
    append_to(signed, b"1", key=audit)


def test_key_serves_one_buffer_and_a_second_is_not_made_with_it(signed: Path, audit: Path) -> None:
    refused(lambda: create(str(signed.parent / "bills"), signer=Signer(audit)), NotAllowed, signed.parent)
    assert not (signed.parent / "bills").exists()
    refused(lambda: create(str(signed), signer=Signer(audit)), CannotCreate, signed.parent)


@pytest.mark.parametrize("kind", ["recovery", "encrypt"])
def test_key_of_another_kind_is_refused(signed: Path, kind: str) -> None:
    other = signed.parent / "keys" / "other.key"
    create_key(other, new_key_file("encrypt" if kind == "encrypt" else "recovery", bytes(32)))
    refused(lambda: append_to(signed, b"x", key=other), UsageError, signed.parent)


def test_signing_key_on_an_unsigned_buffer_is_refused(signed: Path) -> None:
    make_key(signed.parent, NEW_KEY)
    create(str(signed.parent / "plain"))
    refused(lambda: append_to(signed.parent / "plain", b"x", key=signed.parent / NEW_KEY), UsageError, signed.parent)


def test_older_copy_of_the_key_file_is_refused_once_a_segment_was_opened(signed: Path, audit: Path) -> None:
    copy = signed.parent / "keys" / "copy.key"
    shutil.copy(audit, copy)
    append_to(signed, b"1", key=audit)
    append_to(signed, b"2", key=copy)  # it is the same key still
    append_to(signed, b"3", b"4", key=audit)
    with open_writer(signed, key=copy) as writer:
        for _ in TWICE:
            refused(lambda: append(writer, [b"x"]), NotAllowed, signed.parent)
    shutil.copy(copy, audit)
    with open_writer(signed, key=audit) as writer, pytest.raises(NotAllowed) as caught:
        append(writer, [b"x"])
    assert caught.value.hint is not None
    assert "older copy" in caught.value.hint
    check_verifies(signed, 4, signer=PUBLIC)


# Rotation


def test_each_roll_leaves_one_secret_on_disk_and_it_is_the_newest(signed: Path, audit: Path) -> None:
    secrets = [bytes([n]) * 31 + b"\xfb" for n in range(1, 6)]
    assert holders_of(SECRETS[KEY], signed.parent) == [audit]
    drawn = iter(secrets)
    signer = Signer(audit, secrets=lambda: next(drawn))
    before = [SECRETS[KEY]]
    with Writer(BufferDirectory(signed), timeout_seconds=20, signer=signer) as writer:
        for n, secret in enumerate(secrets):
            append(writer, [b"%d.%d" % (n, i) for i in range(3)])
            assert holders_of(secret, signed.parent) == []
            writer.roll()
            assert holders_of(secret, signed.parent) == [audit]
            assert [holders_of(old, signed.parent) for old in before] == [[]] * len(before)
            before.append(secret)
    assert len(list(signed.glob("segments/*.http"))) == 6
    assert load_key(audit).first == PUBLIC
    check_verifies(signed, 15, signer=PUBLIC)


def test_no_secret_is_in_the_buffer(signed: Path, audit: Path) -> None:
    append_to(signed, *[b"%d" % n for n in range(7)], key=audit)
    assert holders_of(load_key(audit).secret, signed) == []
    assert holders_of(SECRETS[KEY], signed) == []


def test_another_put_in_an_empty_segment_announces_the_same_key(signed: Path, audit: Path) -> None:
    for number in ("4", "5"):
        set_settings(str(signed), {"segment_messages": number}, timeout_seconds=20, signer=Signer(audit))
    announced = re.findall(rb"^x-hbuf-sign-key: (\S+)\r$", segment_of(signed, 1).read_bytes(), re.MULTILINE)
    assert [decoded(each) for each in announced] == [PUBLIC] * 3
    assert load_key(audit).public == PUBLIC
    check_survived(signed, append_to(signed, b"1", key=audit), key=audit)


def test_rotation_that_cannot_be_written_down_stops_before_a_segment_is_opened(
    signed: Path, audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = fsops.rename

    def no_room(source: Path, target: Path) -> None:
        if target == audit:
            raise OSError(errno.ENOSPC, "no room")
        rename(source, target)

    with open_writer(signed, key=audit) as writer:
        stored = append(writer, [b"1", b"2", b"3"])
        with monkeypatch.context() as patch:
            patch.setattr(fsops, "rename", no_room)
            for _ in TWICE:
                refused(lambda: append(writer, [b"4"]), DiskFull, signed.parent)
        stored += append(writer, [b"4"])
    check_survived(signed, stored, key=audit)


def test_two_processes_with_the_same_key_file_take_turns(signed: Path, audit: Path) -> None:
    lines = [[b"process %d line %d" % (n, i) for i in range(25)] for n in range(2)]
    command = [*APPEND, str(signed), "--sign", str(audit), "--fsync", "always", "-v"]
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
    check_survived(signed, stored, key=audit)
    check_verifies(signed, 51, signer=PUBLIC)


# A new line of keys


@pytest.fixture
def recovery(signed: Path) -> RecoveryKey:
    return RecoveryKey(signed.parent / RECOVERY_KEY)


def take_over(buffer: Path, new_key: Path, recovery: RecoveryKey, **changes: str) -> None:
    set_settings(str(buffer), changes, timeout_seconds=20, signer=Signer(new_key), recovery=recovery)


@pytest.mark.parametrize("messages", [0, 2, 3, 4])
def test_recovery_key_starts_a_new_line_and_verify_tells_so(
    signed: Path, audit: Path, recovery: RecoveryKey, messages: int
) -> None:
    if messages:
        append_to(signed, *[b"%d" % n for n in range(messages)], key=audit)
    audit.unlink()
    new = make_key(signed.parent, NEW_KEY)
    take_over(signed, new, recovery)
    append_to(signed, b"of the new line", key=new)
    report = verify(str(signed), jobs=1, signer=PUBLIC)
    assert (report.ok, report.recoveries, report.messages) == (True, 1, messages + 1)
    assert load_key(new).first == PUBLICS[NEW_KEY]
    append_to(signed, *[b"more %d" % n for n in range(4)], key=new)
    check_verifies(signed, messages + 5, signer=PUBLIC)
    assert holders_of(SECRETS[NEW_KEY], signed.parent) == []


def test_old_key_is_refused_once_a_new_line_began(signed: Path, audit: Path, recovery: RecoveryKey) -> None:
    append_to(signed, b"1", key=audit)
    with open_writer(signed, key=audit) as writer:
        append(writer, [b"2"])
        take_over(signed, make_key(signed.parent, NEW_KEY), recovery)
        for _ in TWICE:
            refused(lambda: append(writer, [b"x"]), NotAllowed, signed.parent)


def test_taking_over_again_with_a_key_that_signs_already_does_no_harm(signed: Path, recovery: RecoveryKey) -> None:
    new = make_key(signed.parent, NEW_KEY)
    for n in range(3):
        take_over(signed, new, recovery)
        append_to(signed, b"%d" % n, key=new)
    report = verify(str(signed), jobs=1, signer=PUBLIC)
    assert (report.ok, report.recoveries, report.messages) == (True, 1, 3)


def test_recovery_key_of_another_buffer_is_refused(signed: Path, audit: Path) -> None:
    append_to(signed, b"1", key=audit)
    new, stranger = make_key(signed.parent, NEW_KEY), signed.parent / "keys" / "stranger.key"
    create_key(stranger, new_key_file("recovery", bytes(32)))
    refused(lambda: take_over(signed, new, RecoveryKey(stranger)), NotAllowed, signed.parent)
    create(str(signed.parent / "bills"), signer=Signer(new))
    other = signed.parent / "keys" / "other.key"
    create_key(other, new_key_file("sign", bytes(32)))
    refused(lambda: take_over(signed.parent / "bills", other, RecoveryKey(stranger)), NotAllowed, signed.parent)


def test_key_of_another_buffer_cannot_start_a_new_line(signed: Path, recovery: RecoveryKey) -> None:
    new = make_key(signed.parent, NEW_KEY)
    create(str(signed.parent / "bills"), signer=Signer(new))
    refused(lambda: take_over(signed, new, recovery), NotAllowed, signed.parent)
