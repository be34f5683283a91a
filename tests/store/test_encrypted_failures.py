"""Encrypted appends that fail: no message is ever stored with a data key that is not stored too.

Such a message would be answered for and would verify, and nobody could read it.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hbuf.errors import DiskFull, StorageFailed
from hbuf.store import fsops
from hbuf.store.clock import draw_salts
from hbuf.store.directory import BufferDirectory
from hbuf.store.writer import Writer

from .checking import append, append_to, check_survived, check_verifies, open_writer
from .encryption_keys import create_encrypted, read_bodies
from .scenarios import buffer_in, index_file, segment_file


@pytest.fixture
def path(ram_path: Path, alice: Path) -> Path:
    """An empty buffer that is encrypted to alice."""
    create_encrypted(ram_path / "orders", alice)
    return ram_path / "orders"


@pytest.mark.parametrize(("index", "step"), [(True, 1), (False, 9)], ids=["index behind", "index missing"])
def test_last_batch_cut_at_every_byte_is_set_aside_with_its_data_key(
    ram_path: Path, alice: Path, index: bool, step: int
) -> None:
    create_encrypted(buffer_in(ram_path), alice)
    stored = append_to(buffer_in(ram_path), b"listed")
    listed, durable = index_file(ram_path).read_bytes(), segment_file(ram_path).stat().st_size
    append_to(buffer_in(ram_path), b"cut off")
    whole = segment_file(ram_path).read_bytes()
    for cut in range(durable, len(whole), step):
        where = ram_path / "cut"
        shutil.copytree(buffer_in(ram_path), buffer_in(where))
        segment_file(where).write_bytes(whole[:cut])
        index_file(where).write_bytes(listed)
        if not index:
            index_file(where).unlink()
        check_survived(buffer_in(where), stored, identity=alice)
        kept = [file.read_bytes() for file in (buffer_in(where)).glob("quarantine/*")]
        assert kept == ([whole[durable:cut]] if cut > durable else [])
        shutil.rmtree(where)


def failing_once(code: int) -> Callable[[int], None]:
    """`sync_data`, failing on a segment the first time."""
    failed = False
    real_sync = fsops.sync_data

    def sync_data(fd: int) -> None:
        nonlocal failed
        if not failed and os.readlink(f"/proc/self/fd/{fd}").endswith(".http"):
            failed = True
            raise OSError(code, os.strerror(code))
        real_sync(fd)

    return sync_data


def test_data_key_whose_put_was_cut_is_not_used_again(path: Path, alice: Path, drawn: list[bytes]) -> None:
    """The disk is full when the batch is synced: it is taken back, and the same writer goes on."""
    with open_writer(path) as writer:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fsops, "sync_data", failing_once(errno.ENOSPC))
            with pytest.raises(DiskFull):
                append(writer, [b"taken back"])
        stored = append(writer, [b"room again"])
        stored += append(writer, [b"and on"])
    assert len(set(drawn)) == 2
    assert read_bodies(path, alice) == [b"room again", b"and on"]
    check_survived(path, stored, identity=alice)


def test_failed_sync_leaves_a_writer_that_refuses_and_the_next_one_is_readable(path: Path, alice: Path) -> None:
    stored = append_to(path, b"before")
    with open_writer(path) as writer:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fsops, "sync_data", failing_once(errno.EIO))
            with pytest.raises(StorageFailed):
                append(writer, [b"lost"])
        with pytest.raises(StorageFailed):
            append(writer, [b"refused"])
    check_survived(path, stored, identity=alice)


def test_data_key_whose_put_was_never_written_is_not_used(path: Path, alice: Path) -> None:
    """Encoding is interrupted behind the data key: by a signal, for want of memory, by a body of a wrong type."""
    interrupts = iter([False, True])

    def salts(count: int) -> bytes:
        if next(interrupts, False):
            raise KeyboardInterrupt
        return draw_salts(count)

    with Writer(BufferDirectory(path), timeout_seconds=20, salts=salts) as writer:
        with pytest.raises(KeyboardInterrupt):
            append(writer, [b"interrupted"])
        append(writer, [b"answered for"])
    assert read_bodies(path, alice) == [b"answered for"]


def test_data_key_of_a_segment_that_was_replaced_by_a_backup_is_not_used(
    ram_path: Path, path: Path, alice: Path
) -> None:
    shutil.copytree(path, ram_path / "backup")
    with open_writer(path) as writer:
        append(writer, [b"newer than the backup"])
        shutil.rmtree(path)
        shutil.copytree(ram_path / "backup", path)
        append(writer, [b"answered for"])
    assert read_bodies(path, alice) == [b"answered for"]


def test_two_writers_in_turns_keep_their_data_keys(path: Path, alice: Path, drawn: list[bytes]) -> None:
    with open_writer(path) as one, open_writer(path) as other:
        for n in range(6):
            append(one if n % 2 else other, [b"%d" % n])
    assert read_bodies(path, alice) == [b"%d" % n for n in range(6)]
    assert len(drawn) == 2


def test_without_syncs_all_of_a_batch_can_be_read(path: Path, alice: Path) -> None:
    with open_writer(path, sync=False) as writer:
        append(writer, [b"1"])
        append(writer, [b"2"])
    append_to(path, b"3")
    assert read_bodies(path, alice) == [b"1", b"2", b"3"]
    check_verifies(path, 3)
