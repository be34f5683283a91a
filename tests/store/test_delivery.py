"""Staged batches and what becomes of them: which manifest counts, what is refused, what is cleaned."""

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from hbuf import library
from hbuf.errors import BadInput, Damaged, DiskFull, NotFound, TooLarge
from hbuf.format.fields import encode_fields
from hbuf.spark.delivery import Delivery
from hbuf.spark.destinations import IntoDirectory
from hbuf.spark.staged_file import PieceLimits
from hbuf.spark.staging import Staging, make_staging
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.writer import Writer

from .staged_batches import QUERY, bodies_in, deliver, expected, prepare, stage, staging_in


@pytest.fixture
def here(ram_path: Path) -> Path:
    prepare(ram_path / "here")
    return ram_path / "here"


def staged(where: Path) -> list[str]:
    return sorted(os.listdir(where / "orders/staging"))


def save_manifest_only(where: Path, batch: int, version: str) -> None:
    """As after a crash right behind the manifest."""
    files = stage(where, version, batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Delivery, "_send", lambda *_: (_ for _ in ()).throw(NotFound("stopped")))
        with pytest.raises(NotFound, match="stopped"):
            deliver(where, batch, files)


def test_a_later_batch_finishes_the_one_before_by_its_own_manifest(here: Path) -> None:
    save_manifest_only(here, 0, "first")
    deliver(here, 1, stage(here, "second", 1))
    assert bodies_in(here) == expected(0, "first") + expected(1, "second")
    assert staged(here) == []


def test_without_rows_a_batch_that_has_a_manifest_is_finished(here: Path) -> None:
    save_manifest_only(here, 0, "first")
    deliver(here, 0, [])
    assert bodies_in(here) == expected(0, "first")


def test_what_was_begun_is_finished_for_a_query_that_nobody_goes_on_with_and_no_file_of_it_is_left(here: Path) -> None:
    save_manifest_only(here, 0, "first")
    stage(here, "second", 0)
    stage(here, "first", 1)  # it came to no manifest: nothing of it was stored, and nothing is
    with Writer(BufferDirectory(here / "orders")) as writer:
        for _ in range(2):
            Delivery(IntoDirectory(writer), staging_in(here), QUERY.encode(), 0).finish(QUERY.encode())
            assert bodies_in(here) == expected(0, "first")
            assert staged(here) == []


def test_a_batch_that_is_lower_than_the_last_stores_nothing(here: Path) -> None:
    deliver(here, 1, stage(here, "first", 1))
    deliver(here, 0, stage(here, "first", 0))
    assert bodies_in(here) == expected(1, "first")
    assert staged(here) == []


def test_others_may_append_meanwhile(here: Path) -> None:
    deliver(here, 0, stage(here, "first", 0))
    library.open(here / "orders").append(b"other")
    deliver(here, 0, stage(here, "second", 0))
    deliver(here, 1, stage(here, "second", 1))
    assert bodies_in(here) == [*expected(0, "first"), "other", *expected(1, "second")]


def test_a_batch_stored_in_part_whose_manifest_is_gone_is_refused(here: Path) -> None:
    library.open(here / "orders").append(b"a chunk", producer="spark-query", producer_seq=0)
    with pytest.raises(Damaged, match="batch 0 is stored in part, and its manifest is gone"):
        deliver(here, 0, stage(here, "first", 0))
    assert bodies_in(here) == ["a chunk"]


def test_a_staged_file_that_is_gone_is_named_and_nothing_of_it_is_stored(here: Path) -> None:
    save_manifest_only(here, 0, "first")
    [gone] = (here / "orders/staging").glob("*-0-0-*.arrow")
    gone.unlink()
    with pytest.raises(NotFound, match=re.escape(f"{gone}: is gone")):
        deliver(here, 0, [])
    assert bodies_in(here) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"chunks": [[1]]}'])
def test_a_damaged_manifest_is_named(here: Path, content: bytes) -> None:
    save_manifest_only(here, 0, "first")
    [manifest] = (here / "orders/staging").glob("*.manifest")
    manifest.write_bytes(content)
    with pytest.raises(Damaged, match=re.escape(f"{manifest}: is damaged")):
        deliver(here, 0, [])
    assert bodies_in(here) == []


def test_a_damaged_staged_file_is_named(here: Path) -> None:
    save_manifest_only(here, 0, "first")
    [cut] = (here / "orders/staging").glob("*-0-0-*.arrow")
    cut.write_bytes(cut.read_bytes()[:-20])
    with pytest.raises(Damaged, match=re.escape(str(cut))):
        deliver(here, 0, [])
    assert bodies_in(here) == []


def test_what_a_manifest_names_is_not_dropped(here: Path) -> None:
    save_manifest_only(here, 0, "first")
    before = staged(here)
    [manifest] = (here / "orders/staging").glob("*.manifest")
    named = {pieces[0] for chunk in json.loads(manifest.read_bytes())["chunks"] for pieces in chunk}
    again = stage(here, "second", 0)
    for name in [*named, *(file.name for file in again)]:
        staging_in(here).drop(0, name)
    assert staged(here) == before


def test_a_body_beyond_the_limit_is_refused_before_anything_of_its_batch_is_stored(ram_path: Path) -> None:
    library.create(ram_path / "orders", max_message_bytes="1KiB", segment_messages="1").close()
    make_staging(ram_path / "orders/staging")
    rows = pa.record_batch({"body": ["a", "b" * 1025]})
    staging = Staging(ram_path / "orders/staging", "0" * 32)
    file = staging.stage(0, 0, [rows], PieceLimits(100, 1))
    assert file is not None
    with Writer(BufferDirectory(ram_path / "orders")) as writer, pytest.raises(TooLarge, match="1025 bytes"):
        Delivery(IntoDirectory(writer), staging, None, 0).deliver(0, [file])
    assert list(library.open(ram_path / "orders").read()) == []


