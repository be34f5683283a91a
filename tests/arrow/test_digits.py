"""Numbers and times of whole blocks look as those of one record do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbuf.arrow.digits import TIME_BYTES, digits_of, write_numbers, write_times
from hbuf.arrow.spans import Differs, Texts
from hbuf.format.times import LAST_TIME_US, encode_time

BEFORE, BEHIND = b"x-hbuf-seq-and-so-on: ", b"\r\n"
FIRST_TIME_US = -62_135_596_800_000_000  # of year 1


def texts(count: int, width: int) -> Texts:
    return np.full(count, np.void(BEFORE + b"\0" * width + BEHIND))


@st.composite
def alike(draw: st.DrawFn) -> tuple[int, list[int]]:
    width = draw(st.integers(1, 18))
    least = 10 ** (width - 1) if width > 1 else 0
    return width, draw(st.lists(st.integers(least, 10**width - 1), min_size=1))


@given(alike())
def test_numbers_are_plain_decimal(given: tuple[int, list[int]]) -> None:
    width, numbers = given
    found = texts(len(numbers), width)
    write_numbers(found, len(BEFORE) + width, np.array(numbers, np.int64), width)
    assert [bytes(text) for text in found] == [BEFORE + b"%d" % number + BEHIND for number in numbers]
    assert digits_of(np.array(numbers, np.int64)).tolist() == [len(str(number)) for number in numbers]


@given(st.lists(st.integers(FIRST_TIME_US, LAST_TIME_US), min_size=1), st.integers(1, 3))
def test_times_are_as_records_have_them(times_us: list[int], repeated: int) -> None:
    times_us = [each for each in times_us for _ in range(repeated)]
    found = texts(len(times_us), TIME_BYTES)
    write_times(found, len(BEFORE), np.array(times_us, np.int64))
    expected = [BEFORE + encode_time(each).rstrip("Z").encode() + BEHIND for each in times_us]
    assert [bytes(text) for text in found] == expected


@pytest.mark.parametrize("time_us", [FIRST_TIME_US - 1, 253_402_300_800_000_000, 2**63 - 1, -(2**63)])
def test_a_time_of_a_year_that_no_record_has_is_none(time_us: int) -> None:
    with pytest.raises(Differs):
        write_times(texts(1, TIME_BYTES), len(BEFORE), np.array([time_us], np.int64))
