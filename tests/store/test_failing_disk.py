"""Disks that fail, fill up and write less than they were asked to: what was answered for stays, nothing is half."""

import errno
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hbuf.errors import Closed, DiskFull, HbufError, StorageFailed
from hbuf.ops.close import reopen
from hbuf.ops.create import create
from hbuf.store import fsops

from .checking import Stored, append, append_to, check_survived, open_writer, read_all, stored_of
from .real_command import APPEND, ENVIRONMENT

BEFORE = [b"before %d" % n for n in range(3)]
LOST = b"the one that fails, long enough to be written in two parts " + b"." * 5000


def path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


def failing(call: Callable[..., Any], code: int, *, on: str = "", times: int = 1, after: int = 0) -> Callable[..., Any]:
    """`call`, failing `times` times on files whose name ends so, behind the first `after` calls."""
    count = -1

    def called(fd: int, *arguments: Any) -> Any:
        nonlocal count
        if path_of(fd).endswith(on):
            count += 1
            if after <= count < after + times:
                raise OSError(code, os.strerror(code))
        return call(fd, *arguments)

    return called


@pytest.fixture
def path(ram_path: Path) -> Path:
    create(str(ram_path / "orders"))
    return ram_path / "orders"


@pytest.fixture
def stored(path: Path) -> list[Stored]:
    return append_to(path, *BEFORE)


# A sync fails


def test_failed_sync_fails_the_append_and_the_message_is_absent(path: Path, stored: list[Stored]) -> None:
    with open_writer(path) as writer:
        stored += append(writer, [b"one that works"])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fsops, "sync_data", failing(fsops.sync_data, errno.EIO, on=".http"))
            with pytest.raises(StorageFailed) as failed:
                append(writer, [LOST])
        assert (failed.value.exit_code, failed.value.stored) == (74, 0)
        # The disk works again, but what the cache holds is not known to be on it: this writer does not go on.
        with pytest.raises(StorageFailed):
            append(writer, [b"refused"])
    assert stored_of(read_all(path)) == stored
    check_survived(path, stored)


def test_failed_sync_in_the_middle_of_a_batch_keeps_what_was_synced_before(ram_path: Path) -> None:
    """A batch that goes over the end of a segment is one write and one sync for each."""
    path = ram_path / "orders"
    create(str(path), {"segment_messages": "2"})
    stored = append_to(path, *BEFORE[:2])
    bodies = [b"%d of the batch" % n for n in range(6)]
    with open_writer(path) as writer, pytest.MonkeyPatch.context() as patch:
        patch.setattr(fsops, "sync_data", failing(fsops.sync_data, errno.EIO, on=f"{5:020d}.http"))
        with pytest.raises(StorageFailed) as failed:
            append(writer, bodies)
    assert failed.value.stored == 2
    assert [message.body for message in read_all(path)] == [*BEFORE[:2], *bodies[:2]]
    check_survived(path, stored, bodies[:2])


@pytest.mark.parametrize("file", [".new-segment", ".new-index", ".idx"])
def test_failed_sync_while_rolling_loses_nothing(ram_path: Path, file: str) -> None:
    path = ram_path / "orders"
    create(str(path), {"segment_messages": "3"})
    stored = append_to(path, *BEFORE)
    with open_writer(path) as writer, pytest.MonkeyPatch.context() as patch:
        patch.setattr(fsops, "sync_data", failing(fsops.sync_data, errno.EIO, on=file))
        with pytest.raises(StorageFailed):
            append(writer, [LOST])
    check_survived(path, stored)


def test_sync_that_failed_while_rolling_is_not_believed_when_it_is_tried_again(ram_path: Path) -> None:
    """Messages that were not synced (--fsync never) are synced when their segment is sealed; that fails."""
    path = ram_path / "orders"
    create(str(path), {"segment_messages": "3"})
    with open_writer(path, sync=False) as writer:
        append(writer, BEFORE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fsops, "sync_data", failing(fsops.sync_data, errno.EIO, on=f"{1:020d}.http"))
            with pytest.raises(StorageFailed):
                append(writer, [LOST])
        with pytest.raises(StorageFailed):
            append(writer, [b"refused"])
    check_survived(path, [], BEFORE)


def test_append_that_cannot_be_undone_closes_the_buffer(path: Path, stored: list[Stored]) -> None:
    with open_writer(path) as writer:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fsops, "sync_data", failing(fsops.sync_data, errno.EIO, on=".http", times=2))
            with pytest.raises(HbufError):
                append(writer, [LOST])
        with pytest.raises(Closed):
            append(writer, [b"refused"])
    assert (path / "closed").exists()
    with open_writer(path) as writer, pytest.raises(Closed) as closed:
        append(writer, [b"refused as well"])
    assert closed.value.exit_code == 77
    assert stored_of(read_all(path)) == stored
    assert reopen(str(path), timeout_seconds=20)
    check_survived(path, stored, [LOST])


def test_disk_that_fails_at_all_leaves_a_writer_that_refuses(path: Path, stored: list[Stored]) -> None:
    """Not even the marker can be written."""
    with open_writer(path) as writer, pytest.MonkeyPatch.context() as patch:
        patch.setattr(fsops, "sync_data", failing(fsops.sync_data, errno.EIO, times=10**6))
        patch.setattr(fsops, "truncate", failing(fsops.truncate, errno.EIO, times=10**6))
        with pytest.raises(HbufError):
            append(writer, [LOST])
        with pytest.raises(Closed):
            append(writer, [b"refused"])
    (path / "closed").unlink(missing_ok=True)
    check_survived(path, stored, [LOST])


