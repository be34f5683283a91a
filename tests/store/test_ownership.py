"""Who owns what is made, and what those may do who do not own it."""

import os
import stat
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

import hbuf
from hbuf.errors import NotAllowed
from hbuf.ops.close import close, reopen
from hbuf.ops.create import create
from hbuf.ops.reindex import reindex
from hbuf.ops.set import set_settings
from hbuf.ops.verify import verify

from .checking import append_to, check_survived, read_all, stored_of
from .dying import fork

SOMEBODY, GROUP = 12345, 23456
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away and become somebody else")


def as_user(uid: int, gid: int, work: Callable[[], None]) -> None:
    """Does `work` in a child that has become somebody else."""
    child = fork()
    if child == 0:
        _become(uid, gid, work)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"the child failed: {status}"


def _become(uid: int, gid: int, work: Callable[[], None]) -> NoReturn:
    try:
        os.setgroups([])
        os.setegid(gid)
        os.seteuid(uid)
        work()
        os._exit(0)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(70)


def use_it_all(path: Path) -> None:
    """Makes every kind of file that there is in a buffer."""
    append_to(path, b"one", b"two", b"three")
    with (path / "segments" / f"{3:020d}.http").open("ab") as file:
        file.write(b"torn")
    append_to(path, b"four")
    set_settings(str(path), {"segment_messages": "5"}, timeout_seconds=20)
    reindex(str(path), timeout_seconds=20)
    close(str(path), reason="a test", timeout_seconds=20)


def made_in(path: Path) -> list[Path]:
    made = [path, *path.rglob("*")]
    names = {file.name for file in made}
    assert {"buffer.json", "segments", "quarantine", "producers", "closed", "lock"} <= names
    assert {file.suffix for file in made} >= {".http", ".idx", ".tags", ".torn"}
    return made


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that others can go through, as they cannot through those that pytest makes."""
    with tempfile.TemporaryDirectory(prefix="hbuf-test-") as path:
        os.chmod(path, 0o755)
        yield Path(path)


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755, 0o770, 0o2770])
def test_new_files_take_the_mode_of_their_directory(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "orders"
    path.mkdir()
    path.chmod(mode)
    before = os.umask(0o077)
    try:
        create(str(path), {"segment_messages": "2"})
        use_it_all(path)
    finally:
        os.umask(before)
    for file in made_in(path):
        wanted = mode if file.is_dir() else mode & 0o666
        assert stat.S_IMODE(file.stat().st_mode) == wanted, file


@needs_root
def test_new_files_take_owner_and_group_of_their_directory(open_path: Path) -> None:
    """cron runs as root, and the daemon must still be able to write."""
    path = open_path / "orders"
    path.mkdir(mode=0o750)
    os.chown(path, SOMEBODY, GROUP)
    create(str(path), {"segment_messages": "2"})
    use_it_all(path)
    for file in made_in(path):
        found = file.stat()
        assert (found.st_uid, found.st_gid) == (SOMEBODY, GROUP), file

    def go_on() -> None:
        assert reopen(str(path), timeout_seconds=20)
        check_survived(path, stored_of(read_all(path)))

    as_user(SOMEBODY, GROUP, go_on)


@needs_root
def test_a_buffer_that_root_makes_belongs_to_the_owner_of_the_directory_around_it(open_path: Path) -> None:
    os.chown(open_path, SOMEBODY, GROUP)
    path = open_path / "tenants/shop/buffers/orders"
    create(str(path), {})
    for made in (path, path.parent, path / "segments", path / "buffer.json", path.parent.parent):
        found = made.stat()
        assert (found.st_uid, found.st_gid) == (SOMEBODY, GROUP), made


@needs_root
def test_member_of_the_group_can_write_where_the_group_may(open_path: Path) -> None:
    path = open_path / "orders"
    path.mkdir()
    os.chown(path, 0, GROUP)
    path.chmod(0o2770)
    create(str(path), {"segment_messages": "2"})
    stored = append_to(path, b"one", b"two", b"three")
    as_user(SOMEBODY, GROUP, lambda: check_survived(path, stored))
    assert append_to(path, b"root again")[0].seq == 5
    for file in path.rglob("*"):
        assert file.stat().st_gid == GROUP, file


def test_directory_that_cannot_be_written_is_not_allowed(open_path: Path) -> None:
    """For root that is so with no mode: it becomes somebody else first."""
    closed = open_path / "closed"
    closed.mkdir()
    path = open_path / "orders"
    create(str(path))
    append_to(path, b"one")
    folders = [closed, path, path / "segments"]

    def refused() -> None:
        with pytest.raises(NotAllowed) as error:
            create(str(closed / "new"))
        assert error.value.exit_code == 77
        with pytest.raises(NotAllowed):
            append_to(path, b"two")
        with pytest.raises(NotAllowed):
            set_settings(str(path), {"segment_messages": "5"}, timeout_seconds=0)

    files = [file for file in path.rglob("*") if file.is_file()]
    for file in files:
        file.chmod(0o444)
    for folder in folders:
        folder.chmod(0o555)
    try:
        if os.geteuid() == 0:
            as_user(SOMEBODY, GROUP, refused)
        else:
            refused()
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert [message.body for message in read_all(path)] == [b"one"]
    assert list(closed.iterdir()) == []


@needs_root
@pytest.mark.parametrize("behind", [False, True], ids=["index whole", "index behind"])
def test_buffer_can_be_read_and_verified_by_who_cannot_write_it(open_path: Path, behind: bool) -> None:
    path = open_path / "orders"
    path.mkdir(mode=0o755)
    create(str(path), {"segment_messages": "2"})
    stored = append_to(path, b"one", b"two", b"three")
    index = path / "segments" / f"{3:020d}.idx"
    listed = index.read_bytes()
    stored += append_to(path, b"four")
    if behind:
        index.write_bytes(listed)
    content = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}

    def look() -> None:
        assert stored_of(read_all(path)) == stored
        assert [message.seq for message in hbuf.open(path).read("-2")] == [3, 4]
        assert verify(str(path), jobs=1).ok
        with pytest.raises(NotAllowed):
            append_to(path, b"five")

    as_user(SOMEBODY, GROUP, look)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == content


@needs_root
def test_buffer_that_may_not_be_read_is_not_allowed(open_path: Path) -> None:
    path = open_path / "orders"
    path.mkdir(mode=0o700)
    create(str(path))
    append_to(path, b"one")

    def look() -> None:
        with pytest.raises(NotAllowed):
            read_all(path)
        with pytest.raises(NotAllowed):
            verify(str(path), jobs=1)

    as_user(SOMEBODY, GROUP, look)
