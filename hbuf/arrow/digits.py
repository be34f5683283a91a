"""Numbers and times as records write them, for many at once: what is expected is made, and compared."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hbuf.arrow.block import Ints
from hbuf.arrow.spans import Differs, Texts, expect, numbers_in

_POWERS_OF_TEN = 10 ** np.arange(1, 19, dtype=np.int64)
# What a number below ten thousand, or below a hundred, looks like: the first character is the lowest byte.
_FOUR = np.frombuffer(b"".join(b"%04d" % number for number in range(10_000)), "<u4")
_TWO = np.frombuffer(b"".join(b"%02d" % number for number in range(100)), "<u2")

_DAY_US = 86_400_000_000
TIME_BYTES = len("2026-11-18T04:51:00.123456")
_NO_TIME = np.void(b"0000-00-00T00:00:00.000000")


def digits_of(numbers: Ints) -> Ints:
    """How many digits each has."""
    return np.searchsorted(_POWERS_OF_TEN, numbers, "right") + 1


def expect_numbers(texts: Texts, end: int, numbers: Ints, width: int) -> None:
    """Each text has its number, of `width` digits, before `end`. There are at least eight bytes before that."""
    leading, last_eight = np.divmod(numbers, 10**8) if width > 8 else (None, numbers)
    high = last_eight // 10**4
    expected = np.empty((len(numbers), 2), "<u4")
    expected[:, 0], expected[:, 1] = _FOUR[high], _FOUR[last_eight - high * 10**4]
    differing = numbers_in(texts, end - 8, 8) ^ expected.view("<u8")[:, 0]
    expect(differing >> np.uint64(8 * max(8 - width, 0)) == 0)  # the first bytes are the lowest: those before it
    if leading is not None:
        expect_numbers(texts, end - 8, leading, width - 8)


def expect_times(texts: Texts, at: int, times_us: Ints) -> None:
    """Each text has its time at `at`, but for the Z. Messages of one batch have one time: it is written once."""
    new = np.ones(len(times_us), np.bool_)
    new[1:] = times_us[1:] != times_us[:-1]
    expected = _written(times_us[new])[np.cumsum(new) - 1]
    for offset, width in ((0, 8), (8, 8), (16, 8), (24, 2)):
        expect(numbers_in(texts, at + offset, width) == numbers_in(expected, offset, width))


def _written(times_us: Ints) -> Texts:
    days = times_us // _DAY_US
    dates = days.astype("M8[D]")
    months = dates.astype("M8[M]")
    years = months.astype("M8[Y]").astype(np.int64) + 1970
    if not ((years > 0) & (years < 10_000)).all():
        raise Differs
    seconds, fraction = np.divmod(times_us - days * _DAY_US, 1_000_000)
    hundreds, units = np.divmod(fraction, 100)
    texts = np.full(len(times_us), _NO_TIME)
    _write(texts, 0, _FOUR[years])
    _write(texts, 5, _TWO[months.astype(np.int64) % 12 + 1])
    _write(texts, 8, _TWO[(dates - months).astype(np.int64) + 1])
    _write(texts, 11, _TWO[seconds // 3600])
    _write(texts, 14, _TWO[seconds // 60 % 60])
    _write(texts, 17, _TWO[seconds % 60])
    _write(texts, 20, _FOUR[hundreds])
    _write(texts, 24, _TWO[units])
    return texts


def _write(texts: Texts, at: int, numbers: npt.NDArray[np.unsignedinteger]) -> None:
    numbers_in(texts, at, numbers.itemsize)[:] = numbers
