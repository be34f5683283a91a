"""Retiring: whole oldest segments go, as the rules say, and nothing else does; whatever the clock says."""

import os
from pathlib import Path

import pytest

from hbuf.errors import Closed, NotAllowed, Paused
from hbuf.ops.close import close
from hbuf.ops.compress import compress
from hbuf.ops.pause import pause, resume
from hbuf.ops.reindex import reindex
from hbuf.ops.retire import retire
from hbuf.ops.set import set_settings
from hbuf.ops.verify import Expected, verify
from hbuf.store.outgoing import Outgoing
from hbuf.store.producers import load_producers

from .checking import read_all
from .retiring import Retiring
from .set_clock import DAY_US, SECOND_US, YEAR_US


def retired(path: Path) -> int:
    report = verify(str(path), jobs=1)
    assert report.ok, [str(fault) for fault in report.faults]
    return report.verdicts["completeness"]["retired"]


def last_record(path: Path) -> bytes:
    segments = sorted((path / "segments").glob("*.http"))
    return b"DELETE /b/" + segments[-1].read_bytes().rpartition(b"DELETE /b/")[2]


# The rules


def test_segments_beyond_the_count_of_messages_go_and_the_others_stay(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="5")
    buffer.append(10)
    assert buffer.retire().segments == (1, 3)
    assert buffer.seqs == [5, 6, 7, 8, 9, 10]
    assert retired(buffer.path) == 4
    assert buffer.retire().segments == ()
    buffer.append(1)
    assert buffer.seqs == [5, 6, 7, 8, 9, 10, 12]  # 11 is the DELETE


def test_segments_all_of_whose_messages_are_too_old_go(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_age="3d")
    buffer.append(10)  # of the days -9 to 0
    assert buffer.retire().segments == (1, 3, 5)
    buffer.clock.run(DAY_US)
    assert buffer.retire().segments == ()
    buffer.clock.run(DAY_US)
    assert buffer.retire().segments == (7,)
    assert buffer.seqs == [9, 10]


def test_segment_with_one_message_that_is_young_enough_stays(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_age="2d")
    buffer.append(4)
    assert buffer.retire().segments == ()  # message 2 is two days old, and not older
    buffer.clock.run(SECOND_US)
    assert buffer.retire().segments == (1,)


