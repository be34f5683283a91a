"""Retiring while others write, read and follow, while a backup runs, and while the disk is full."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import hbuf
from hbuf.format.deletes import Retirement, encode_delete
from hbuf.format.places import parse_place
from hbuf.ops.create import create
from hbuf.ops.ls import list_buffer
from hbuf.ops.pause import pause, resume
from hbuf.ops.retire import retire
from hbuf.ops.set import set_settings
from hbuf.ops.tail import Follower, messages
from hbuf.ops.verify import verify
from hbuf.store.directory import BufferDirectory
from hbuf.store.reader import Reader

from .checking import append_to, read_all
from .real_command import APPEND, ENVIRONMENT
from .retiring import Retiring

DEADLINE_SECONDS = 30


def _program(verb: str) -> list[str]:
    return [sys.executable, "-c", f"from hbuf.cli.{verb} import main; main()"]


@pytest.fixture
def buffer(tmp_path: Path) -> Retiring:
    made = Retiring(tmp_path / "orders", retention_messages="3")
    made.append(9)
    return made


# Readers


def test_reader_that_has_a_segment_open_reads_it_to_its_end(buffer: Retiring) -> None:
    with Reader(BufferDirectory(buffer.path)) as reader:
        found = messages(reader, 1, reader.end_seq)
        assert next(found).seq == 1
        buffer.retire()
        assert [message.seq for message in found] == [2, 7, 8, 9]
        assert reader.retired_seq == 6
        assert reader.first_seq == 7


def test_reader_that_starts_at_a_retired_number_goes_on_from_the_first_still_there(buffer: Retiring) -> None:
    buffer.retire()
    assert [message.seq for message in hbuf.open(buffer.path).read("5")] == [7, 8, 9]
    with Reader(BufferDirectory(buffer.path)) as reader:
        assert [message.seq for message in messages(reader, 2, 8)] == [7]
        assert reader.retired_seq == 6


@pytest.mark.parametrize("place", ["first", "last", "end", "-4", "@2000-01-01"])
def test_place_that_no_number_names_is_not_retired(buffer: Retiring, place: str) -> None:
    buffer.retire()
    with Reader(BufferDirectory(buffer.path)) as reader:
        list(messages(reader, reader.resolve(parse_place(place, 0)), reader.end_seq))
        assert reader.retired_seq == 0


def test_place_by_time_is_found_although_segments_go_meanwhile(buffer: Retiring) -> None:
    times = {message.seq: message.time_us for message in read_all(buffer.path)}
    with Reader(BufferDirectory(buffer.path)) as reader:
        buffer.retire()
        assert reader.first_at(times[8]) == 8
        assert reader.first_at(times[2]) == 7


def test_reader_lets_go_of_segments_that_are_retired(buffer: Retiring) -> None:
    """As long as somebody has one open, its room on the disk is not free."""

    def open_files() -> list[str]:
        links = [
            os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2 and _is_open(fd)
        ]
        return sorted(Path(link).name for link in links if str(buffer.path / "segments") in link)

    with Reader(BufferDirectory(buffer.path)) as reader:
        list(messages(reader, 1, reader.end_seq))
        assert len(open_files()) == 5
        buffer.retire()
        buffer.append(3)
        reader.refresh()
        assert not [file for file in open_files() if "deleted" in file]
        assert [message.seq for message in messages(reader, 1, reader.end_seq)] == [7, 8, 9, 11, 12, 13]


def _is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def test_follower_that_is_overtaken_goes_on_from_the_first_still_there(buffer: Retiring) -> None:
    with Reader(BufferDirectory(buffer.path)) as reader:
        follower = Follower(reader, poll=True)
        list(messages(reader, 1, 3))
        buffer.append(10)
        buffer.retire()
        end = follower.wait(3, timeout_seconds=DEADLINE_SECONDS)
        seqs = [message.seq for message in messages(reader, 3, end)]
        assert seqs == buffer.seqs
        assert reader.retired_seq == seqs[0] - 1


@pytest.mark.parametrize(
    ("place", "seqs"), [("last", [13]), ("-1", [13]), ("-3", [11, 12, 13]), ("-5", [8, 9, 11, 12, 13])]
)
def test_place_counted_from_the_end_counts_messages_only(buffer: Retiring, place: str, seqs: list[int]) -> None:
    buffer.retire()  # 10 says so
    buffer.append(3)
    set_settings(str(buffer.path), {"retention_messages": "2"}, timeout_seconds=20)
    with buffer.writer() as writer, writer.locked():
        prev = buffer.segment(7).read_bytes().split(b"x-hbuf-prev: ")[1][:64]
        writer.append_deletes([encode_delete(Retirement(6, prev), b"me", b"again")])
    assert [message.seq for message in hbuf.open(buffer.path).read(place)] == seqs
    assert [message.seq for message in hbuf.open(buffer.path).read("-99")] == [7, 8, 9, 11, 12, 13]


def test_list_shows_the_first_that_is_there(buffer: Retiring) -> None:
    buffer.retire()
    listing = list_buffer(BufferDirectory(buffer.path))
    assert (listing.first, listing.last, listing.messages, listing.state) == (7, 10, 4, "open")


# Processes


LINES = 250  # of each writer


def _write(path: Path, name: str) -> "subprocess.Popen[bytes]":
    """A real hbuf-append, a batch for each of its messages."""
    command = [*APPEND, str(path), "-v", "--fsync", "always", "--timeout", "30s"]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT)
    assert writer.stdin is not None
    writer.stdin.write(b"".join(b"%s %d\n" % (name.encode(), n) for n in range(LINES)))
    writer.stdin.close()
    return writer


@pytest.fixture
def started() -> Iterator[list["subprocess.Popen[bytes]"]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def test_writers_and_a_follower_go_on_while_segments_are_retired(
    tmp_path: Path, started: list["subprocess.Popen[bytes]"]
) -> None:
    path, shown = tmp_path / "orders", tmp_path / "shown"
    create(str(path), {"segment_messages": "4", "retention_messages": "12"})
    with shown.open("wb") as out:
        command = [*_program("tail"), "-f", "-o", "first", "--json", str(path)]
        started.append(subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=ENVIRONMENT))
    writers = [_write(path, name) for name in ("one", "two")]
    started += writers
    deadline = time.monotonic() + DEADLINE_SECONDS
    plans, reports = [], []
    while any(process.poll() is None for process in writers):
        assert time.monotonic() < deadline
        plans.append(retire(str(path), timeout_seconds=20))
        reports.append(verify(str(path), jobs=1))
    plans.append(retire(str(path), timeout_seconds=20))
    reports.append(verify(str(path), jobs=1))
    assert all(report.ok for report in reports), [str(fault) for report in reports for fault in report.faults]
    assert [process.returncode for process in writers] == [0, 0]
    runs = [plan for plan in plans if plan.segments]
    assert runs
    stored = [int(line.split()[0]) for writer in writers if writer.stdout for line in writer.stdout]
    assert len(stored) == len(set(stored)) == 2 * LINES
    assert reports[-1].last_seq == 2 * LINES + len(runs)  # each run took a number for its DELETE
    left = [message.seq for message in read_all(path)]
    assert left == [seq for seq in sorted(stored) if seq >= reports[-1].first_seq]
    last = f'"seq":{max(stored)},'
    while last not in shown.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    followed = [json.loads(line)["seq"] for line in shown.read_text().splitlines()]
    assert followed == sorted(set(followed) & set(stored))


# Backup


def test_backup_of_a_paused_buffer_is_whole_although_it_is_to_be_retired(buffer: Retiring, tmp_path: Path) -> None:
    command = [*_program("retire"), str(buffer.path), "--timeout", "30s"]
    pause(str(buffer.path), reason="backup", timeout_seconds=0)
    waiting = subprocess.Popen(command, env=ENVIRONMENT)
    try:
        subprocess.run(["tar", "cf", tmp_path / "backup.tar", "-C", tmp_path, "orders"], check=True)
        assert waiting.poll() is None
        assert buffer.firsts[0] == 1
        resume(str(buffer.path), timeout_seconds=0)
        assert waiting.wait(DEADLINE_SECONDS) == 0
    finally:
        waiting.kill()
        waiting.wait()
    assert buffer.firsts[0] == 7
    restored = tmp_path / "restored"
    restored.mkdir()
    subprocess.run(["tar", "xpf", tmp_path / "backup.tar", "-C", restored], check=True)
    resume(str(restored / "orders"), timeout_seconds=0)
    assert verify(str(restored / "orders"), jobs=1).ok
    assert retire(str(restored / "orders"), timeout_seconds=0).end == 6
    assert verify(str(restored / "orders"), jobs=1).ok


def test_backup_of_a_buffer_whose_retirement_was_interrupted_is_finished_where_it_is_restored(
    buffer: Retiring, tmp_path: Path
) -> None:
    with buffer.writer() as writer, writer.locked():
        plan = buffer.retire(dry_run=True)
        writer.append_deletes([encode_delete(Retirement(plan.end, plan.end_id), b"me", b"retention_messages 3")])
    subprocess.run(["cp", "-a", buffer.path, tmp_path / "restored"], check=True)
    assert verify(str(tmp_path / "restored"), jobs=1).ok
    assert retire(str(tmp_path / "restored"), timeout_seconds=0).end == 6
    report = verify(str(tmp_path / "restored"), jobs=1)
    assert (report.ok, report.first_seq) == (True, 7)


# A full disk


def _fill(path: Path) -> None:
    """Takes every block that is left."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(fd, bytes(4096))
    except OSError:
        pass
    finally:
        os.close(fd)


