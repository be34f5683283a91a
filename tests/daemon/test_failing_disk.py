"""Disks that are full, that stop and that fail: nothing that the daemon answered is lost, and reads go on."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from running_daemon import Answer, RunningDaemon, wait_until

import hbuf
from hbuf.daemon import group_commit
from hbuf.daemon.buffers import WRITING_THREADS
from hbuf.store import fsops

from .disks import Disk, disk_that_stops, small_disk
from .served import serving

if TYPE_CHECKING:
    from conftest import StartDaemon

FULL = "/tenants/full/b/orders"
SLOW = "/tenants/slow/b/orders"
BODY = b"x" * 50_000
_QUEUE_BYTES = 200_000


def numbered(k: int) -> bytes:
    return b"%d/" % k + BODY


def sender(k: int) -> dict[str, str]:
    return {"x-hbuf-producer": "till", "x-hbuf-producer-seq": str(k)}


def stored(root: Path, tenant: str, buffer: str = "orders") -> list[bytes]:
    """All bodies, once everything is verified."""
    with hbuf.open(root / "tenants" / tenant / "buffers" / buffer) as opened:
        assert opened.verify().ok
        return [message.body for message in opened.read()]


@pytest.fixture
def full_disk(own_daemon: RunningDaemon) -> Iterator[RunningDaemon]:
    """The tenant `full` has a disk of 2 MB of its own, half of which somebody else takes up; `default` has not."""
    folder = own_daemon.root / "tenants" / "full"
    folder.mkdir()
    with small_disk(folder, 2_000_000):
        (folder / "filler").write_bytes(bytes(1_000_000))
        for path in (FULL, "/b/other"):
            assert own_daemon.request("PUT", path, {}).status == 201
        yield own_daemon
        own_daemon.kill()


def fill(daemon: RunningDaemon) -> list[bytes]:
    """Appends until the disk is full. What was answered."""
    found: list[bytes] = []
    while (answer := daemon.request("POST", FULL, numbered(len(found)), sender(len(found)))).status == 201:
        found.append(numbered(len(found)))
    assert (answer.status, answer.code) == (507, "disk-full")
    assert answer.headers["retry-after"]
    assert answer.json().get("stored", 0) == 0
    return found


def fill_to_the_last_byte(daemon: RunningDaemon) -> None:
    with open(daemon.root / "tenants" / "full" / "filler", "ab", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(bytes(4096)):
            pass


def free(daemon: RunningDaemon) -> None:
    (daemon.root / "tenants" / "full" / "filler").unlink()


def test_full_disk_is_507_and_when_space_comes_back_it_goes_on(full_disk: RunningDaemon) -> None:
    answered = fill(full_disk)
    assert len(answered) > 5
    fill_to_the_last_byte(full_disk)
    batch = b"".join(b"%b\n" % numbered(k) for k in range(3))
    assert full_disk.request("POST", f"{FULL}?split=lines", batch).code == "disk-full"
    assert full_disk.request("PUT", "/tenants/full/b/another", {"segment_bytes": 8192}).code == "disk-full"

    # Reading goes on, and so does whoever has another disk.
    lines = full_disk.request("GET", FULL, headers={"accept": "application/x-ndjson"}).body.splitlines()
    assert [json.loads(line)["body"].encode() for line in lines] == answered
    assert full_disk.request("GET", f"{FULL}/1").body == answered[0]
    assert full_disk.request("GET", "/tenants/full/b").status == 200
    assert full_disk.request("POST", "/b/other", BODY).status == 201

    free(full_disk)
    for _ in range(2):  # sent again, as its answer could have been lost
        assert full_disk.request("POST", FULL, numbered(len(answered)), sender(len(answered))).status in (200, 201)
    assert full_disk.request("PUT", "/tenants/full/b/another", {"segment_bytes": 8192}).status == 201
    assert full_disk.request("POST", "/tenants/full/b/another", b"small").status == 201
    assert stored(full_disk.root, "full") == [*answered, numbered(len(answered))]
    assert stored(full_disk.root, "full", "another") == [b"small"]


def test_daemon_that_is_killed_on_a_full_disk_starts_reads_and_goes_on(full_disk: RunningDaemon) -> None:
    answered = fill(full_disk)
    fill_to_the_last_byte(full_disk)
    full_disk.kill()
    full_disk.start()
    assert full_disk.request("GET", f"{FULL}?from=last").headers["x-hbuf-last"] == str(len(answered))
    again = full_disk.request("POST", FULL, answered[-1], sender(len(answered) - 1))
    assert (again.status, again.json()["last"]) == (200, len(answered))
    assert full_disk.request("POST", FULL, BODY).code == "disk-full"
    assert full_disk.request("PUT", f"{FULL}/paused", {"why": "a backup"}).code == "disk-full"
    assert full_disk.request("GET", "/readyz").status == 200
    free(full_disk)
    assert full_disk.request("POST", FULL, b"goes on").status == 201
    assert stored(full_disk.root, "full") == [*answered, b"goes on"]


def test_many_writers_on_a_full_disk_lose_nothing_that_was_answered(full_disk: RunningDaemon) -> None:
    answered: list[bytes] = []
    refused: list[str] = []

    def write(name: str) -> None:
        for k in range(20):
            body = f"{name}/{k}/".encode() + BODY[: 1000 * k]
            answer = full_disk.request("POST", FULL, body)
            if answer.status == 201:
                answered.append(body)
            else:
                refused.append(answer.code)

    together([lambda name=name: write(name) for name in "abcdef"])  # type: ignore[misc]
    assert set(refused) == {"disk-full"}
    found = stored(full_disk.root, "full")
    assert sorted(found) == sorted(answered)


@pytest.fixture
def slow_disk(start_daemon: StartDaemon) -> Iterator[tuple[RunningDaemon, Disk]]:
    daemon = start_daemon(config=f"[limits]\nqueue_bytes = {_QUEUE_BYTES}\n")
    folder = daemon.root / "tenants" / "slow"
    folder.mkdir()
    with disk_that_stops(folder) as disk:
        for path in (SLOW, "/b/other"):
            assert daemon.request("PUT", path, {}).status == 201
            assert daemon.request("POST", path, b"first").status == 201
        yield daemon, disk
        daemon.kill()


def test_disk_that_stops_holds_up_writers_who_are_told_so_and_no_reader(
    slow_disk: tuple[RunningDaemon, Disk],
) -> None:
    daemon, disk = slow_disk
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda k=k: answers.append(daemon.request("POST", SLOW, numbered(k)))) for k in range(8)
    ]
    with disk.stopped():
        for thread in threads:
            thread.start()
        fitting = _QUEUE_BYTES // len(BODY) - 1  # a message takes a bit more than its body
        wait_until(lambda: len(answers) == len(threads) - fitting, "the queue is full")
        for answer in answers:
            assert (answer.status, answer.code) == (429, "slow-down")
            assert answer.headers["retry-after"]

        for path in (SLOW, f"{SLOW}/1", f"{SLOW}/status", f"{SLOW}/segments/{1:020}.http", f"{SLOW}?wait=0.1&from=2"):
            assert daemon.request("GET", path).status == 200
        assert daemon.request("GET", SLOW, headers={"accept": "application/octet-stream"}).body == b"first"
        assert daemon.request("POST", "/b/other", b"goes on").status == 201
        assert daemon.request("PUT", "/b/new", {}).status == 201
        assert daemon.request("GET", "/metrics").status == 200
        assert len(answers) == len(threads) - fitting, "nobody is answered before it is on disk"
    for thread in threads:
        thread.join()
    assert sorted(answer.status for answer in answers) == [201] * fitting + [429] * (len(threads) - fitting)
    assert daemon.request("POST", SLOW, b"last").status == 201
    found = stored(daemon.root, "slow")
    assert (len(found), found[0], found[-1]) == (fitting + 2, b"first", b"last")


def test_disk_that_stops_while_it_is_killed_has_what_was_answered(slow_disk: tuple[RunningDaemon, Disk]) -> None:
    daemon, disk = slow_disk

    def append() -> None:
        with contextlib.suppress(OSError, HTTPException):
            daemon.request("POST", SLOW, BODY)
            answered.append(BODY)

    answered: list[bytes] = []
    under_way = threading.Thread(target=append)
    with disk.stopped():
        under_way.start()
        wait_until(lambda: b"hbuf_queue_bytes 0\n" not in daemon.request("GET", "/metrics").body, "it waits")
        daemon.signal(9)
    daemon.kill()
    under_way.join()
    daemon.start()
    assert daemon.request("POST", SLOW, b"last").status == 201
    found = stored(daemon.root, "slow")
    assert found[0] == b"first"
    assert answered == []
    assert found[1:] in ([b"last"], [BODY, b"last"]), "what was not answered is whole or absent"


def test_disk_that_stops_holds_up_no_other_tenant(slow_disk: tuple[RunningDaemon, Disk]) -> None:
    """However many of its buffers wait for it, and however much."""
    daemon, disk = slow_disk
    paths = [f"/tenants/slow/b/{number}" for number in range(40)]
    for path in paths:
        assert daemon.request("PUT", path, {}).status == 201
    statuses: list[int] = []

    def append(path: str) -> None:
        statuses.append(daemon.request("POST", path, BODY[: _QUEUE_BYTES // len(paths)]).status)

    threads = [threading.Thread(target=append, args=(path,)) for path in paths]
    with disk.stopped():
        for thread in threads:
            thread.start()
        wait_until(lambda: 429 in statuses, "the queue is full")
        assert daemon.request("POST", "/b/other", BODY).status == 201
        assert daemon.request("PUT", "/b/new", {}).status == 201
        assert 201 not in statuses
    for thread in threads:
        thread.join()
    assert set(statuses) == {201, 429}
    assert statuses.count(201) > WRITING_THREADS


def failing(call: Callable[..., Any], code: int, on: str, times: int = 1) -> Callable[..., Any]:
    left = times

    def called(fd: int, *arguments: Any) -> Any:
        nonlocal left
        if left and on in os.readlink(f"/proc/self/fd/{fd}"):
            left -= 1
            raise OSError(code, os.strerror(code))
        return call(fd, *arguments)

    return called


def test_sync_that_fails_stores_nothing_and_the_buffer_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "_REOPEN_SECONDS", 0)
    with serving(tmp_path / "root") as served:
        orders, other = served.buffer("orders", b"before"), served.buffer("other")
        with monkeypatch.context() as patched:
            for _ in range(2):
                patched.setattr(fsops, "sync_data", failing(fsops.sync_data, errno.EIO, "/orders/segments/"))
                answer = served("POST", orders, b"after", sender(1))
                assert (answer.status, answer.json()["code"]) == (500, "storage-failed")
                assert str(tmp_path) not in answer.body.decode()
            assert served("POST", other, b"goes on").status == 201
            assert served("GET", f"{orders}?from=last").headers["x-hbuf-last"] == "1"
        answer = served("POST", orders, b"after", sender(1))
        assert (answer.status, answer["x-hbuf-seq"]) == (201, "2")
    assert stored(tmp_path / "root", "default") == [b"before", b"after"]


@pytest.mark.parametrize(("code", "status"), [(errno.EIO, 500), (errno.ENOSPC, 507)])
def test_append_that_cannot_be_undone_closes_the_buffer_until_somebody_opens_it(
    code: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "_REOPEN_SECONDS", 0)
    with serving(tmp_path / "root") as served:
        orders = served.buffer("orders", b"before")
        with monkeypatch.context() as patched:
            patched.setattr(fsops, "sync_data", failing(fsops.sync_data, code, "/orders/segments/"))
            patched.setattr(fsops, "truncate", failing(fsops.truncate, errno.EIO, "/orders/segments/"))
            assert served("POST", orders, b"lost").status == status
        assert served("POST", orders, b"refused").json()["code"] == "closed"
        assert served("GET", f"{orders}/closed").json()["closed"]["why"].startswith("an append failed and")
        assert served("DELETE", f"{orders}/closed").status == 204
        assert served("POST", orders, b"after").status == 201
    assert stored(tmp_path / "root", "default") in ([b"before", b"after"], [b"before", b"lost", b"after"])


def together(work: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
