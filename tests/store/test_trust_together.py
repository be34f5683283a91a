"""Erasing in buffers that are signed, encrypted and compressed: nothing of a message is left in any file of them."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hbuf.store.compress
from hbuf.ops.compress import compress
from hbuf.ops.filter import Filter
from hbuf.ops.reindex import reindex
from hbuf.ops.tail import messages
from hbuf.store import fsops
from hbuf.store.reader import Reader

from .checking import Answers, content_of
from .compressed_buffer import FRAME_BYTES
from .dying import fork, kill_oneself, work_until
from .erase_scenarios import SECRETS, holders
from .trusted_buffer import TRUSTS, Trust, TrustedBuffer

COMPRESSED = Trust(compressed=True)
PLAIN = Trust()


@pytest.fixture(autouse=True)
def _small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that messages lie in several."""
    monkeypatch.setattr(hbuf.store.compress, "FRAME_BYTES", FRAME_BYTES)


@pytest.mark.parametrize("trust", TRUSTS, ids=str)
def test_erased_message_is_in_no_file_and_the_others_can_be_read(trust: Trust, ram_path: Path) -> None:
    buffer = TrustedBuffer(ram_path, trust)
    for each in (buffer.secrets[1], buffer.secrets[3]):
        assert all(holders(buffer.path, text) for text in each.texts)
    assert buffer.erase(2, 4) == 2
    buffer.check(2, 4)
    buffer.check_verifies()


@pytest.mark.parametrize("trust", TRUSTS, ids=str)
def test_erased_again_nothing_is_written(trust: Trust, ram_path: Path) -> None:
    buffer = TrustedBuffer(ram_path, trust)
    buffer.erase(2, 4)
    before = content_of(ram_path)
    assert buffer.erase(2, 4) == 0
    assert content_of(ram_path) == before


@pytest.mark.parametrize("trust", TRUSTS, ids=str)
def test_index_and_tags_after_an_erase_are_those_that_are_made_anew(trust: Trust, ram_path: Path) -> None:
    buffer = TrustedBuffer(ram_path, trust)
    buffer.erase(1, 4, 6)
    before = content_of(buffer.path / "segments")
    assert reindex(str(buffer.path), timeout_seconds=20)
    assert content_of(buffer.path / "segments") == before
    buffer.check(1, 4, 6)


def test_what_was_erased_before_stays_so_when_it_is_compressed(ram_path: Path) -> None:
    buffer = TrustedBuffer(ram_path, Trust(signed=True, encrypted=True))
    buffer.erase(1, 3, 5)
    buffer.compress()
    assert not buffer.directory.segment(1).exists()
    buffer.check(1, 3, 5)
    assert buffer.erase(2) == 1
    buffer.check(1, 2, 3, 5)
    buffer.check_verifies()


def test_message_goes_from_both_files_where_compressing_was_interrupted(ram_path: Path) -> None:
    buffer = TrustedBuffer(ram_path, PLAIN)
    plain = {first: buffer.directory.segment(first).read_bytes() for first in (1, 4)}
    buffer.compress()
    for first, content in plain.items():
        buffer.directory.segment(first).write_bytes(content)
    buffer.erase(2)
    buffer.check(2)
    assert buffer.directory.compressed(4).exists(), "it was not concerned"
    buffer.compress()
    buffer.check(2)


def test_what_compressing_was_building_when_it_died_is_gone_with_the_message(ram_path: Path) -> None:
    buffer = TrustedBuffer(ram_path, PLAIN)
    building = buffer.directory.segments / f".new-compressed-{1:020d}"

    def build_and_die(where: Path, answers: Answers) -> None:
        compress(str(buffer.path), timeout_seconds=20)

    point = 0
    while f"segments/{building.name}" not in holders(buffer.path, buffer.secrets[1].salt):
        assert work_until(build_and_die, ram_path, point, "after").died
        point += 1
    assert buffer.directory.segment(1).exists()
    buffer.erase(2)
    buffer.check(2)


# Readers that have a segment open


def _all_of(reader: Reader, wanted: Filter | None = None) -> dict[int, bool]:
    """The numbers of what it shows, and whether each is erased."""
    found = {
        message.seq: message.erased
        for message in messages(reader, reader.first_seq, reader.end_seq, wanted or Filter())
    }
    assert reader.damage == {}
    return found