@pytest.mark.parametrize("limits", [PieceLimits(10**6, 3), PieceLimits(40, 100), PieceLimits(1, 1), PieceLimits(1, 9)])
def test_pieces_keep_rows_and_fields_in_order_and_within_limits(ram_path: Path, limits: PieceLimits) -> None:
    library.create(ram_path / "orders").close()
    make_staging(ram_path / "staging")
    staging = Staging(ram_path / "staging", "0" * 32)
    rows = pa.record_batch({"body": [b"x" * i for i in range(20)], "key": [f"k{i % 4}" for i in range(20)]})
    file = staging.stage(0, 0, [rows.slice(0, 7), rows.slice(7, 0), rows.slice(7)], limits)
    assert file is not None
    assert sum(messages for messages, _ in file.pieces.sizes) == 20
    for messages, size in file.pieces.sizes:
        assert messages == 1 or (messages <= limits.most_messages and size <= limits.most_bytes)
    assert sum(size for _, size in file.pieces.sizes) == sum(range(20)) + 20 * len(encode_fields("k0", [], []).encoded)
    with Writer(BufferDirectory(ram_path / "orders")) as writer:
        Delivery(IntoDirectory(writer), staging, None, 0).deliver(0, [file], whole=True)
    found = [(message.body, message.key) for message in library.open(ram_path / "orders").read()]
    assert found == [(b"x" * i, f"k{i % 4}") for i in range(20)]


def test_a_row_that_is_refused_leaves_no_file(here: Path) -> None:
    rows = pa.record_batch({"body": ["a", None]})
    with pytest.raises(BadInput, match="row 2: the body is null"):
        staging_in(here).stage(0, 0, [rows], PieceLimits(100, 10))
    assert staged(here) == []


def test_staged_files_are_for_their_owner_and_none_but_the_group_of_a_shared_directory(ram_path: Path) -> None:
    rows = pa.record_batch({"body": ["a"]})
    for name, directory_mode, mode in (("made", None, 0o600), ("shared", 0o2775, 0o660), ("open", 0o755, 0o640)):
        if directory_mode is not None:
            (ram_path / name).mkdir()
            (ram_path / name).chmod(directory_mode)
        make_staging(ram_path / name)
        staged_file = Staging(ram_path / name, "0" * 32).stage(0, 0, [rows], PieceLimits(100, 10))
        assert staged_file is not None
        assert (ram_path / name / staged_file.name).stat().st_mode & 0o777 == mode


def test_staging_for_one_sender_leaves_what_another_staged(here: Path) -> None:
    stage(here, "first", 0)
    before = staged(here)
    Staging(here / "orders/staging", "0" * 32).remove_until(5)
    assert staged(here) == before


def test_backup_and_verify_take_no_notice_of_what_is_staged(here: Path) -> None:
    save_manifest_only(here, 0, "first")
    library.open(here / "orders").append(b"other")
    assert library.open(here / "orders").verify().ok
    subprocess.run(["tar", "-C", here, "-cf", here / "backup.tar", "orders"], check=True)
    (here / "restored").mkdir()
    subprocess.run(["tar", "-C", here / "restored", "-xf", here / "backup.tar"], check=True)
    assert library.open(here / "orders").erase([1], reason="test") == 1
    deliver(here / "restored", 0, [])
    assert bodies_in(here / "restored") == ["other", *expected(0, "first")]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize("full", ["staging", "orders"])
def test_a_full_disk_stops_a_batch_and_it_goes_on_when_there_is_room(tmp_path: Path, full: str) -> None:
    library.create(tmp_path / "made", segment_messages="3").close()
    (tmp_path / "orders").mkdir()
    (tmp_path / "staging").mkdir()
    staging = Staging(tmp_path / "staging", "0" * 32)
    rows = pa.record_batch({"body": [b"%d" % i + b"x" * 9000 for i in range(20)]})

    def deliver_all() -> None:
        with fsops.os_errors("staging"), Writer(BufferDirectory(tmp_path / "orders")) as writer:
            file = staging.stage(0, 0, [rows], PieceLimits(10**6, 3))
            assert file is not None
            Delivery(IntoDirectory(writer), staging, b"query", 0).deliver(0, [file])

    with _small_disk(tmp_path / full) as fill:
        subprocess.run(["cp", "-a", f"{tmp_path}/made/.", tmp_path / "orders"], check=True)
        filler = fill()
        with pytest.raises(DiskFull):
            deliver_all()
        filler.unlink()
        assert [name for name in os.listdir(tmp_path / "staging") if name.startswith(".new-")] == []
        deliver_all()
        found = [message.body for message in library.open(tmp_path / "orders").read()]
        assert found == rows.column("body").to_pylist()
        assert os.listdir(tmp_path / "staging") == []


class _Fill:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self) -> Path:
        """Fills the disk but for a little, which is not enough for the rows."""
        path = self._folder / "filler"
        free = os.statvfs(self._folder)
        path.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - 60_000)))
        return path


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[_Fill]:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount: {mounted.stderr.strip()}")
    try:
        yield _Fill(folder)
    finally:
        subprocess.run(["umount", folder], check=True)
