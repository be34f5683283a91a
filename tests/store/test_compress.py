"""Compressing sealed segments: nothing changes for readers, whatever happens meanwhile, and nothing is trusted."""

import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hbuf
import hbuf.store.compress
from hbuf.errors import Damaged, DiskFull, Locked, Paused, StorageFailed
from hbuf.format import index
from hbuf.ops.close import close
from hbuf.ops.compress import Compressed, compress
from hbuf.ops.create import create
from hbuf.ops.pause import pause, resume
from hbuf.ops.reindex import reindex
from hbuf.ops.set import set_settings
from hbuf.ops.tail import messages
from hbuf.ops.verify import verify
from hbuf.store import fsops, segment_file
from hbuf.store.directory import BufferDirectory
from hbuf.store.reader import Reader

from .checking import append, append_to, check_survived, check_verifies, open_writer, read_all, stored_of
from .compressed_buffer import BODIES, FURTHER_SEQ, CompressedBuffer

WAIT_SECONDS = 20


@pytest.fixture
def plain(ram_path: Path) -> Path:
    """Three segments of two messages, and the newest with one."""
    path = ram_path / "plain"
    create(str(path), {"segment_messages": "2"})
    append_to(path, *BODIES[:7])
    return path


def segment_files(path: Path) -> list[str]:
    """The files of the segments, in their order, without the zeros in front."""
    return [name.lstrip("0") for name in sorted(file.name for file in path.glob("segments/*.http*"))]


def names(path: Path) -> set[str]:
    return set(os.listdir(path / "segments"))


def run(path: Path) -> bool:
    return compress(str(path), timeout_seconds=WAIT_SECONDS)


def test_all_but_the_newest_are_compressed_and_say_so(plain: Path) -> None:
    before = read_all(plain)
    sizes = [(plain / "segments" / f"{first:020d}.http").stat().st_size for first in (1, 3, 5)]
    told: list[Compressed] = []
    assert compress(str(plain), timeout_seconds=WAIT_SECONDS, done=told.append)
    assert segment_files(plain) == ["1.http.zst", "3.http.zst", "5.http.zst", "7.http"]
    assert [each.plain_bytes for each in told] == sizes
    assert [each.bytes for each in told] == [(plain / "segments" / each.file).stat().st_size for each in told]
    assert read_all(plain) == before
    check_survived(plain, stored_of(before))


def test_compressing_again_changes_nothing(compressed: CompressedBuffer) -> None:
    content = compressed.file.read_bytes()
    assert run(compressed.path)
    assert compressed.file.read_bytes() == content


def test_every_message_is_found_by_its_number_and_its_time(compressed: CompressedBuffer) -> None:
    assert len(compressed.frames()) > 10
    with Reader(compressed.directory) as reader:
        times = [reader.time_of(seq) for seq in range(1, FURTHER_SEQ + 1)]
        for seq, stored in enumerate(compressed.stored, 1):
            assert stored_of(messages(reader, seq, seq + 1)) == [stored]
            time_us = times[seq - 1]
            assert time_us is not None
            assert times[reader.first_at(time_us) - 1] == time_us
        assert reader.damage == {}


def test_without_an_index_a_compressed_segment_is_scanned(compressed: CompressedBuffer) -> None:
    compressed.directory.index(1).unlink()
    assert stored_of(hbuf.open(compressed.path).read("first")) == compressed.stored


def test_index_and_tags_file_are_made_anew_from_a_compressed_segment(compressed: CompressedBuffer) -> None:
    files = [compressed.directory.index(1), compressed.directory.tags(1)]
    before = [file.read_bytes() for file in files]
    for file in files:
        file.unlink()
    assert reindex(str(compressed.path), timeout_seconds=WAIT_SECONDS)
    assert [file.read_bytes() for file in files] == before
    check_verifies(compressed.path, FURTHER_SEQ)


def test_few_frames_are_kept_however_many_segments_are_open(plain: Path) -> None:
    append_to(plain, *BODIES[7:])
    assert run(plain)
    with Reader(BufferDirectory(plain)) as reader:
        assert len(list(messages(reader, 1, len(BODIES) + 1))) == len(BODIES)
        assert 0 < len(segment_file._recent) <= 4
    assert len(segment_file._recent) == 0


def test_reader_goes_on_across_the_change(plain: Path) -> None:
    before = read_all(plain)
    with Reader(BufferDirectory(plain)) as reader:
        # It has the first segment open, and has only listed the others.
        assert list(messages(reader, 1, 3)) == before[:2]
        found = messages(reader, 1, 8)
        first = next(found)
        assert run(plain)
        assert [first, *found] == before
        reader.refresh()
        assert list(messages(reader, 1, 8)) == before
        assert reader.damage == {}


def test_mode_is_that_of_the_directory(plain: Path) -> None:
    (plain / "segments").chmod(0o770)
    assert run(plain)
    modes = {stat.S_IMODE(file.stat().st_mode) for file in plain.glob("segments/*.zst")}
    assert modes == {0o660}


