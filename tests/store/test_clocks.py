"""A clock that is a year back or a year ahead: numbers go on, times never go back, one bad clock freezes nothing."""

from pathlib import Path

import pytest

from hbuf.errors import ClockJumped
from hbuf.format.settings import change_settings
from hbuf.ops.create import create
from hbuf.store.directory import BufferDirectory
from hbuf.store.writer import Writer

from .checking import append, check_survived, read_all, stored_of
from .set_clock import DAY_US, NOW_US, SECOND_US, YEAR_US, SetClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    create(str(tmp_path / "orders"))
    return tmp_path / "orders"


def writer_with(path: Path, clock: SetClock) -> Writer:
    return Writer(BufferDirectory(path), timeout_seconds=20, clock=clock)


def times(path: Path) -> list[int]:
    return [message.time_us for message in read_all(path)]


def test_time_of_a_message_is_that_of_the_clock(path: Path) -> None:
    clock = SetClock()
    with writer_with(path, clock) as writer:
        append(writer, [b"one"])
        clock.run(3 * SECOND_US)
        append(writer, [b"two"])
    assert times(path) == [NOW_US, NOW_US + 3 * SECOND_US]


def test_clock_that_goes_a_year_back_stops_times_and_nothing_else(path: Path) -> None:
    clock = SetClock()
    with writer_with(path, clock) as writer:
        stored = append(writer, [b"one"])
        clock.jump(-YEAR_US)
        stored += append(writer, [b"two"])
        clock.run(YEAR_US - SECOND_US)
        stored += append(writer, [b"three"])
        clock.run(2 * SECOND_US)
        stored += append(writer, [b"four"])
    assert times(path) == [NOW_US, NOW_US, NOW_US, NOW_US + SECOND_US]
    check_survived(path, stored)


def test_fresh_writer_with_a_clock_a_year_back_goes_on_from_the_last_time(path: Path) -> None:
    with writer_with(path, SetClock()) as writer:
        stored = append(writer, [b"one"])
    with writer_with(path, SetClock(NOW_US - YEAR_US)) as writer:
        stored += append(writer, [b"two"])
        writer.roll()
        stored += append(writer, [b"three"])
        writer.roll(lambda settings: change_settings(settings, {"segment_messages": "1"}))
        stored += append(writer, [b"four", b"five"])
    assert times(path) == [NOW_US] * 5
    check_survived(path, stored)


def test_recovery_with_a_clock_a_year_back_keeps_times_in_order(path: Path) -> None:
    with writer_with(path, SetClock()) as writer:
        stored = append(writer, [b"one"])
    with (path / "segments" / f"{1:020d}.http").open("ab") as file:
        file.write(b"torn")
    with writer_with(path, SetClock(NOW_US - YEAR_US)) as writer:
        stored += append(writer, [b"two"])
    assert times(path) == [NOW_US, NOW_US]
    check_survived(path, stored)


def test_clock_that_jumps_a_year_ahead_is_refused_and_a_fresh_writer_takes_it(path: Path) -> None:
    clock = SetClock()
    with writer_with(path, clock) as writer:
        stored = append(writer, [b"one"])
        clock.jump(YEAR_US)
        with pytest.raises(ClockJumped) as jumped:
            append(writer, [b"refused"])
        assert (jumped.value.exit_code, jumped.value.stored) == (75, 0)
        with pytest.raises(ClockJumped):
            writer.roll()
        # The clock is set right: nothing has frozen.
        clock.jump(-YEAR_US)
        clock.run(SECOND_US)
        stored += append(writer, [b"two"])
        clock.jump(YEAR_US)
    with writer_with(path, clock) as writer:
        stored += append(writer, [b"three"])
    assert times(path) == [NOW_US, NOW_US + SECOND_US, NOW_US + SECOND_US + YEAR_US]
    check_survived(path, stored)


def test_messages_go_on_after_a_clock_that_was_a_year_ahead(path: Path) -> None:
    """One that was taken by a fresh writer: times stand still until the clock catches up."""
    with writer_with(path, SetClock(NOW_US + YEAR_US)) as writer:
        stored = append(writer, [b"one"])
    with writer_with(path, SetClock(NOW_US)) as writer:
        stored += append(writer, [b"two"])
    with writer_with(path, SetClock(NOW_US + YEAR_US + SECOND_US)) as writer:
        stored += append(writer, [b"three"])
    assert times(path) == [NOW_US + YEAR_US, NOW_US + YEAR_US, NOW_US + YEAR_US + SECOND_US]
    check_survived(path, stored)


def test_small_jumps_ahead_and_long_waits_are_taken(path: Path) -> None:
    clock = SetClock()
    with writer_with(path, clock) as writer:
        stored = append(writer, [b"one"])
        clock.jump(DAY_US - SECOND_US)
        stored += append(writer, [b"two"])
        clock.run(10 * YEAR_US)
        stored += append(writer, [b"three"])
        clock.jump(2 * SECOND_US)
        with pytest.raises(ClockJumped):
            append(writer, [b"one jump too many"])
    check_survived(path, stored)


def test_limit_of_a_jump_can_be_set(path: Path) -> None:
    clock = SetClock()
    with Writer(BufferDirectory(path), clock=clock, clock_limit_us=SECOND_US) as writer:
        clock.jump(SECOND_US)
        stored = append(writer, [b"one"])
        clock.jump(1)
        with pytest.raises(ClockJumped):
            append(writer, [b"refused"])
    check_survived(path, stored)


def test_batch_over_two_segments_with_a_clock_that_jumps_tells_what_it_stored(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    create(str(path), {"segment_messages": "2"})
    second_segment = path / "segments" / f"{3:020d}.http"

    class Jumping(SetClock):
        def now_us(self) -> int:
            return super().now_us() + (YEAR_US if second_segment.exists() else 0)

    with writer_with(path, Jumping()) as writer, pytest.raises(ClockJumped) as jumped:
        append(writer, [b"one", b"two", b"three"])
    assert jumped.value.stored == 2
    assert [message.body for message in read_all(path)] == [b"one", b"two"]
    check_survived(path, stored_of(read_all(path)))


def test_age_of_a_segment_is_not_fooled_by_a_clock_that_goes_back(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    create(str(path), {"segment_age": "1h"})
    clock = SetClock()
    with writer_with(path, clock) as writer:
        stored = append(writer, [b"zero"])
        writer.roll()  # into a segment that begins at the test's time
        stored += append(writer, [b"one"])
        clock.jump(-YEAR_US)
        stored += append(writer, [b"two"])
        assert len(list(path.glob("segments/*.http"))) == 2
        clock.run(YEAR_US + 3601 * SECOND_US)
        stored += append(writer, [b"three"])
        assert len(list(path.glob("segments/*.http"))) == 3
    check_survived(path, stored)
