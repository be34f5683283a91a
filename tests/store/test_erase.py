"""Erasing messages: nothing of them is left in any file, all else is as it was, and the chain says so."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hbuf.errors import Closed, Damaged, NotAllowed, NotFound, Paused
from hbuf.format import index
from hbuf.format.fields import encode_fields
from hbuf.ops.close import close
from hbuf.ops.create import create
from hbuf.ops.reindex import reindex
from hbuf.ops.verify import verify
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.erase import erase
from hbuf.store.index_file import read_index_header
from hbuf.store.markers import write_marker
from hbuf.store.outgoing import Outgoing
from hbuf.store.producers import load_producers
from hbuf.store.seal import build_tags
from hbuf.store.writer import Writer

from .checking import append_to, check_verifies, open_writer, read_all
from .erase_scenarios import (
    ERASE_SCENARIOS,
    SECRETS,
    EraseScenario,
    check_whole_or_erased,
    erase_in,
    holders,
    salt_of,
    store_secrets,
    with_salts,
)
from .scenarios import buffer_in

Files = dict[str, bytes]


def files_of(path: Path) -> Files:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.fixture
def path(ram_path: Path) -> Path:
    """A buffer with the messages of SECRETS, three a segment."""
    create(str(ram_path / "orders"), {"segment_messages": "3"})
    store_secrets(ram_path / "orders", SECRETS)
    return ram_path / "orders"


@pytest.mark.parametrize("scenario", ERASE_SCENARIOS, ids=str)
def test_nothing_of_an_erased_message_is_in_any_file(scenario: EraseScenario, ram_path: Path) -> None:
    scenario.prepare(ram_path)
    secrets = with_salts(buffer_in(ram_path))
    for each in (secrets[seq - 1] for seq in scenario.numbers):
        assert all(holders(buffer_in(ram_path), text) for text in each.texts)
    scenario.work(ram_path)
    scenario.check(ram_path, secrets, done=True)


@pytest.mark.parametrize("seq", range(1, 7))
def test_each_message_of_a_segment_can_be_erased_and_the_others_stay(path: Path, seq: int) -> None:
    length = (path / "segments" / f"{1:020d}.http").stat().st_size
    assert erase_in(path, seq) == 1
    check_whole_or_erased(path, SECRETS, (seq,), done=True)
    assert (path / "segments" / f"{1:020d}.http").stat().st_size == length


@pytest.mark.parametrize(
    ("body", "with_fields"),
    [(b"", True), (b"", False), (b"x" * 3_000_000, True), (b"\0" * 10, False), (b"POST /b/orders HTTP/1.1\r\n", False)],
    ids=["empty", "nothing at all", "large", "zeros", "like a record"],
)
def test_any_body_can_be_erased(ram_path: Path, body: bytes, with_fields: bool) -> None:
    create(str(ram_path / "orders"))
    with open_writer(ram_path / "orders") as writer:
        writer.append(Outgoing([body, b"behind"], encode_fields("k" if with_fields else None, [], [])))
    erase_in(ram_path / "orders", 1)
    erased, behind = read_all(ram_path / "orders")
    assert (erased.erased, erased.key, erased.body, behind.body) == (True, None, b"", b"behind")
    check_verifies(ram_path / "orders", 2)


def test_erased_again_nothing_is_written(path: Path) -> None:
    erase_in(path, 2, 4)
    before = files_of(path)
    assert erase_in(path, 2, 4) == 0
    assert files_of(path) == before


def test_erased_with_others_only_those_that_were_there_get_a_delete(path: Path) -> None:
    erase_in(path, 2)
    assert erase_in(path, 1, 2, 3) == 2
    assert [message.seq for message in read_all(path) if message.erased] == [1, 2, 3]
    assert verify(str(path), jobs=1).last_seq == 6 + 3


@pytest.mark.parametrize(
    ("numbers", "error"),
    [((2, 7), NotFound), ((1, 2, 99), NotFound), ((2, 8), NotAllowed)],
    ids=["the next", "far behind", "a DELETE"],
)
def test_one_number_that_cannot_be_erased_and_nothing_is(
    path: Path, numbers: tuple[int, ...], error: type[Exception]
) -> None:
    if error is NotAllowed:
        append_to(path, b"seven")
        erase_in(path, 7)
    before = files_of(path)
    with pytest.raises(error):
        erase_in(path, *numbers)
    assert files_of(path) == before


def test_damaged_message_is_not_erased(path: Path) -> None:
    segment = path / "segments" / f"{1:020d}.http"
    segment.write_bytes(segment.read_bytes().replace(b"body of apple", b"body of maple"))
    before = files_of(path)
    with pytest.raises(Damaged):
        erase_in(path, 1)
    assert files_of(path) == before


def test_not_erasable_buffer_is_refused(ram_path: Path) -> None:
    create(str(ram_path / "orders"), {"erasable": "false"})
    append_to(ram_path / "orders", b"one")
    with pytest.raises(NotAllowed):
        erase_in(ram_path / "orders", 1)
    assert [message.body for message in read_all(ram_path / "orders")] == [b"one"]


def _pause(path: Path) -> None:
    write_marker(path / "paused", "backup", 0)


def _close(path: Path) -> None:
    close(str(path), reason="over", timeout_seconds=0)


@pytest.mark.parametrize(("hold", "error"), [(_pause, Paused), (_close, Closed)], ids=["paused", "closed"])
def test_paused_or_closed_it_is_refused_as_an_append_is(
    path: Path, hold: Callable[[Path], None], error: type[Exception]
) -> None:
    hold(path)
    before = files_of(path)
    with Writer(BufferDirectory(path), timeout_seconds=0) as writer, pytest.raises(error):
        erase(writer, [1], b"me", b"why")
    assert files_of(path) == before


def test_index_and_tags_are_those_that_are_made_anew(path: Path) -> None:
    erase_in(path, 1, 3, 4, 5)
    before = files_of(path)
    reindex(str(path), timeout_seconds=0)
    after = files_of(path)
    for name in (f"segments/{first:020d}{suffix}" for first in (1, 4) for suffix in (".idx", ".tags")):
        assert after[name] == before[name]


def test_erase_counter_is_even_and_goes_up_for_the_segments_that_are_concerned(path: Path) -> None:
    def counters() -> list[int]:
        headers = [read_index_header(path / "segments" / f"{first:020d}.idx") for first in (1, 4)]
        return [header.erase_counter for header in headers if header]

    assert counters() == [0, 0]
    erase_in(path, 1, 2)
    assert counters() == [2, 0]
    erase_in(path, 3, 4)
    assert counters() == [4, 2]


def test_counter_goes_on_when_an_index_is_made_anew(path: Path) -> None:
    append_to(path, *[b"more"] * 2)
    newest = path / "segments" / f"{7:020d}.idx"
    erase_in(path, 7)
    content = newest.read_bytes()
    newest.write_bytes(content[: index.HEADER_BYTES] + bytes(len(content) - index.HEADER_BYTES))
    append_to(path, b"another")
    header = read_index_header(newest)
    assert header is not None
    assert header.erase_counter == 2
    check_verifies(path, 9)


def test_many_messages_take_few_syncs(ram_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(str(ram_path / "orders"))
    append_to(ram_path / "orders", *[b"body %d" % n for n in range(500)])
    syncs = 0
    sync_data = fsops.sync_data

    def counted(fd: int) -> None:
        nonlocal syncs
        syncs += 1
        sync_data(fd)

    monkeypatch.setattr(fsops, "sync_data", counted)
    assert erase_in(ram_path / "orders", *range(1, 501)) == 500
    assert syncs < 12
    check_verifies(ram_path / "orders", 500)


def test_batches_of_an_erase_are_erased_one_after_the_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hbuf.store.erase.BATCH_MESSAGES", 2)
    assert erase_in(path, 1, 2, 3, 5, 6) == 5
    check_whole_or_erased(path, SECRETS, (1, 2, 3, 5, 6), done=True)


def test_producers_stay_known(ram_path: Path) -> None:
    create(str(ram_path / "orders"), {"segment_messages": "1"})
    outgoing = Outgoing([b"one", b"two"], producers=[(b"sensor", 1), (b"sensor", 2)])
    with open_writer(ram_path / "orders") as writer:
        writer.append(outgoing)
    erase_in(ram_path / "orders", 1, 2)
    with open_writer(ram_path / "orders") as writer:
        assert writer.append(outgoing).duplicates == {0, 1}
    assert load_producers(ram_path / "orders" / "producers").last == {b"sensor": (2, 2)}


def test_writer_that_was_open_before_goes_on(path: Path) -> None:
    with open_writer(path) as writer:
        writer.append(Outgoing([b"before"]))
        erase_in(path, 7, 1)
        [seq] = writer.append(Outgoing([b"after"])).seqs
    assert seq == 10
    check_verifies(path, 8)


def test_message_whose_delete_is_in_the_log_gets_no_second_one(path: Path) -> None:
    segment = path / "segments" / f"{1:020d}.http"
    before = segment.read_bytes()
    erase_in(path, 2)
    erased = segment.read_bytes()
    segment.write_bytes(before)
    assert verify(str(path), jobs=1).verdicts["chain"]["unerased"] == 1
    assert erase_in(path, 2, 3, again=True) == 2
    assert segment.read_bytes() != erased
    assert verify(str(path), jobs=1).last_seq == 6 + 2
    check_whole_or_erased(path, SECRETS, (2, 3), done=True)


def test_unfinished_tags_file_is_gone(path: Path) -> None:
    left = path / "segments" / ".new-tags"
    left.write_bytes((path / "segments" / f"{1:020d}.tags").read_bytes())
    erase_in(path, 1)
    assert not left.exists()


def test_tags_that_were_read_before_an_erase_are_not_written_after_it(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tags files of rolled segments are made without the lock."""
    path = ram_path / "orders"
    create(str(path), {"segment_messages": "3"})
    store_secrets(path, SECRETS[:3])
    calls = 0

    def build_then_erase(directory: BufferDirectory, first: int) -> bytes:
        nonlocal calls
        built = build_tags(directory, first)
        calls += 1
        if calls == 1:
            erase_in(path, 2)
        return built

    monkeypatch.setattr("hbuf.store.rolled.build_tags", build_then_erase)
    append_to(path, b"rolls")
    assert calls >= 2
    check_verifies(path, 4)