@pytest.mark.parametrize("indexed", [True, False], ids=["with an index", "without one"])
@pytest.mark.parametrize("trust", [PLAIN, COMPRESSED], ids=str)
def test_reader_that_has_the_segment_open_shows_the_message_as_erased(
    trust: Trust, indexed: bool, ram_path: Path
) -> None:
    buffer = TrustedBuffer(ram_path, trust)
    if not indexed:
        buffer.directory.index(1).unlink()
    with Reader(buffer.directory) as reader:
        assert not any(_all_of(reader).values())
        buffer.erase(2)
        assert [seq for seq, is_erased in _all_of(reader).items() if is_erased] == [2]
        assert _all_of(reader, Filter(key=SECRETS[1].key)) == {}
        assert list(_all_of(reader, Filter(key=SECRETS[2].key))) == [3]


@pytest.mark.parametrize("indexed", [True, False], ids=["with an index", "without one"])
def test_reader_whose_plain_segment_was_compressed_and_then_erased_in_shows_the_message_as_erased(
    indexed: bool, ram_path: Path
) -> None:
    buffer = TrustedBuffer(ram_path, PLAIN)
    if not indexed:
        buffer.directory.index(1).unlink()
    with Reader(buffer.directory) as reader:
        assert not any(_all_of(reader).values())
        buffer.compress()
        buffer.erase(2)
        assert [seq for seq, is_erased in _all_of(reader).items() if is_erased] == [2]


@pytest.mark.parametrize("made_anew", [True, False], ids=["made anew", "missing"])
def test_reader_is_not_misled_by_an_index_that_was_lost_meanwhile(made_anew: bool, ram_path: Path) -> None:
    """Made anew, it counts erases from 0 again."""
    buffer = TrustedBuffer(ram_path, COMPRESSED)
    buffer.erase(1)
    with Reader(buffer.directory) as reader:
        assert [seq for seq, is_erased in _all_of(reader).items() if is_erased] == [1]
        buffer.directory.index(1).unlink()
        if made_anew:
            assert reindex(str(buffer.path), timeout_seconds=20)
        buffer.erase(2)
        assert [seq for seq, is_erased in _all_of(reader).items() if is_erased] == [1, 2]


# Erasing while another compresses


def _erase_at(monkeypatch: pytest.MonkeyPatch, point: int, erase: Callable[[], object]) -> Callable[[], int]:
    """Erases ahead of call number `point` that writes or syncs what is being built. Returns what counts them."""
    count = 0

    def is_being_built(fd: int) -> bool:
        return ".new-compressed-" in os.readlink(f"/proc/self/fd/{fd}")

    def interrupted(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(fd: int, *arguments: Any) -> Any:
            nonlocal count
            if is_being_built(fd):
                count += 1
                if count == point:
                    erase()
            return call(fd, *arguments)

        return called

    for name in ("write_all_at", "sync_data"):
        monkeypatch.setattr(fsops, name, interrupted(getattr(fsops, name)))
    return lambda: count


@pytest.mark.parametrize("point", range(1, 7))
def test_erased_while_the_segment_is_being_compressed_it_does_not_come_back(
    point: int, ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = TrustedBuffer(ram_path, Trust(signed=True, encrypted=True))
    calls = _erase_at(monkeypatch, point, lambda: buffer.erase(2))
    buffer.compress()
    assert calls() > point
    assert not buffer.directory.segment(1).exists()
    buffer.check(2)
    buffer.check_verifies()


def test_compressor_that_dies_behind_an_erase_that_it_has_not_noticed_leaves_nothing_of_the_message(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = TrustedBuffer(ram_path, PLAIN)

    def erase_and_die() -> None:
        buffer.erase(2)
        kill_oneself()

    def compress_all() -> None:
        _erase_at(monkeypatch, 3, erase_and_die)
        buffer.compress()

    assert os.waitstatus_to_exitcode(os.waitpid(_started(compress_all), 0)[1]) == -signal.SIGKILL
    buffer.check(2)


def test_erasers_and_compressors_at_the_same_time_neither_lose_nor_bring_back(ram_path: Path) -> None:
    buffer = TrustedBuffer(ram_path, Trust(signed=True))
    buffer.append(*[b"more %d " % n + b"." * 2000 for n in range(60)])
    wanted = range(8, 68, 2)

    def erase_one_by_one() -> None:
        for seq in wanted:
            buffer.erase(seq)

    def compress_again_and_again() -> None:
        for _ in range(10):
            buffer.compress()

    children = [_started(work) for work in (erase_one_by_one, compress_again_and_again, compress_again_and_again)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0, 0, 0]
    found = buffer.read()
    assert [message.seq for message in found if message.erased] == list(wanted)
    bodies = [message.body.split(b" .")[0] for message in found[7:] if not message.erased]
    assert bodies == [b"more %d" % n for n in range(1, 60, 2)]
    assert not [text for n in range(0, 60, 2) for text in holders(buffer.path, b"more %d ." % n)]
    buffer.check_verifies()


def _started(work: Callable[[], object]) -> int:
    child = fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(70)
    return child
