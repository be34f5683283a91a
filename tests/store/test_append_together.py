"""Several senders in one write: each request whole or refused by itself, in order, and durable when it is answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import hbuf
from hbuf.errors import (
    Closed,
    DiskFull,
    HbufError,
    Paused,
    PreconditionFailed,
    ProducerGap,
    StorageFailed,
    TooLarge,
)
from hbuf.format.chain import ZERO_ID
from hbuf.format.fields import encode_fields
from hbuf.ops.pause import pause
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.outgoing import Appended, Outgoing
from hbuf.store.signing import Signer
from hbuf.store.writer import Writer

NewKey = Callable[..., tuple[Path, str]]


@pytest.fixture
def orders(ram_path: Path) -> Path:
    hbuf.create(ram_path / "orders").close()
    return ram_path / "orders"


def writer_of(path: Path, **options: object) -> Writer:
    return Writer(BufferDirectory(path), **options)  # type: ignore[arg-type]


def stored(path: Path) -> list[bytes]:
    with hbuf.open(path) as buffer:
        assert buffer.verify().ok
        return [message.body for message in buffer.read()]


def appended(result: Appended | HbufError) -> Appended:
    assert isinstance(result, Appended), result
    return result


def one(body: bytes, number: int | None = None, **options: object) -> Outgoing:
    producers = None if number is None else [(b"till", number)]
    return Outgoing([body], producers=producers, **options)  # type: ignore[arg-type]


def unit(*bodies: bytes) -> Outgoing:
    return Outgoing(list(bodies), unit=True)


def test_requests_are_stored_in_their_order_with_one_sync(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []
    sync_data = fsops.sync_data
    with writer_of(orders) as writer:
        writer.append_together([one(b"first")])  # opening the buffer syncs, too

        def counted_sync(fd: int) -> None:
            syncs.append(fd)
            sync_data(fd)

        monkeypatch.setattr(fsops, "sync_data", counted_sync)
        fields = encode_fields("k", ["t"], [])
        results = writer.append_together([one(b"a"), unit(b"b", b"c"), Outgoing([b"d"], fields), one(b"e", 7)])
    assert len(syncs) == 1
    assert [appended(each).seqs for each in results] == [[2], [3, 4], [5], [6]]
    assert stored(orders) == [b"first", b"a", b"b", b"c", b"d", b"e"]
    content = (orders / "segments/00000000000000000001.http").read_bytes()
    assert content.count(b"x-hbuf-batch: 1/2\r\n") == content.count(b"x-hbuf-batch: 2/2\r\n") == 1
    assert content.count(b"x-hbuf-batch: ") == 2
    for result in results:
        for record_id in appended(result).ids:
            assert content.count(record_id) == 1


def test_one_that_is_refused_does_not_keep_the_others_out(orders: Path) -> None:
    hbuf.create(orders.with_name("small"), max_message_bytes="10").close()
    with writer_of(orders.with_name("small")) as writer:
        too_large, gap, fine = writer.append_together(
            [one(b"x" * 11), Outgoing([b"a", b"b"], producers=[(b"p", 1), (b"p", 3)], unit=False, strict_seq=True),
             one(b"x" * 10)]
        )  # fmt: skip
    assert isinstance(too_large, TooLarge)
    assert isinstance(gap, ProducerGap)
    assert appended(fine).seqs == [1]
    assert stored(orders.with_name("small")) == [b"x" * 10]


def test_a_duplicate_in_the_same_write_is_not_stored_again(orders: Path) -> None:
    with writer_of(orders) as writer:
        first, again, other, older = writer.append_together([one(b"a", 1), one(b"a", 1), one(b"b", 2), one(b"a", 1)])
        assert appended(first).seqs == [1]
        assert (appended(again).seqs, appended(again).duplicates) == ([1], {0})
        assert appended(other).seqs == [2]
        assert (appended(older).seqs, appended(older).duplicates) == ([0], {0})
        [once_more] = writer.append_together([one(b"b", 2)])
        assert (appended(once_more).seqs, appended(once_more).duplicates) == ([2], {0})
    assert stored(orders) == [b"a", b"b"]


def test_numbers_of_producers_are_known_to_the_next_writer(orders: Path) -> None:
    with writer_of(orders) as writer:
        writer.append_together([one(b"a", 1), one(b"b", 2)])
    with writer_of(orders) as writer:
        again, new = writer.append_together([one(b"b", 2), one(b"c", 3)])
    assert appended(again).duplicates == {0}
    assert appended(new).seqs == [3]
    assert stored(orders) == [b"a", b"b", b"c"]


def test_a_condition_holds_only_for_the_last_message(orders: Path) -> None:
    with writer_of(orders) as writer:
        first, refused = writer.append_together([one(b"a", after=ZERO_ID), one(b"b", after=ZERO_ID)])
        assert isinstance(refused, PreconditionFailed)
        last = appended(first).ids[0]
        [stale] = writer.append_together([one(b"c", after=ZERO_ID)])
        assert isinstance(stale, PreconditionFailed)
        [fine] = writer.append_together([one(b"d", after=last)])
        assert appended(fine).seqs == [2]
        writer.roll()
        [behind_a_roll] = writer.append_together([one(b"e", after=appended(fine).ids[0])])
        assert appended(behind_a_roll).seqs == [3]
    assert stored(orders) == [b"a", b"d", b"e"]


def test_a_duplicate_is_told_before_a_condition_is_looked_at(orders: Path) -> None:
    with writer_of(orders) as writer:
        writer.append_together([one(b"a", 1, after=ZERO_ID)])
        [again] = writer.append_together([one(b"a", 1, after=ZERO_ID)])
    assert appended(again).duplicates == {0}


def test_requests_go_on_in_the_next_segment_and_units_stay_whole(orders: Path) -> None:
    path = orders.with_name("rolling")
    hbuf.create(path, segment_messages="3").close()
    with writer_of(path) as writer:
        results = writer.append_together([one(b"1"), one(b"2"), unit(b"3", b"4"), one(b"5"), one(b"6"), one(b"7")])
        writer.seal_rolled()
    assert [appended(each).seqs for each in results] == [[1], [2], [3, 4], [5], [6], [7]]
    assert stored(path) == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]
    assert len(list(path.glob("segments/*.http"))) == 2  # the unit began in the first, and is not torn apart


def test_a_signed_buffer_gets_one_signature_for_all(new_key: NewKey, ram_path: Path) -> None:
    key, public = new_key("audit", "sign")
    hbuf.create(ram_path / "ledger", sign=key).close()
    with writer_of(ram_path / "ledger", signer=Signer(key)) as writer:
        writer.append_together([one(b"a"), one(b"b"), unit(b"c", b"d")])
    content = (ram_path / "ledger/segments/00000000000000000001.http").read_bytes()
    assert content.count(b"\r\nx-hbuf-sig: ") == 2  # that of the PUT, and one
    with hbuf.open(ram_path / "ledger") as buffer:
        assert buffer.verify(signer=public).ok


def test_an_encrypted_buffer_is_read_back(new_key: NewKey, ram_path: Path) -> None:
    identity, public = new_key("clinic")
    hbuf.create(ram_path / "results", encrypt_to=[public]).close()
    with writer_of(ram_path / "results") as writer:
        writer.append_together([one(b"a"), unit(b"b", b"c")])
        writer.append_together([one(b"d")])
    with hbuf.open(ram_path / "results", identities=[identity]) as buffer:
        assert [message.body for message in buffer.read()] == [b"a", b"b", b"c", b"d"]
        assert buffer.verify().ok


def test_a_sync_that_fails_fails_all_of_the_write_and_nothing_else_is_taken(
    orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writer_of(orders) as writer:
        writer.append_together([one(b"before", 1)])

        def fail(fd: int) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(fsops, "sync_data", fail)
            results = writer.append_together([one(b"a", 2), one(b"before", 1), one(b"a", 2)])
        assert [type(each) for each in results] == [StorageFailed] * 3
        assert all(isinstance(each, StorageFailed) and each.stored is None for each in results)  # nor taken back
        [later] = writer.append_together([one(b"later")])
        assert isinstance(later, Closed)


def test_a_full_disk_refuses_and_later_all_goes_on(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with writer_of(orders) as writer:
        writer.append_together([one(b"before", 1)])

        write_all_at, calls = fsops.write_all_at, iter([True])

        def full_once(fd: int, data: bytes, offset: int) -> None:
            if next(calls, False):
                write_all_at(fd, data[:100], offset)
                raise OSError(28, "No space left on device")
            write_all_at(fd, data, offset)

        monkeypatch.setattr(fsops, "write_all_at", full_once)
        results = writer.append_together([one(b"a", 2), one(b"b", 3)])
        assert [type(each) for each in results] == [DiskFull, DiskFull]
        assert all(isinstance(each, DiskFull) and each.stored == 0 for each in results)
        assert [appended(each).seqs for each in writer.append_together([one(b"a", 2), one(b"b", 3)])] == [[2], [3]]
    assert stored(orders) == [b"before", b"a", b"b"]


def test_a_pause_is_told_at_once_where_it_is_not_waited_for(orders: Path) -> None:
    hold = pause(str(orders), reason="backup", timeout_seconds=0)
    assert hold is not None
    with writer_of(orders, timeout_seconds=3600, wait_paused=False) as writer:
        [refused] = writer.append_together([one(b"a")])
        assert isinstance(refused, Paused)
        hold.release()
        [fine] = writer.append_together([one(b"a")])
        assert appended(fine).seqs == [1]


def test_nothing_asked_for_is_nothing_done(orders: Path) -> None:
    with writer_of(orders) as writer:
        assert writer.append_together([]) == []
        [empty] = writer.append_together([Outgoing([])])
    assert appended(empty).seqs == []
    assert stored(orders) == []