def test_damaged_file_erasing_finishes_all_that_the_log_says(path: Path) -> None:
    before = (path / "segments" / f"{1:020d}.http").read_bytes()
    salt = salt_of(path, 2)
    erase_in(path, 2)
    (path / "segments" / f"{1:020d}.http").write_bytes(before)
    assert holders(path, salt)
    (path / "erasing").write_bytes(b"\xff\n")
    append_to(path, b"opens it")
    assert not (path / "erasing").exists()
    assert not holders(path, salt)
    check_verifies(path, 7)


def test_numbers_in_erasing_that_no_delete_names_are_dropped(path: Path) -> None:
    (path / "erasing").write_bytes(b"1-3\n5\n")
    notices: list[str] = []
    with Writer(BufferDirectory(path), notice=notices.append) as writer:
        writer.append(Outgoing([b"opens it"]))
    assert not (path / "erasing").exists()
    assert len(notices) == 1
    assert not any(message.erased for message in read_all(path))
    check_verifies(path, 7)


def test_erase_that_was_interrupted_is_finished_by_a_writer_that_was_open(path: Path) -> None:
    """Nothing shows at the end of the log, where its DELETE has long been."""
    before = (path / "segments" / f"{1:020d}.http").read_bytes()
    erase_in(path, 2)
    with open_writer(path) as writer:
        writer.append(Outgoing([b"seven"]))
        (path / "segments" / f"{1:020d}.http").write_bytes(before)
        (path / "erasing").write_bytes(b"2\n")
        writer.append(Outgoing([b"eight"]))
    check_whole_or_erased(path, SECRETS, (2,), done=True)
