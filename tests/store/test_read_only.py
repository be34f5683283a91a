"""A buffer on a file system that is mounted read-only is read and verified, and refuses to be changed."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hbuf.errors import NotAllowed
from hbuf.ops.close import close
from hbuf.ops.create import create
from hbuf.ops.pause import pause
from hbuf.ops.reindex import reindex
from hbuf.ops.set import set_settings

from .checking import Stored, append_to, check_verifies, read_all, stored_of


@pytest.fixture
def read_only(small_disk: Path) -> tuple[Path, list[Stored]]:
    path = small_disk / "orders"
    create(str(path), {"segment_messages": "2"})
    stored = append_to(path, b"one", b"two", b"three")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    return path, stored


def test_it_is_read_and_verified(read_only: tuple[Path, list[Stored]]) -> None:
    path, stored = read_only
    assert stored_of(read_all(path)) == stored
    check_verifies(path, 3)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: append_to(Path(path), b"four"),
        lambda path: create(path + "-too"),
        lambda path: set_settings(path, {"segment_messages": "9"}, timeout_seconds=0),
        lambda path: pause(path, reason="", timeout_seconds=0),
        lambda path: close(path, reason="", timeout_seconds=0),
        lambda path: reindex(path, timeout_seconds=0),
    ],
    ids=["append", "create", "set", "pause", "close", "reindex"],
)
def test_it_refuses_to_be_changed(read_only: tuple[Path, list[Stored]], change: Callable[[str], object]) -> None:
    path, stored = read_only
    with pytest.raises(NotAllowed, match="Read-only file system") as caught:
        change(str(path))
    assert caught.value.hint == "the file system is mounted read-only"
    assert stored_of(read_all(path)) == stored
