"""hbuf-create: makes a buffer with its settings, or nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cli.conftest import Bodies, Run


def settings(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(path, "buffer.json").read_text())
    return found


def test_buffer_is_made_with_the_directories_above_it_and_can_be_used(run: Run, bodies: Bodies) -> None:
    assert run("hbuf-create", "a/b/orders") == (0, b"", "")
    assert settings("a/b/orders")["name"] == "orders"
    assert run("hbuf-append", "--no-create", "a/b/orders", stdin=b"one\n") == (0, b"", "")
    assert bodies("a/b/orders") == [b"one"]
    assert run("hbuf-verify", "-q", "a/b/orders").code == 0


@pytest.mark.over_https
def test_settings_can_be_chosen(run: Run) -> None:
    chosen = ["segment_bytes=16MiB", "segment_messages=100", "segment_age=1d", "max_message_bytes=1KiB"]
    options = [part for each in [*chosen, "hash=sha256", "erasable=false"] for part in ("--set", each)]
    assert run("hbuf-create", "orders", *options) == (0, b"", "")
    found = settings("orders")
    assert (found["segment_bytes"], found["segment_messages"], found["segment_age"]) == (16 * 1024**2, 100, 86400)
    assert (found["max_message_bytes"], found["hash"], found["erasable"]) == (1024, "sha256", False)
    assert json.loads(run("hbuf-set", "orders").out) == found


@pytest.mark.over_https
def test_each_buffer_has_its_own_id(run: Run) -> None:
    for name in ("one", "two"):
        assert run("hbuf-create", name).code == 0
    assert settings("one")["uuid"] != settings("two")["uuid"]


@pytest.mark.over_https
def test_existing_buffer_is_73_and_stays_as_it_is(run: Run) -> None:
    run("hbuf-create", "orders", "--set", "segment_messages=7")
    before = settings("orders")
    done = run("hbuf-create", "orders", "--set", "segment_messages=8")
    assert (done.code, done.out) == (73, b"")
    assert done.err == "hbuf-create: orders: exists already\n"
    assert settings("orders") == before


@pytest.mark.over_https
def test_directory_with_other_files_is_73_and_stays_as_it_is(run: Run) -> None:
    Path("photos").mkdir()
    Path("photos/cat.jpg").write_bytes(b"cat")
    done = run("hbuf-create", "photos")
    assert (done.code, done.err) == (73, "hbuf-create: photos: exists and is not a buffer\n")
    assert os.listdir("photos") == ["cat.jpg"]


@pytest.mark.over_https
def test_empty_directory_becomes_a_buffer(run: Run) -> None:
    Path("orders").mkdir()
    assert run("hbuf-create", "orders") == (0, b"", "")
    assert settings("orders")["name"] == "orders"


def test_file_in_the_way_is_73(run: Run) -> None:
    Path("file").write_bytes(b"")
    assert run("hbuf-create", "file").code == 73
    assert run("hbuf-create", "file/orders").code == 73
    assert Path("file").read_bytes() == b""


@pytest.mark.over_https
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_directory_without_permission_is_77(run: Run) -> None:
    Path("locked").mkdir(mode=0o555)
    done = run("hbuf-create", "locked/orders")
    assert (done.code, len(done.err.splitlines())) == (77, 1)


@pytest.mark.parametrize("name", ["Orders", "-orders", ".orders", "or ders", "ördérs", "a" * 129, "a:b", "__a", "_own"])
def test_bad_name_is_2_and_makes_nothing(run: Run, tmp_path: Path, name: str) -> None:
    done = run("hbuf-create", "--", f"{tmp_path}/{name}")
    assert (done.code, done.out) == (2, b"")
    assert "cannot be a buffer's name" in done.err
    assert "\nhint: " in done.err
    assert os.listdir(tmp_path) == ["script-cwd"]


@pytest.mark.over_https
@pytest.mark.parametrize("name", ["a", "0", "a.b-c_d", "a" * 128])
def test_good_names_are_taken(run: Run, name: str) -> None:
    assert run("hbuf-create", name) == (0, b"", "")


@pytest.mark.over_https
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("colour=red", "there is no setting 'colour'"),
        ("segment_bytes", "is not NAME=VALUE"),
        ("segment_bytes=big", "is not a size"),
        ("segment_bytes=1", "is not between"),
        ("segment_bytes=1000GiB", "is not between"),
        ("segment_messages=0", "is not between"),
        ("segment_messages=many", "is not a number"),
        ("segment_age=soon", "is not a length of time"),
        ("segment_age=0s", "is not between"),
        ("max_message_bytes=0", "is not between"),
        ("hash=md5", "hash"),
        ("erasable=maybe", "neither true nor false"),
        ("uuid=1", "uuid"),
    ],
)
def test_bad_setting_is_2_and_makes_nothing(run: Run, value: str, said: str) -> None:
    done = run("hbuf-create", "orders", "--set", value)
    assert (done.code, done.out) == (2, b"")
    assert said in done.err
    assert not Path("orders").exists()