def test_compressors_at_the_same_time_do_not_disturb_each_other(plain: Path) -> None:
    append_to(plain, *BODIES[7:])
    before = read_all(plain)
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.append(run(plain))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 3
    assert len(list(plain.glob("segments/*.http"))) == 1
    assert not list(plain.glob("segments/.new-compressed*"))
    assert read_all(plain) == before
    check_verifies(plain, len(before))


def test_writer_that_rolls_meanwhile_is_not_disturbed(plain: Path) -> None:
    bodies = [b"meanwhile %d" % n for n in range(80)]
    failed: list[BaseException] = []
    done = threading.Event()

    def compress_all_the_time() -> None:
        try:
            while not done.is_set():
                assert run(plain)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=compress_all_the_time)
    thread.start()
    try:
        with open_writer(plain) as writer:
            stored = [each for body in bodies for each in append(writer, [body])]
    finally:
        done.set()
        thread.join()
    assert failed == []
    check_survived(plain, stored, BODIES)
    assert run(plain)
    assert len(list(plain.glob("segments/*.http"))) == 1


def test_writer_whose_segment_was_rolled_and_compressed_by_others_goes_on_behind_it(plain: Path) -> None:
    with open_writer(plain) as writer:
        append(writer, [b"mine"])
        append_to(plain, b"others 1", b"others 2", b"others 3")
        # What it has open stays plain, since it is damaged; the one behind it is compressed.
        file = plain / "segments" / f"{7:020d}.http"
        content = file.read_bytes()
        file.write_bytes(content.replace(b"mine", b"mind"))
        assert not run(plain)
        assert "9.http.zst" in segment_files(plain)
        file.write_bytes(content)
        append(writer, [b"mine again"])
    assert [message.body for message in read_all(plain)][7:] == [
        b"mine",
        b"others 1",
        b"others 2",
        b"others 3",
        b"mine again",
    ]
    check_verifies(plain, 12)


def test_what_another_process_is_building_is_waited_for_and_left_alone(plain: Path) -> None:
    building = plain / "segments" / f".new-compressed-{1:020d}"
    building.write_bytes(b"half")
    with building.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Locked, match="is being compressed by another"):
            compress(str(plain), timeout_seconds=0)
        assert building.read_bytes() == b"half"
        assert "1.http" in segment_files(plain)
    assert run(plain)
    assert not building.exists()
    assert "1.http.zst" in segment_files(plain)


def test_what_a_crash_left_is_removed(plain: Path) -> None:
    for first in (1, 7, 9):
        (plain / "segments" / f".new-compressed-{first:020d}").write_bytes(b"half")
    stranger = plain / "segments" / ".new-compressed-by-hand"
    stranger.write_bytes(b"not ours")
    assert run(plain)
    assert [file.name for file in plain.glob("segments/.new*")] == [stranger.name]


@pytest.mark.parametrize("content", [b"", b"garbage", None], ids=["empty", "garbage", "whole"])
def test_plain_segment_counts_and_the_compressed_one_beside_it_is_made_anew(
    compressed: CompressedBuffer, content: bytes | None
) -> None:
    """As after a crash between the two steps, or worse."""
    whole = compressed.file.read_bytes()
    compressed.directory.segment(1).write_bytes(compressed.plain)
    if content is not None:
        compressed.file.write_bytes(content)
    report = verify(str(compressed.path))
    assert report.ok
    assert [note for note in report.notes if compressed.file.name in note]
    assert stored_of(read_all(compressed.path)) == compressed.stored
    assert run(compressed.path)
    assert not compressed.directory.segment(1).exists()
    assert compressed.file.read_bytes() == whole


def test_damaged_segment_is_left_plain_and_said(plain: Path) -> None:
    file = plain / "segments" / f"{3:020d}.http"
    content = file.read_bytes().replace(b"body 3", b"BODY 3")
    file.write_bytes(content)
    said: list[str] = []
    assert not compress(str(plain), timeout_seconds=WAIT_SECONDS, notice=said.append)
    assert segment_files(plain) == ["1.http.zst", "3.http", "5.http.zst", "7.http"]
    assert file.read_bytes() == content
    [line] = said
    assert line.startswith(f"{file.name}: damaged at byte ")
    assert not list(plain.glob("segments/.new*"))


def test_damaged_plain_segment_does_not_take_the_compressed_one_beside_it_with_it(
    compressed: CompressedBuffer,
) -> None:
    """As when somebody unpacked it by hand, and the disk was full."""
    content = compressed.file.read_bytes()
    last = compressed.plain.rindex(b"POST /b/orders")
    for cut in (compressed.plain[:-100], compressed.plain[:last]):
        compressed.directory.segment(1).write_bytes(cut)
        assert not run(compressed.path)
        assert compressed.directory.segment(1).read_bytes() == cut
        assert compressed.file.read_bytes() == content


def test_paused_buffer_is_waited_for(plain: Path) -> None:
    pause(str(plain), reason="", timeout_seconds=WAIT_SECONDS)
    before = names(plain)
    with pytest.raises(Paused):
        compress(str(plain), timeout_seconds=0)
    assert names(plain) == before