def test_oldest_segments_go_until_the_rest_fits_into_the_bytes(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders")
    buffer.append(10)
    sizes = {first: buffer.segment(first).stat().st_size for first in buffer.firsts}
    limit = sizes[7] + sizes[9] + 4096  # room for the record that says what goes
    set_settings(str(buffer.path), {"retention_bytes": str(limit)}, timeout_seconds=20)
    assert buffer.segment(11).stat().st_size < sizes[7]  # it has the new settings, and no message
    assert buffer.retire().segments == (1, 3, 5, 7)
    assert buffer.seqs == [9, 10]
    assert sum(buffer.segment(first).stat().st_size for first in buffer.firsts) <= limit
    assert buffer.retire().segments == ()


def test_newest_segment_never_goes(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_bytes="1", retention_messages="1", retention_age="1s")
    buffer.append(5)
    buffer.clock.run(YEAR_US)
    assert buffer.retire(idle=True).segments == (1, 3)
    assert buffer.seqs == [5]
    assert buffer.retire(idle=True).segments == ()


def test_delete_says_what_went_who_did_it_and_the_rule_that_reaches_furthest(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="7", retention_age="36h")
    buffer.append(10)
    plan = buffer.retire(reason="the yearly audit is done")
    record = last_record(buffer.path)
    assert f"x-hbuf-retires: 1-8 {plan.end_id.decode()}\r\n".encode() in record
    assert f"@{os.uname().nodename}\r\n".encode() in record
    assert b"x-hbuf-reason: retention_age 36h: the yearly audit is done\r\n" in record


def test_message_with_the_name_of_the_last_one_that_went_is_known_by_its_id(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="2")
    buffer.append(6)
    ids = {message.seq: message.id for message in read_all(buffer.path)}
    buffer.retire()
    assert verify(str(buffer.path), jobs=1, head=Expected(4, ids[4])).ok
    assert not verify(str(buffer.path), jobs=1, head=Expected(4, ids[3])).ok
    report = verify(str(buffer.path), jobs=1, head=Expected(2, ids[2]))
    assert (report.ok, report.faults) == (False, [])
    assert report.not_checked == {"head of a message that is retired": 1}


@pytest.mark.parametrize("settings", [{}, {"retention_messages": "100", "retention_age": "52w"}])
def test_nothing_to_do_writes_nothing(tmp_path: Path, settings: dict[str, str]) -> None:
    buffer = Retiring(tmp_path / "orders", key=None, **settings)
    buffer.append(6)
    before = buffer.files()
    assert not buffer.retire().has_work
    assert buffer.files() == before


def test_dry_run_tells_and_changes_nothing(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="2")
    buffer.append(6)
    before = buffer.files()
    plan = buffer.retire(dry_run=True)
    assert (plan.segments, plan.end, plan.messages, plan.reason) == ((1, 3), 4, 4, "retention_messages 2")
    assert plan.bytes == sum(buffer.segment(first).stat().st_size for first in (1, 3))
    assert buffer.files() == before


def test_segments_with_nothing_but_deletes_do_not_keep_retiring_going(tmp_path: Path) -> None:
    """Else every retirement of an idle buffer would write a DELETE, which is to be retired in its turn."""
    buffer = Retiring(tmp_path / "orders", retention_messages="1", segment_messages="1")
    buffer.append(3)
    assert buffer.retire().segments == (1, 2)
    assert buffer.firsts == [3, 4]
    files = buffer.files()
    assert buffer.retire().segments == ()
    assert buffer.files() == files
    set_settings(str(buffer.path), {"retention_age": "1s"}, timeout_seconds=20)
    buffer.clock.run(DAY_US)
    assert buffer.retire(idle=True).segments == (3, 4)
    buffer.clock.run(DAY_US)
    files = buffer.files()
    assert buffer.retire(idle=True).segments == ()
    assert buffer.files() == files
    assert retired(buffer.path) == 4


def test_numbers_and_retirements_go_on_for_many_runs(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="3")
    for run in range(5):
        buffer.append(5)
        buffer.retire()
        assert retired(buffer.path) == buffer.firsts[0] - 1
        assert len(buffer.seqs) >= 2, run
    numbers = [
        int(part.split(b"\r\n")[0]) for part in (buffer.path / "keys.http").read_bytes().split(b"x-hbuf-first: ")[1:]
    ]
    assert numbers == list(range(1, buffer.firsts[0], 2))


# Clocks


def test_clock_a_year_ahead_throws_nothing_away(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_age="3d")
    buffer.append(10)
    buffer.clock.jump(YEAR_US)
    before = buffer.files()
    assert buffer.retire().segments == ()
    assert buffer.files() == before
    [line] = buffer.notices
    assert "retention_age 3d" in line
    assert "--idle" in line
    assert buffer.retire(idle=True).segments == (1, 3, 5, 7)


def test_clock_a_year_ahead_with_writers_that_take_it_throws_nothing_away_before_its_time(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_age="3d")
    buffer.append(5)
    buffer.clock.jump(YEAR_US)
    buffer.append(2)  # the first into a segment that was begun before the jump
    assert buffer.retire().segments == ()
    assert len(buffer.notices) == 1
    buffer.append(4)
    # By now those from before the jump are old by every clock.
    assert buffer.retire().segments == (1, 3, 5)
    assert len(buffer.notices) == 1


def test_clock_a_year_back_throws_nothing_away(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_age="3d")
    buffer.append(10)
    buffer.clock.jump(-YEAR_US)
    assert not buffer.retire().has_work
    assert buffer.notices == []
    buffer.append(1)
    assert not buffer.retire().has_work


def test_other_rules_hold_while_the_clock_is_not_believed(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_age="3d", retention_messages="8")
    buffer.append(10)
    buffer.clock.jump(YEAR_US)
    plan = buffer.retire()
    assert (plan.segments, plan.reason, plan.held_back) == ((1,), "retention_messages 8", "retention_age 3d")


# Restarts, pauses, other writers


def test_retiring_right_after_a_crash_recovers_first(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="3")
    buffer.append(7)
    with buffer.segment(7).open("ab") as newest:
        newest.write(b"POST /b/orders HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-s")
    assert buffer.retire().segments == (1, 3)
    assert [file.suffix for file in (buffer.path / "quarantine").iterdir()] == [".torn"]
    assert buffer.seqs == [5, 6, 7]
    assert retired(buffer.path) == 4


def test_paused_buffer_is_waited_for_and_a_closed_one_refuses(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="3")
    buffer.append(7)
    before = buffer.firsts
    pause(str(buffer.path), reason="backup", timeout_seconds=0)
    with pytest.raises(Paused):
        retire(str(buffer.path), timeout_seconds=0)
    resume(str(buffer.path), timeout_seconds=0)
    close(str(buffer.path), reason="", timeout_seconds=0)
    with pytest.raises(Closed):
        retire(str(buffer.path), timeout_seconds=0)
    assert buffer.firsts == before


def test_writer_that_has_the_buffer_open_goes_on(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="3")
    with buffer.writer() as writer:
        for n in range(9):
            writer.append(Outgoing([b"%d" % n]))
        buffer.retire()
        assert writer.append(Outgoing([b"on", b"and on"])).seqs == [11, 12]
    assert retired(buffer.path) == 6


def test_signed_buffer_needs_its_key_only_when_something_goes(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", key=tmp_path / "k.key", retention_messages="3")
    buffer.append(4)
    retire(str(buffer.path), timeout_seconds=0)
    buffer.append(3)
    with pytest.raises(NotAllowed):
        retire(str(buffer.path), timeout_seconds=0)
    assert buffer.firsts[0] == 1
    assert buffer.retire().segments == (1, 3)


def test_compressed_segments_go_as_plain_ones_do(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_age="3d", retention_messages="5")
    buffer.append(10)
    plain = buffer.segment(1).read_bytes()
    compress(str(buffer.path), timeout_seconds=20)
    buffer.segment(1).write_bytes(plain)  # as a crash leaves it: both are there
    size = buffer.segment(1).stat().st_size + sum(
        buffer.segment(first).with_suffix(".http.zst").stat().st_size for first in (3, 5)
    )
    plan = buffer.retire()
    assert (plan.segments, plan.bytes) == ((1, 3, 5), size)
    assert retired(buffer.path) == 6
    assert min(file.name for file in (buffer.path / "segments").iterdir()).startswith(f"{7:020d}")


# Producers


def test_message_of_a_producer_stays_a_duplicate_when_it_was_retired(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_messages="2")
    buffer.append(3, producer=b"till")
    buffer.append(5)
    buffer.retire()
    assert buffer.firsts == [7, 9]
    for again in (lambda: None, lambda: reindex(str(buffer.path), timeout_seconds=20), lambda: buffer.append(6)):
        again()
        buffer.retire()
        with buffer.writer() as writer:
            assert writer.append(Outgoing([b"3"], producers=[(b"till", 3)])).duplicates == {0}


def test_state_of_producers_from_before_a_retirement_does_not_replace_the_one_after_it(tmp_path: Path) -> None:
    """A writer reads the log for it without the lock, and comes to save it when others have retired the log."""
    buffer = Retiring(tmp_path / "orders", retention_messages="2")
    with buffer.writer() as slow:
        buffer.append(1)
        stale = load_producers(buffer.path / "producers")
        buffer.append(4, producer=b"till")
        buffer.append(4)
        buffer.retire()
        stale.as_of = 2
        slow._ledger.save(stale)
    assert load_producers(buffer.path / "producers").last == {b"till": (5, 5)}


# Indexes that are missing


def test_segments_without_indexes_are_read_instead(tmp_path: Path) -> None:
    buffer = Retiring(tmp_path / "orders", retention_age="3d", retention_messages="4")
    buffer.append(9)
    for index in (buffer.path / "segments").glob("*.idx"):
        index.unlink()
    assert buffer.retire().segments == (1, 3)
    reindex(str(buffer.path), timeout_seconds=20)
    assert retired(buffer.path) == 4
    for index in (buffer.path / "segments").glob("*.idx"):
        index.unlink()
    assert buffer.retire().segments == ()  # the DELETE is found
