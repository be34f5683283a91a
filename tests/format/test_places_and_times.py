"""Times are text that sorts; places are one small grammar."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbuf.errors import UsageError
from hbuf.format.places import Place, parse_place
from hbuf.format.times import (
    LAST_TIME_US,
    datetime_of,
    encode_time,
    microseconds_of,
    parse_duration_seconds,
    parse_moment,
    parse_time,
)

NOW_US = 1_795_000_000_000_000
FIRST_TIME_US = -62_135_596_800_000_000  # the year 1
TIMES = st.integers(FIRST_TIME_US, LAST_TIME_US)


@settings(max_examples=60, deadline=None)
@given(TIMES, TIMES)
def test_times_come_back_and_sort_as_text(one: int, other: int) -> None:
    assert parse_time(encode_time(one)) == one
    assert len(encode_time(one)) == 27
    assert (encode_time(one) < encode_time(other)) == (one < other)
    assert microseconds_of(datetime_of(one)) == one


def test_last_time_is_the_last() -> None:
    assert encode_time(LAST_TIME_US) == "9999-12-31T23:59:59.999999Z"
    assert encode_time(0) == "1970-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    "text", ["2027-02-29T00:00:00.000000Z", "2026-04-31T00:00:00.000000Z", "0000-01-01T00:00:00.000000Z"]
)
def test_day_that_no_calendar_has_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="range"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("100ms", 0.1), ("5us", 5e-6), ("30s", 30), ("1.5m", 90), ("2h", 7200), ("3d", 259200), ("1w", 604800), ("7", 7)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "-1s", "1 s", "1y", "1S", "\u0661s", "1e3s", ".5s", "inf"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration_seconds(text)


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("10m", NOW_US - 600_000_000),
        ("2026-11-18", microseconds_of(datetime(2026, 11, 18, tzinfo=UTC))),
        ("2026-11-18T04:51:00Z", microseconds_of(datetime(2026, 11, 18, 4, 51, tzinfo=UTC))),
        ("2026-11-18T04:51:00+02:00", microseconds_of(datetime(2026, 11, 18, 2, 51, tzinfo=UTC))),
        ("2026-11-18T04:51:00.000001Z", microseconds_of(datetime(2026, 11, 18, 4, 51, 0, 1, tzinfo=UTC))),
    ],
)
def test_moments(text: str, time_us: int) -> None:
    assert parse_moment(text, NOW_US) == time_us
    assert parse_place("@" + text, NOW_US) == Place("time", time_us=time_us)


@pytest.mark.parametrize("text", ["", "10", "yesterday", "2027-02-29", "-10m"])
def test_what_is_not_a_moment_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_moment(text, NOW_US)


def test_duration_beyond_all_numbers_is_refused() -> None:
    with pytest.raises(UsageError):
        parse_moment("9" * 400 + "d", NOW_US)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("first", Place("first")), ("last", Place("last")), ("end", Place("end")), ("1", Place("number", 1)),
        ("9" * 19, Place("number", 10**19 - 1)), ("-5", Place("back", 5)), ("-0", Place("back", 0)),
        ("consumer:bill", Place("consumer", name="bill")),
    ],
)  # fmt: skip
def test_places(text: str, place: Place) -> None:
    assert parse_place(text, NOW_US) == place


@pytest.mark.parametrize(
    "text", ["", "0", "01", "+1", "1.0", "--1", "First", "consumer:", "@", "\uff19", "1\n", "9" * 20]
)
def test_what_is_not_a_place_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_place(text, NOW_US)
