"""SIGKILL, power cuts and failing disks while a key is written: the old key or the new one is there, and whole.

Secrets that are no longer needed are nowhere afterwards.
"""

import errno
import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hbuf.errors import CannotCreate, DiskFull, HbufError, StorageFailed
from hbuf.format.keys import KeyFile, encode_key_file, new_key_file, parse_key_file
from hbuf.store import fsops
from hbuf.store.keyring import create_key, load_key, save_key

from .checking import Answers
from .dying import Moment, work_until
from .forgetful import Disk, Folder, left_on_disk
from .losses import LOSSES, by_chance

UUID = "2f6d1f0e-7a2b-4c56-9d3e-0123456789ab"
# Each state holds secrets of its own, and they differ in length.
OLD, FRESH, LAST = (new_key_file("sign", bytes([n]) * 32) for n in range(1, 4))
NEW = replace(FRESH, buffer=UUID, first=OLD.public, put=b"0" * 64, next_secret=bytes([9]) * 32)
MOMENTS: list[Moment] = ["before", "in the middle of", "after"]


def key_in(where: Path) -> Path:
    return where / "keys" / "audit.key"


def secrets_of(key: KeyFile) -> set[bytes]:
    """The secrets as they stand in a file."""
    lines = encode_key_file(key).splitlines()
    return {line.partition(b": ")[2] for line in lines if line.startswith((b"secret: ", b"next-secret: "))}


def secrets_in(where: Path, *keys: KeyFile) -> set[bytes]:
    """Which of the keys' secrets are in any file of the directory, however it is called."""
    content = b"".join(file.read_bytes() for file in where.rglob("*") if file.is_file())
    return {secret for key in keys for secret in secrets_of(key) if secret in content}


def saving(where: Path, answers: Answers) -> None:
    save_key(key_in(where), NEW)
    answers.note_done("saved")


def creating(where: Path, answers: Answers) -> None:
    create_key(key_in(where), NEW)
    answers.note_done("made")


# SIGKILL


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_every_call_a_save_leaves_the_old_key_or_the_new_one(ram_path: Path, moment: Moment) -> None:
    prepared = ram_path / "prepared"
    create_key(key_in(prepared), OLD)
    found = []
    for point in itertools.count():
        where = ram_path / f"{moment} call {point}"
        shutil.copytree(prepared, where)
        outcome = work_until(saving, where, point, moment)
        found.append(load_key(key_in(where)))
        assert found[-1] in ([NEW] if "saved" in outcome.answers.done else [OLD, NEW])
        # Whatever was left beside it is gone with the next save, and so are all secrets but the last.
        save_key(key_in(where), LAST)
        assert load_key(key_in(where)) == LAST
        assert os.listdir(key_in(where).parent) == ["audit.key"]
        assert secrets_in(where, OLD, NEW, LAST) == secrets_of(LAST)
        if not outcome.died:
            break
    assert found[0] == OLD
    assert found[-1] == NEW
    assert len(found) > (5 if moment != "in the middle of" else 2)


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_every_call_a_new_key_is_whole_or_absent_and_can_be_made_again(
    ram_path: Path, moment: Moment
) -> None:
    absent = 0
    for point in itertools.count():
        where = ram_path / f"{moment} call {point}"
        where.mkdir()
        outcome = work_until(creating, where, point, moment)
        if key_in(where).exists():
            assert load_key(key_in(where)) == NEW
            with pytest.raises(CannotCreate):
                create_key(key_in(where), LAST)
            assert secrets_in(where, NEW, LAST) == secrets_of(NEW)
        else:
            assert "made" not in outcome.answers.done
            absent += 1
            create_key(key_in(where), LAST)
            assert load_key(key_in(where)) == LAST
            assert secrets_in(where, NEW, LAST) == secrets_of(LAST)
        assert os.listdir(key_in(where).parent) == ["audit.key"]
        if not outcome.died:
            break
    assert 1 <= absent < point + 1


def test_what_a_killed_save_left_is_for_its_owner_alone(ram_path: Path) -> None:
    create_key(key_in(ram_path), OLD)
    assert work_until(saving, ram_path, 0, "after").died
    left = key_in(ram_path).with_name(".new-audit.key")
    assert left.stat().st_mode & 0o777 == 0o600


# Power cuts


def cuts_of(where: Path, work: Callable[[], None]) -> list[Folder]:
    """What is in the cache and on disk before each call that changes files, and at the end."""
    disk = Disk(where)
    cuts: list[Folder] = []
    with pytest.MonkeyPatch.context() as patch:
        disk.watch(patch, lambda: cuts.append(disk.snapshot()))
        work()
    return [*cuts, disk.snapshot()]


def test_power_cut_in_a_save_leaves_the_old_key_or_the_new_one(ram_path: Path) -> None:
    create_key(key_in(ram_path), OLD)
    cuts = cuts_of(ram_path, lambda: save_key(key_in(ram_path), NEW))
    found = []
    for cut in cuts:
        for loss in (*LOSSES, by_chance(1), by_chance(2)):
            left = left_on_disk(cut, loss)
            found.append(parse_key_file(left["keys/audit.key"] or b""))
            assert found[-1] in ([NEW] if cut is cuts[-1] else [OLD, NEW])
            if cut is cuts[-1]:
                assert list(left) == ["keys", "keys/audit.key"]
    assert OLD in found


