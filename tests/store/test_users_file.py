"""`users.json` on disk: whole or as it was, for its owner alone, and no change is lost to another one."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from hbuf.errors import Damaged, Locked, NotAllowed, StorageFailed, UsageError
from hbuf.format.users import Grant, Users
from hbuf.store import fsops
from hbuf.store.exclusive import exclusively
from hbuf.store.users_file import changing, holder, read_users, write_users

TIME = "2026-11-18T04:51:00.000000Z"
CALLS = ["create_file", "write_all_at", "sync_data", "rename", "sync_directory"]


def with_user(name: str) -> Users:
    return Users().with_user(name, TIME, [Grant("reader", "*")])


def test_missing_file_is_no_users(tmp_path: Path) -> None:
    assert len(read_users(tmp_path)) == 0
    assert os.listdir(tmp_path) == []


def test_file_is_for_its_owner_alone_whatever_the_umask_and_the_directory(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    before = os.umask(0)
    try:
        with changing(tmp_path) as users:
            write_users(tmp_path, users.with_user("alice", TIME, []))
    finally:
        os.umask(before)
    assert {each.name for each in tmp_path.iterdir()} == {"users.json", "users.lock"}
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}


def test_file_is_never_open_to_others_not_even_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    write = fsops.write_all_at

    def looking(fd: int, data: bytes, offset: int) -> None:
        seen.append((stat.S_IMODE(os.fstat(fd).st_mode), os.fstat(fd).st_size))
        write(fd, data, offset)

    monkeypatch.setattr(fsops, "write_all_at", looking)
    write_users(tmp_path, with_user("alice"))
    assert seen == [(0o600, 0)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_writes_belongs_to_the_owner_of_the_directory(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    with changing(tmp_path) as users:
        write_users(tmp_path, users.with_user("alice", TIME, []))
    assert {(each.stat().st_uid, each.stat().st_gid) for each in tmp_path.iterdir()} == {(12345, 12345)}


@pytest.mark.parametrize("failing", CALLS)
def test_write_that_fails_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    write_users(tmp_path, with_user("alice"))

    def fail(*arguments: object) -> None:
        raise PermissionError(1, "not now", str(tmp_path))

    with monkeypatch.context() as patched:
        patched.setattr(fsops, failing, fail)
        with pytest.raises(NotAllowed):
            write_users(tmp_path, with_user("bob"))
    found = [user.name for user in read_users(tmp_path)]
    assert found == (["bob"] if failing == "sync_directory" else ["alice"])
    write_users(tmp_path, with_user("carol"))
    assert [user.name for user in read_users(tmp_path)] == ["carol"]


def test_changes_of_many_at_once_are_all_there(tmp_path: Path) -> None:
    def add(name: str) -> None:
        with changing(tmp_path) as users:
            write_users(tmp_path, users.with_user(name, TIME, []))

    names = [f"user{number}" for number in range(12)]
    threads = [threading.Thread(target=add, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(user.name for user in read_users(tmp_path)) == sorted(names)


def test_who_waits_too_long_is_told_of_it(tmp_path: Path) -> None:
    path = tmp_path / "users.lock"
    with exclusively(path), pytest.raises(Locked, match=r"users\.lock: is locked"), exclusively(path, 0):
        pytest.fail("it was taken")
    with exclusively(path, 0):
        pass


@pytest.mark.parametrize("link", [".new-users.json", "users.lock"])
def test_link_that_somebody_put_there_is_not_written_through(tmp_path: Path, link: str) -> None:
    """Root changes users in a directory that belongs to the daemon's user, who must not reach root's files so."""
    victim = tmp_path / "victim"
    victim.write_text("root's own")
    directory = tmp_path / "acme"
    directory.mkdir()
    (directory / link).symlink_to(victim)
    with pytest.raises(StorageFailed), changing(directory) as users:
        write_users(directory, users.with_user("alice", TIME, []))
    assert victim.read_text() == "root's own"


def test_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "users.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match=r"users\.lock"), exclusively(tmp_path / "users.lock"):
        pytest.fail("it was taken")
    assert not (tmp_path / "elsewhere").exists()


def test_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "users.json").write_text('{"users": ')
    with pytest.raises(Damaged, match=r"users\.json: it is not JSON"):
        read_users(tmp_path)


@pytest.mark.parametrize("tenant", ["..", ".", "", "a/b", "_audit", "+"])
def test_users_are_not_looked_for_outside_of_the_tenants(tmp_path: Path, tenant: str) -> None:
    with pytest.raises(UsageError):
        holder(tmp_path, tenant)
