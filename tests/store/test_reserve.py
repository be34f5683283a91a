"""The reserve: made where there is a rule, and given back when the disk is full."""

import os
from pathlib import Path

import pytest

from hbuf.errors import DiskFull
from hbuf.ops.set import set_settings
from hbuf.ops.verify import verify
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory

from .checking import check_verifies
from .retiring import Retiring


def retired(path: Path) -> int:
    report = verify(str(path), jobs=1)
    assert report.ok, [str(fault) for fault in report.faults]
    return report.verdicts["completeness"]["retired"]


def test_reserve_is_kept_where_there_is_a_rule(tmp_path: Path) -> None:
    Retiring(tmp_path / "made", retention_messages="3")
    assert (tmp_path / "made" / "reserve").stat().st_blocks * 512 >= 64 * 1024
    buffer = Retiring(tmp_path / "orders")
    assert not (buffer.path / "reserve").exists()
    set_settings(str(buffer.path), {"retention_age": "1d"}, timeout_seconds=20)
    (buffer.path / "reserve").unlink()
    buffer.retire()
    assert (buffer.path / "reserve").stat().st_size == 64 * 1024


def test_failing_disk_is_tried_once_more_with_the_reserve_given_back(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="3")
    buffer.append(40)
    real = fsops.write_all_at

    def write(fd: int, data: bytes, offset: int) -> None:
        if (buffer.path / "reserve").exists() and "reserve" not in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(28, "No space left on device")
        real(fd, data, offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fsops, "write_all_at", write)
        assert len(buffer.retire().segments) == 18
        assert (buffer.path / "reserve").exists()
    assert retired(buffer.path) == 36


def test_full_disk_without_a_reserve_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="3")
    buffer.append(9)
    (buffer.path / "reserve").unlink()

    real = fsops.write_all_at

    def write(fd: int, data: bytes, offset: int) -> None:
        if not os.readlink(f"/proc/self/fd/{fd}").endswith(".idx"):  # that is written in place
            raise OSError(28, "No space left on device")
        real(fd, data, offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fsops, "write_all_at", write)
        with pytest.raises(DiskFull):
            buffer.retire()
    assert buffer.firsts == [1, 3, 5, 7, 9]
    check_verifies(buffer.path, 9)
    assert BufferDirectory(buffer.path).exists()