def test_full_disk_is_no_obstacle_although_a_publisher_waits_for_room(small_disk: Path) -> None:
    path = small_disk / "orders"
    create(str(path), {"segment_bytes": "16KiB", "retention_bytes": "64KiB"})
    append_to(path, *[b"%d " % n + b"." * 700 for n in range(100)])
    _fill(small_disk / "ballast")
    lines = b"".join(b"late %d " % n + b"." * 700 + b"\n" for n in range(20))
    publisher = subprocess.Popen(
        [*APPEND, str(path), "--timeout", "30s"], stdin=subprocess.PIPE, env=ENVIRONMENT, stderr=subprocess.PIPE
    )
    try:
        assert publisher.stdin is not None
        publisher.stdin.write(lines)
        publisher.stdin.close()
        first = BufferDirectory(path).segment_firsts()[0]
        assert first == 1
        plan = retire(str(path), timeout_seconds=30)
        assert plan.segments
        assert publisher.wait(DEADLINE_SECONDS) == 0
    finally:
        publisher.send_signal(signal.SIGKILL)
        publisher.wait()
        assert publisher.stderr is not None
        publisher.stderr.close()
    bodies = [message.body for message in read_all(path)]
    assert [body.split()[0] for body in bodies if body.startswith(b"late")] == [b"late"] * 20
    assert verify(str(path), jobs=1).ok
    assert (path / "reserve").exists()


def test_full_disk_with_more_segments_than_the_reserve_has_room_for_their_keys(small_disk: Path) -> None:
    path = small_disk / "orders"
    create(str(path), {"segment_messages": "1", "retention_messages": "2"})
    append_to(path, *[b"%d" % n for n in range(12)])
    _fill(small_disk / "ballast")
    assert len(retire(str(path), timeout_seconds=30).segments) == 10
    report = verify(str(path), jobs=1)
    assert (report.ok, report.verdicts["completeness"]["retired"]) == (True, 10)