def test_power_cut_in_a_save_behind_a_killed_one_leaves_the_old_key_or_the_new_one(ram_path: Path) -> None:
    create_key(key_in(ram_path), OLD)
    assert work_until(saving, ram_path, 0, "after").died
    cuts = cuts_of(ram_path, lambda: save_key(key_in(ram_path), LAST))
    for cut in cuts:
        for loss in (*LOSSES, by_chance(1), by_chance(2)):
            left = left_on_disk(cut, loss)
            assert parse_key_file(left["keys/audit.key"] or b"") in ([LAST] if cut is cuts[-1] else [OLD, LAST])
    assert left_on_disk(cuts[-1], LOSSES[0]) == {"keys": None, "keys/audit.key": encode_key_file(LAST)}


def test_power_cut_leaves_a_new_key_whole_or_absent(ram_path: Path) -> None:
    key_in(ram_path).parent.mkdir()
    cuts = cuts_of(ram_path, lambda: create_key(key_in(ram_path), NEW))
    for cut in cuts:
        for loss in (*LOSSES, by_chance(1), by_chance(2)):
            left = left_on_disk(cut, loss)
            if cut is cuts[-1] or "keys/audit.key" in left:
                assert parse_key_file(left["keys/audit.key"] or b"") == NEW


def test_key_directory_that_was_made_is_on_disk_with_all_that_is_above_it(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    sync_directory = fsops.sync_directory

    def note(path: Path) -> None:
        synced.append((path, os.listdir(path)))
        sync_directory(path)

    monkeypatch.setattr(fsops, "sync_directory", note)
    create_key(ram_path / "config" / "keys" / "audit.key", NEW)
    config = ram_path / "config"
    assert synced == [(ram_path, ["config"]), (config, ["keys"]), (config / "keys", ["audit.key"])]


# Disks that fail


def failing(call: Callable[..., Any], code: int, at: int) -> Callable[..., Any]:
    """`call`, failing when it is called for the time `at`, from 0 on."""
    count = -1

    def called(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == at:
            raise OSError(code, os.strerror(code))
        return call(*arguments)

    return called


@pytest.mark.parametrize("name", ["write_all_at", "truncate", "sync_data", "rename"])
@pytest.mark.parametrize(("code", "error"), [(errno.ENOSPC, DiskFull), (errno.EIO, StorageFailed)], ids=["full", "bad"])
def test_save_that_fails_leaves_the_old_key_and_nothing_of_the_new_one(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int, error: type[HbufError]
) -> None:
    create_key(key_in(ram_path), OLD)
    monkeypatch.setattr(fsops, name, failing(getattr(fsops, name), code, 0))
    with pytest.raises(error) as caught:
        save_key(key_in(ram_path), NEW)
    assert str(key_in(ram_path)) in caught.value.message
    assert load_key(key_in(ram_path)) == OLD
    assert os.listdir(key_in(ram_path).parent) == ["audit.key"]
    assert secrets_in(ram_path, OLD, NEW) == secrets_of(OLD)
    save_key(key_in(ram_path), NEW)
    assert load_key(key_in(ram_path)) == NEW


def test_failed_sync_of_the_directory_is_told_and_the_key_is_whole(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_key(key_in(ram_path), OLD)
    monkeypatch.setattr(fsops, "sync_directory", failing(fsops.sync_directory, errno.EIO, 0))
    with pytest.raises(StorageFailed):
        save_key(key_in(ram_path), NEW)
    assert load_key(key_in(ram_path)) == NEW


@pytest.mark.parametrize("name", ["write_all_at", "sync_data"])
def test_save_is_done_although_the_old_secret_could_not_be_overwritten(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    create_key(key_in(ram_path), OLD)
    monkeypatch.setattr(fsops, name, failing(getattr(fsops, name), errno.EIO, 1))
    save_key(key_in(ram_path), NEW)
    assert load_key(key_in(ram_path)) == NEW
    assert secrets_in(ram_path, OLD, NEW) == secrets_of(NEW)


# Secrets that are no longer needed


def test_secret_that_was_replaced_is_overwritten_where_it_lay(tmp_path: Path) -> None:
    create_key(key_in(tmp_path), NEW)
    with key_in(tmp_path).open("rb") as before:
        save_key(key_in(tmp_path), OLD)
        assert before.read() == bytes(len(encode_key_file(NEW)))


def test_secret_that_could_not_be_stored_is_overwritten_where_it_lay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def fail(source: Path, target: Path) -> None:
        held.append(source.open("rb"))
        raise OSError(errno.EIO, "the disk is bad")

    monkeypatch.setattr(fsops, "rename", fail)
    with pytest.raises(StorageFailed):
        create_key(key_in(tmp_path), NEW)
    [file] = held
    with file:
        assert file.read() == bytes(len(encode_key_file(NEW)))


def test_key_with_a_second_name_keeps_its_bytes_there(tmp_path: Path) -> None:
    """A hard link is a backup that somebody made: it is not hbuf's to destroy."""
    create_key(key_in(tmp_path), OLD)
    (tmp_path / "backup.key").hardlink_to(key_in(tmp_path))
    save_key(key_in(tmp_path), NEW)
    assert (tmp_path / "backup.key").read_bytes() == encode_key_file(OLD)