def test_what_is_being_built_holds_still_during_a_pause(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[tuple[set[str], bytes]] = []

    def state() -> tuple[set[str], bytes]:
        [building] = plain.glob("segments/.new*")
        return names(plain), building.read_bytes()

    def pause_behind(write_all_at: Callable[[int, bytes, int], None], fd: int, data: bytes, offset: int) -> None:
        write_all_at(fd, data, offset)
        pause(str(plain), reason="", timeout_seconds=WAIT_SECONDS)
        held.append(state())

    monkeypatch.setattr(hbuf.store.compress, "FRAME_BYTES", 512)
    once(monkeypatch, "write_all_at", pause_behind)
    with pytest.raises(Paused):
        compress(str(plain), timeout_seconds=0.1)
    assert held == [state()]
    resume(str(plain), timeout_seconds=WAIT_SECONDS)
    assert run(plain)
    assert not list(plain.glob("segments/.new*"))
    check_verifies(plain, 7)


def test_closed_buffer_can_be_compressed(plain: Path) -> None:
    close(str(plain), reason="the year is over", timeout_seconds=WAIT_SECONDS)
    assert run(plain)
    assert segment_files(plain) == ["1.http.zst", "3.http.zst", "5.http.zst", "7.http"]


def once(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[..., Any]) -> None:
    """The next call of an fsops function calls `act` with it and its arguments instead."""
    original = getattr(fsops, name)

    def replaced(*arguments: Any) -> Any:
        monkeypatch.setattr(fsops, name, original)
        return act(original, *arguments)

    monkeypatch.setattr(fsops, name, replaced)


def test_segment_that_was_erased_from_meanwhile_is_read_again(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = plain / "segments" / f"{1:020d}.http"
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)

    def erase(sync_data: Callable[[int], None], fd: int) -> None:
        sync_data(fd)
        with file.with_suffix(".idx").open("r+b") as counted:
            counted.seek(index.ERASE_COUNTER_AT)
            counted.write(index.LENGTH.pack(1))
        file.write_bytes(file.read_bytes().replace(b"body 0", b"BODY 0"))
        os.utime(file, ns=times)  # the counter tells, not the clock

    once(monkeypatch, "sync_data", erase)
    said: list[str] = []
    assert not compress(str(plain), timeout_seconds=WAIT_SECONDS, notice=said.append)
    # It noticed only because it read again: what it had built was whole.
    assert said[0].startswith(f"{file.name}: damaged")
    assert "1.http" in segment_files(plain)
    assert "1.http.zst" not in segment_files(plain)


def test_what_reads_back_otherwise_is_not_taken(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flip(write_all_at: Callable[[int, bytes, int], None], fd: int, data: bytes, offset: int) -> None:
        write_all_at(fd, data[:50] + bytes([data[50] ^ 1]) + data[51:], offset)

    before = names(plain)
    once(monkeypatch, "write_all_at", flip)
    with pytest.raises(StorageFailed, match="reads back otherwise"):
        run(plain)
    assert names(plain) == before
    assert run(plain)


@pytest.mark.parametrize("call", ["create_file", "write_all_at", "sync_data", "rename"])
def test_full_disk_leaves_everything_as_it_was(plain: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    before = names(plain)
    once(monkeypatch, call, fail)
    with pytest.raises(DiskFull):
        run(plain)
    assert names(plain) == before
    assert run(plain)


def test_writer_compresses_what_it_rolled_where_that_is_set(ram_path: Path) -> None:
    path = ram_path / "orders"
    create(str(path), {"segment_messages": "2", "compress": "true"})
    stored = append_to(path, *BODIES[:5])
    assert segment_files(path) == ["1.http.zst", "3.http.zst", "5.http"]
    set_settings(str(path), {"compress": "false"}, timeout_seconds=WAIT_SECONDS)
    stored += append_to(path, *BODIES[5:10])
    assert segment_files(path) == ["1.http.zst", "3.http.zst", "5.http", "6.http", "8.http", "10.http"]
    set_settings(str(path), {"compress": "true"}, timeout_seconds=WAIT_SECONDS)
    assert segment_files(path)[-2:] == ["10.http.zst", "11.http"]
    check_survived(path, stored)


def test_newest_segment_that_is_compressed_means_that_one_is_missing(compressed: CompressedBuffer) -> None:
    newest = compressed.directory.segment(FURTHER_SEQ)
    newest.unlink()
    newest.with_suffix(".idx").unlink()
    [fault] = [fault for fault in compressed.faults() if fault.kind == "completeness"]
    assert "one is missing behind it" in fault.reason
    assert stored_of(read_all(compressed.path)) == compressed.stored[:-1]
    with pytest.raises(Damaged, match="one is missing behind it") as caught:
        append_to(compressed.path, b"more")
    assert "zstd -d" in (caught.value.hint or "")
    # What the hint says works.
    compressed.directory.segment(1).write_bytes(compressed.plain)
    compressed.directory.settings.unlink()  # it is of the segment that is gone
    append_to(compressed.path, b"more")
