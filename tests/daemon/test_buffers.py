"""The daemon's own way to buffers: appends share syncs, readers see what is on disk, limits hold."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

import hbuf
from hbuf.daemon.buffers import Buffers, Where
from hbuf.daemon.config import Config, Limits, Quota
from hbuf.errors import (
    Closed,
    HbufError,
    NotFound,
    NotReady,
    OverQuota,
    Paused,
    PreconditionFailed,
    SlowDown,
    StorageFailed,
    TooLarge,
    UsageError,
)
from hbuf.ops.close import close
from hbuf.ops.pause import pause
from hbuf.store import fsops
from hbuf.store.outgoing import Appended, Outgoing
from hbuf.store.reader import Reader

ORDERS = Where("default", "orders")
_Result = TypeVar("_Result")


def run(root: Path, work: Callable[[Buffers], Awaitable[_Result]], config: Config | None = None) -> _Result:
    async def running() -> _Result:
        buffers = Buffers(config or Config.of_root(root))
        try:
            return await work(buffers)
        finally:
            await buffers.close()

    return asyncio.run(running())


def path_of(root: Path, where: Where = ORDERS) -> Path:
    return root / "tenants" / where.tenant / "buffers" / where.buffer


def bodies(reader: Reader) -> list[bytes]:
    return [
        chunk.body(i) for chunk in reader.chunks(reader.first_seq, reader.end_seq) for i in range(len(chunk.entries))
    ]


def verified(path: Path) -> list[bytes]:
    with hbuf.open(path) as buffer:
        assert buffer.verify().ok
        return [message.body for message in buffer.read()]


async def append(buffers: Buffers, body: bytes, number: int | None = None, where: Where = ORDERS) -> Appended:
    producers = None if number is None else [(b"till", number)]
    return await buffers.append(where, Outgoing([body], producers=producers))


def test_concurrent_appends_share_syncs_and_keep_their_order(ram_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []
    sync_data = fsops.sync_data

    def counted_sync(fd: int) -> None:
        syncs.append(fd)
        sync_data(fd)

    async def work(buffers: Buffers) -> list[Appended]:
        await buffers.create(ORDERS, {})
        monkeypatch.setattr(fsops, "sync_data", counted_sync)
        return await asyncio.gather(*(append(buffers, b"%d" % i) for i in range(500)))

    results = run(ram_path, work)
    assert [each.seqs for each in results] == [[i] for i in range(1, 501)]
    assert verified(path_of(ram_path)) == [b"%d" % i for i in range(500)]
    assert len(syncs) < 20  # 500 messages, and the opening of the buffer


def test_one_bad_request_does_not_fail_those_that_share_its_write(ram_path: Path) -> None:
    async def work(buffers: Buffers) -> list[Appended | BaseException]:
        await buffers.create(ORDERS, {"max_message_bytes": "10"})
        results = await asyncio.gather(
            append(buffers, b"fine"),
            append(buffers, b"x" * 11),
            buffers.append(ORDERS, Outgoing([b"late"], after=b"0" * 64)),
            append(buffers, b"also fine"),
            return_exceptions=True,
        )
        return list(results)

    fine, too_large, condition, also_fine = run(ram_path, work)
    assert isinstance(fine, Appended)
    assert isinstance(too_large, TooLarge)
    assert isinstance(condition, PreconditionFailed)
    assert isinstance(also_fine, Appended)
    assert verified(path_of(ram_path)) == [b"fine", b"also fine"]


def test_a_duplicate_is_answered_with_what_it_has_already(ram_path: Path) -> None:
    async def work(buffers: Buffers) -> tuple[Appended, Appended, Appended]:
        await buffers.create(ORDERS, {})
        first = await append(buffers, b"a", 7)
        again = await append(buffers, b"a", 7)
        older = await append(buffers, b"z", 3)
        return first, again, older

    first, again, older = run(ram_path, work)
    assert (again.seqs, again.ids, again.times_us) == (first.seqs, first.ids, first.times_us)
    assert again.duplicates == older.duplicates == {0}
    assert older.seqs == [0]


def test_what_others_append_is_read_and_wakes_who_waits(ram_path: Path) -> None:
    async def work(buffers: Buffers) -> tuple[list[bytes], list[bytes]]:
        await buffers.create(ORDERS, {})
        with buffers.waiting(ORDERS) as waiter:
            waiter.arm()
            shell = threading.Thread(target=lambda: hbuf.open(path_of(ram_path)).append(b"from a shell"))
            shell.start()
            assert await waiter.wait(30)
            shell.join()
            others = await buffers.read(ORDERS, bodies)
            waiter.arm()
            await append(buffers, b"ours")
            assert await waiter.wait(30)
        return others, await buffers.read(ORDERS, bodies)

    others, both = run(ram_path, work)
    assert others == [b"from a shell"]
    assert both == [b"from a shell", b"ours"]


def test_who_waits_in_vain_is_told_so(ram_path: Path) -> None:
    async def work(buffers: Buffers) -> bool:
        await buffers.create(ORDERS, {})
        with buffers.waiting(ORDERS) as waiter:
            waiter.arm()
            return await waiter.wait(0.05)

    assert run(ram_path, work) is False


def test_a_buffer_that_is_not_there_is_made_by_nobody(ram_path: Path) -> None:
    async def work(buffers: Buffers) -> None:
        with pytest.raises(NotFound):
            await append(buffers, b"a")
        with pytest.raises(NotFound):
            await buffers.read(ORDERS, bodies)
        with pytest.raises(NotFound):
            await buffers.change(ORDERS, lambda directory, signer: None)

    run(ram_path, work)
    assert not path_of(ram_path).exists()


@pytest.mark.parametrize("where", [Where("default", "../x"), Where("..", "x"), Where("Default", "x"), Where("d", "")])
def test_a_name_that_leads_elsewhere_is_refused(ram_path: Path, where: Where) -> None:
    async def work(buffers: Buffers) -> None:
        with pytest.raises(UsageError):
            buffers.directory(where)

    run(ram_path, work)


def test_pausing_and_closing_is_told_at_once(ram_path: Path) -> None:
    async def work(buffers: Buffers) -> None:
        await buffers.create(ORDERS, {})
        await append(buffers, b"a")
        hold = pause(str(path_of(ram_path)), reason="", timeout_seconds=0)
        with pytest.raises(Paused):
            await append(buffers, b"b")
        assert hold is not None
        hold.release()
        await append(buffers, b"c")
        close(str(path_of(ram_path)), reason="", timeout_seconds=0)
        with pytest.raises(Closed):
            await append(buffers, b"d")

    run(ram_path, work)
    assert verified(path_of(ram_path)) == [b"a", b"c"]


def test_more_than_may_wait_is_refused_and_nothing_of_it_is_stored(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = threading.Event()
    sync_data = fsops.sync_data

    def waiting_sync(fd: int) -> None:
        slow.wait(30)
        sync_data(fd)

    async def work(buffers: Buffers) -> None:
        await buffers.create(ORDERS, {})
        await append(buffers, b"first")
        monkeypatch.setattr(fsops, "sync_data", waiting_sync)
        under_way = [asyncio.ensure_future(append(buffers, b"x" * 600)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(SlowDown):
            await append(buffers, b"y" * 600)
        assert await buffers.read(ORDERS, bodies) == [b"first"]  # readers do not wait for the disk
        slow.set()
        await asyncio.gather(*under_way)
        await append(buffers, b"z" * 600)

    run(ram_path, work, replace(Config.of_root(ram_path), limits=Limits(queue_bytes=2000)))
    assert [body[:1] for body in verified(path_of(ram_path))] == [b"f", b"x", b"x", b"z"]


def test_a_disk_that_fails_fails_the_append_and_is_tried_anew_later(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Where("default", "other")
    sync_data = fsops.sync_data
    failing: set[Path] = set()

    def failing_sync(fd: int) -> None:
        if any(Path(f"/proc/self/fd/{fd}").readlink().is_relative_to(path) for path in failing):
            raise OSError(5, "Input/output error")
        sync_data(fd)

    async def work(buffers: Buffers) -> None:
        for where in (ORDERS, other):
            await buffers.create(where, {})
            await append(buffers, b"before", where=where)
        monkeypatch.setattr(fsops, "sync_data", failing_sync)
        failing.add(path_of(ram_path))
        with pytest.raises(StorageFailed):
            await append(buffers, b"lost")
        with pytest.raises(HbufError):
            await append(buffers, b"not believed")
        await append(buffers, b"goes on", where=other)

    run(ram_path, work)
    assert verified(path_of(ram_path, other)) == [b"before", b"goes on"]
    assert verified(path_of(ram_path)) == [b"before"]


def test_only_so_many_buffers_are_kept_open(ram_path: Path) -> None:
    async def work(buffers: Buffers) -> int:
        for i in range(10):
            where = Where("default", f"b{i}")
            await buffers.create(where, {})
            await append(buffers, b"a", where=where)
        for i in range(10):
            await append(buffers, b"b", where=Where("default", f"b{i}"))
        return buffers.open_count

    assert run(ram_path, work, replace(Config.of_root(ram_path), limits=Limits(open_buffers=3))) <= 4
    for i in range(10):
        assert verified(path_of(ram_path, Where("default", f"b{i}"))) == [b"a", b"b"]


def test_quotas_hold_for_each_tenant(ram_path: Path) -> None:
    poor, rich = Where("poor", "b"), Where("rich", "b")
    config = replace(Config.of_root(ram_path), tenants={"poor": Quota(max_bytes=20_000, max_buffers=1)})

    async def work(buffers: Buffers) -> None:
        for where in (poor, rich):
            await buffers.create(where, {})
            await append(buffers, b"x" * 10_000, where=where)
        with pytest.raises(OverQuota):
            await append(buffers, b"x" * 10_000, where=poor)
        await append(buffers, b"x" * 10_000, where=rich)
        with pytest.raises(OverQuota):
            await buffers.create(Where("poor", "second"), {})
        await buffers.create(Where("rich", "second"), {})

    run(ram_path, work, config)


def test_a_signed_buffer_is_signed_with_a_key_that_the_daemon_makes(ram_path: Path) -> None:
    async def work(buffers: Buffers) -> None:
        await buffers.create(ORDERS, {}, sign=True)
        await append(buffers, b"a")

    run(ram_path, work)
    run(ram_path, lambda buffers: append(buffers, b"after a restart"))
    key = ram_path / "keys/default/orders.key"
    assert key.stat().st_mode & 0o777 == 0o600
    with hbuf.open(path_of(ram_path)) as buffer:
        report = buffer.verify()
        assert report.ok
        assert report.signatures == 3  # the PUT, and each append
    assert not any(b"SECRET" in file.read_bytes().upper() for file in path_of(ram_path).rglob("*") if file.is_file())


def test_what_was_accepted_is_stored_when_it_ends_and_nothing_after(ram_path: Path) -> None:
    async def running() -> list[object]:
        buffers = Buffers(Config.of_root(ram_path))
        await buffers.create(ORDERS, {})
        accepted = [asyncio.ensure_future(append(buffers, b"%d" % i)) for i in range(100)]
        await asyncio.sleep(0)
        await buffers.close()
        with pytest.raises(NotReady):
            await append(buffers, b"late")
        return [each.result() for each in accepted]

    assert len(asyncio.run(running())) == 100
    assert verified(path_of(ram_path)) == [b"%d" % i for i in range(100)]


def test_a_reader_is_not_misled_by_a_buffer_that_was_put_in_the_place_of_another(ram_path: Path) -> None:
    async def work(buffers: Buffers) -> None:
        await buffers.create(ORDERS, {})
        await append(buffers, b"old")
        assert await buffers.read(ORDERS, bodies) == [b"old"]
        shutil.rmtree(path_of(ram_path))
        await buffers.create(ORDERS, {})
        assert await buffers.read(ORDERS, bodies) == []
        await append(buffers, b"new")
        assert await buffers.read(ORDERS, bodies) == [b"new"]

    run(ram_path, work)
    assert verified(path_of(ram_path)) == [b"new"]


def test_damage_is_told_to_each_who_reads(ram_path: Path) -> None:
    async def work(buffers: Buffers) -> list[int]:
        await buffers.create(ORDERS, {})
        for body in (b"one", b"two", b"three"):
            await append(buffers, body)
        [segment] = path_of(ram_path).glob("segments/*.http")
        segment.write_bytes(segment.read_bytes().replace(b"x-hbuf-seq: 2", b"x-hbuf-sEq: 2"))

        def count_damage(reader: Reader) -> int:
            for chunk in reader.chunks(1, 4):
                for i in range(len(chunk.entries)):
                    if chunk.parse(i) is None:
                        reader.note_damage(chunk, i)
            return len(reader.damage)

        return [await buffers.read(ORDERS, count_damage) for _ in range(3)]

    assert run(ram_path, work) == [1, 1, 1]
