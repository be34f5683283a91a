"""Exports and imports, killed and cut off at every call that changes a file, on a full disk, and where a sync fails."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
from pathlib import Path

import pytest

import hbuf
from hbuf.arrow.export import export_parquet
from hbuf.errors import BadInput, CannotCreate, DiskFull, HbufError, StorageFailed
from hbuf.ops.append import Sending
from hbuf.ops.create import create
from hbuf.ops.export import Selection, Watch, cut_all, find_sources, manifest_of
from hbuf.ops.export_directory import ExportDirectory
from hbuf.ops.export_json import export_json
from hbuf.ops.import_files import find_files
from hbuf.ops.import_json import import_json
from hbuf.ops.import_messages import Columns, Importing
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.writer import Writer

from .checking import Answers
from .dying import Moment, work_until
from .forgetful import Disk, Folder, build, left_on_disk
from .losses import LOSSES, by_chance

MOMENTS = pytest.mark.parametrize("moment", ["before", "in the middle of", "after"])
WANTED = {"a": [b"%d of a" % i for i in range(5)], "b": [b"%d of b" % i for i in range(3)]}


def prepare(where: Path) -> None:
    for name, bodies in WANTED.items():
        with hbuf.create(where / "buffers" / name) as buffer:
            buffer.append_many(bodies)


def export(where: Path, *, form: str = "jsonl") -> None:
    selection = Selection()
    cuts = cut_all(find_sources([str(where / "buffers")]), selection, lambda: 0)
    target = ExportDirectory(str(where / "new/out"))
    target.check()
    write = export_json if form == "jsonl" else export_parquet
    with target:
        tallies = write(cuts, selection, target, "buffer", Watch(cuts))
        target.finish(manifest_of(form, "buffer", 0, selection, tallies))


def stored_bodies(file: Path) -> list[bytes]:
    return [json.loads(line)["body"].encode() for line in file.read_bytes().splitlines()]


def check_export(where: Path) -> bool:
    """What has its name is whole; the manifest is there if all is; and half an export is known as one."""
    out = where / "new/out"
    named = sorted(out.rglob("part-*.jsonl"))
    for file in named:
        assert stored_bodies(file) == WANTED[file.parent.name.removeprefix("buffer=")]
    if (out / "_export.json").exists():
        listed = json.loads((out / "_export.json").read_bytes())["files"]
        assert sorted(out / each["path"] for each in listed) == named
        assert len(named) == 2
        return True
    if named:
        with pytest.raises(BadInput, match="not finished"):
            find_files([str(out)])
        with pytest.raises(CannotCreate, match="not finished"):
            ExportDirectory(str(out)).check()
    return False


@MOMENTS
def test_killed_at_every_call_an_export_is_whole_or_known_to_be_half(moment: Moment, ram_path: Path) -> None:
    prepare(ram_path / "prepared")
    whole = set()
    for point in itertools.count():
        where = ram_path / f"call {point}"
        shutil.copytree(ram_path / "prepared", where)
        died = work_until(lambda where, answers: export(where), where, point, moment).died
        whole.add(check_export(where))
        shutil.rmtree(where)
        if not died:
            break
    assert whole == {False, True}


def test_power_cut_at_every_call_leaves_a_whole_export_or_one_known_to_be_half(ram_path: Path) -> None:
    prepare(ram_path / "here")
    disk = Disk(ram_path / "here")
    cuts: list[Folder] = []
    with pytest.MonkeyPatch.context() as patch:
        disk.watch(patch, lambda: cuts.append(disk.snapshot()))
        export(ram_path / "here")
    whole = []
    for i, cut in enumerate(cuts):
        for loss in [*LOSSES, by_chance(i)]:
            build(ram_path / "after", left_on_disk(cut, loss))
            whole.append(check_export(ram_path / "after"))
            shutil.rmtree(ram_path / "after")
    assert set(whole) == {False, True}


def import_again(where: Path, answers: Answers) -> None:
    """With small batches, so that there are many moments to die at."""
    path = str(where / "copy")
    create(path, {"segment_messages": "2"}, may_exist=True)
    [file] = find_files([str(where / "rows.jsonl")])
    with Writer(BufferDirectory(path), timeout_seconds=20) as writer:
        sending = Sending(writer)
        importing = Importing(lambda _: sending, path, producer="p")
        for piece in import_json(file, Columns(), lambda done: None):
            importing.take(piece)


@MOMENTS
def test_killed_at_every_call_and_run_again_an_import_stores_each_message_once(moment: Moment, ram_path: Path) -> None:
    bodies = [b"%d" % i for i in range(5)]
    (ram_path / "prepared").mkdir()
    (ram_path / "prepared/rows.jsonl").write_bytes(b"".join(b'{"body":"%b"}\n' % body for body in bodies))
    left = set()
    for point in itertools.count():
        where = ram_path / f"call {point}"
        shutil.copytree(ram_path / "prepared", where)
        died = work_until(import_again, where, point, moment).died
        if BufferDirectory(where / "copy").exists():
            with hbuf.open(where / "copy") as buffer:
                left.add(len(list(buffer.read())))
        import_again(where, Answers())
        with hbuf.open(where / "copy") as buffer:
            assert [message.body for message in buffer.read()] == bodies
        shutil.rmtree(where)
        if not died:
            break
    assert {2, 4} & left


@pytest.fixture
def full_disk(small_disk: Path, tmp_path: Path) -> Path:
    """A disk that is too small for what `new/out` on it is to hold."""
    with hbuf.create(tmp_path / "buffers/big") as buffer:
        buffer.append_many([os.urandom(1000) for _ in range(1000)])
    (tmp_path / "new").symlink_to(small_disk)
    return small_disk


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_full_disk_ends_an_export_and_takes_it_away(full_disk: Path, tmp_path: Path, form: str) -> None:
    with pytest.raises(DiskFull, match="the disk is full"):
        export(tmp_path, form=form)
    assert list(full_disk.iterdir()) == []


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("call", ["write_all_at", "sync_data", "rename", "sync_directory"])
def test_failing_call_ends_an_export_and_takes_it_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, form: str
) -> None:
    prepare(tmp_path)

    def fail(*arguments: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fsops, call, fail)
    with pytest.raises(HbufError) as raised:
        export(tmp_path, form=form)
    assert type(raised.value) is StorageFailed
    assert not (tmp_path / "new").exists()