def test_other_buffers_go_on_when_the_sync_of_one_fails(ram_path: Path) -> None:
    create(str(ram_path / "bad"))
    create(str(ram_path / "good"))
    with (
        open_writer(ram_path / "bad") as bad,
        open_writer(ram_path / "good") as good,
        pytest.MonkeyPatch.context() as patch,
    ):
        sync = failing(fsops.sync_data, errno.EIO, on=f"bad/segments/{1:020d}.http", times=10**6)
        patch.setattr(fsops, "sync_data", sync)
        stored = append(good, [b"first"])
        with pytest.raises(HbufError):
            append(bad, [LOST])
        stored += append(good, [b"second"])
    check_survived(ram_path / "good", stored)


def test_reader_whose_sync_fails_shows_only_what_is_listed(path: Path, stored: list[Stored]) -> None:
    """What a killed writer left behind the durable length may be in the cache only."""
    index = path / "segments" / f"{1:020d}.idx"
    listed = index.read_bytes()
    append_to(path, b"written, and not listed")
    index.write_bytes(listed)
    assert len(read_all(path)) == len(stored) + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fdatasync", failing(os.fdatasync, errno.EIO, times=10**6))
        patch.setattr(os, "fsync", failing(os.fsync, errno.EIO, times=10**6))
        assert stored_of(read_all(path)) == stored


# The disk is full


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("written", [0, 1, 100, 5000])
def test_full_disk_in_the_middle_of_a_record_leaves_no_part_of_it(
    path: Path, stored: list[Stored], written: int, code: int
) -> None:
    """The first write stores only some bytes, the second none."""
    real_pwrite = os.pwrite
    left = written

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        nonlocal left
        if not path_of(fd).endswith(".http"):
            return real_pwrite(fd, data, offset)
        if not left:
            raise OSError(code, os.strerror(code))
        now, left = left, 0
        return real_pwrite(fd, data[:now], offset)

    with open_writer(path) as writer:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "pwrite", pwrite)
            with pytest.raises(DiskFull) as full:
                append(writer, [LOST])
        assert (full.value.exit_code, full.value.stored) == (75, 0)
        assert stored_of(read_all(path)) == stored
        # Space comes back, and the same writer goes on.
        stored += append(writer, [b"room again"])
    check_survived(path, stored)


@pytest.mark.parametrize("file", [".idx", ".new-segment", ".new-index"])
def test_full_disk_for_an_index_or_a_new_segment_fails_the_append_and_loses_nothing(ram_path: Path, file: str) -> None:
    path = ram_path / "orders"
    create(str(path), {"segment_messages": "3"})
    stored = append_to(path, *BEFORE)
    with open_writer(path) as writer:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fsops, "write_all_at", failing(fsops.write_all_at, errno.ENOSPC, on=file))
            with pytest.raises(DiskFull) as full:
                append(writer, [LOST])
        assert full.value.stored == 0
        assert stored_of(read_all(path)) == stored
        stored += append(writer, [LOST])
    check_survived(path, stored)


def test_full_disk_for_a_tags_file_does_not_fail_the_append(ram_path: Path) -> None:
    path = ram_path / "orders"
    create(str(path), {"segment_messages": "3"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fsops, "write_all_at", failing(fsops.write_all_at, errno.ENOSPC, on=".new-tags"))
        stored = append_to(path, *BEFORE, b"in the next segment")
    assert not list(path.glob("segments/*.tags"))
    check_survived(path, stored)
    assert list(path.glob("segments/*.tags"))


def test_really_full_disk_takes_nothing_back_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    path = small_disk / "orders"
    create(str(path), {"segment_bytes": "64KiB"})
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(64 * 1024))
    bodies = [b"%d " % n + b"." * 700 for n in range(400)]
    code, errors, stored = _run_append(path, bodies)
    assert code == 75
    assert f"{len(stored)} messages were stored" in errors
    assert 0 < len(stored) < len(bodies)
    assert stored_of(read_all(path)) == stored
    code, errors, more = _run_append(path, bodies[len(stored) :])
    assert (code, more) == (75, [])
    ballast.unlink()
    code, errors, more = _run_append(path, bodies[len(stored) : len(stored) + 30])
    assert (code, errors, len(more)) == (0, "", 30)
    check_survived(path, [*stored, *more])


def _run_append(path: Path, bodies: list[bytes]) -> tuple[int, str, list[Stored]]:
    """A real hbuf-append: its exit code, its complaint, and what it gave receipts for."""
    ran = subprocess.run(
        [*APPEND, str(path), "-v", "--timeout", "0s"],
        input=b"".join(body + b"\n" for body in bodies),
        capture_output=True,
        env=ENVIRONMENT,
    )
    receipts = [line.split() for line in ran.stdout.decode().splitlines()]
    stored = [Stored(int(seq), record_id, body) for (seq, record_id), body in zip(receipts, bodies, strict=False)]
    return ran.returncode, ran.stderr.decode(), stored


# Short writes, signals


@pytest.mark.parametrize("most", [1, 7, 4096])
def test_short_writes_are_carried_on_with(ram_path: Path, most: int) -> None:
    real_pwrite = os.pwrite

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        return real_pwrite(fd, data[:most], offset)

    path = ram_path / "orders"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        create(str(path), {"segment_messages": "2"})
        with open_writer(path) as writer:
            stored = append(writer, [*BEFORE, LOST])
            stored += append(writer, [b"x", b"y"], unit=True)
    check_survived(path, stored)


def test_signals_all_the_time_interrupt_nothing(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    create(str(path), {"segment_messages": "10"})
    caught = 0

    def catch(number: int, frame: object) -> None:
        nonlocal caught
        caught += 1

    stored: list[Stored] = []
    before = signal.signal(signal.SIGALRM, catch)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        with open_writer(path) as writer:
            for n in range(60):
                stored += append(writer, [b"%d " % n + b"." * 20_000])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert caught > 10
    check_survived(path, stored)
