"""Numbers and times as records write them, for many at once: what is expected is made, and then compared."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from hbuf.arrow.block import Ints
from hbuf.arrow.spans import Differs, Texts, numbers_in, part_of

Numbers = npt.NDArray[np.unsignedinteger]

_POWERS_OF_TEN = 10 ** np.arange(1, 19, dtype=np.int64)
# What a number below ten thousand, or below a hundred, looks like: the first character is the lowest byte.
_FOUR = np.frombuffer(b"".join(b"%04d" % number for number in range(10_000)), "<u4")
_TWO = np.frombuffer(b"".join(b"%02d" % number for number in range(100)), "<u2")

_DAY_US = 86_400_000_000
TIME_BYTES = len("2026-11-18T04:51:00.123456")
_FEW = 32  # batches that are written one by one
_NO_TIME = np.void(b"0000-00-00T00:00:00.000000")


def digits_of(numbers: Ints) -> Ints:
    """How many digits each has."""
    return np.searchsorted(_POWERS_OF_TEN, numbers, "right") + 1


def write_numbers(texts: Texts, end: int, numbers: Ints, width: int) -> None:
    """Each number, of `width` digits, before `end`. At least eight bytes lie before that, the same in all texts."""
    if width <= 4:
        _write_last(numbers_in(texts, end - 4, 4), _FOUR[numbers], width)
        return
    leading, last_eight = np.divmod(numbers, 10**8) if width > 8 else (numbers, numbers)
    high = last_eight // 10**4
    fours = np.empty((len(numbers), 2), "<u4")
    fours[:, 0], fours[:, 1] = _FOUR[high], _FOUR[last_eight - high * 10**4]
    _write_last(numbers_in(texts, end - 8, 8), fours.view("<u8")[:, 0], min(width, 8))
    if width > 8:
        write_numbers(texts, end - 8, leading, width - 8)


def _write_last(place: Numbers, written: Numbers, width: int) -> None:
    """The last `width` bytes of what is written. The first bytes are the lowest: those before it stay."""
    if width < place.itemsize:
        kind = place.dtype.type
        bits = kind(8 * (place.itemsize - width))
        written = (written >> bits << bits) | (place[:1] & kind(2 ** int(bits) - 1))
    place[:] = written


def write_times(texts: Texts, at: int, times_us: Ints) -> None:
    """Each time at `at`, but for the Z. Messages of one batch have one time: how it looks is found out once."""
    new = np.ones(len(times_us), np.bool_)
    new[1:] = times_us[1:] != times_us[:-1]
    rows = np.flatnonzero(new)
    place, written = part_of(texts, at, TIME_BYTES), _written(times_us[rows])
    if len(rows) > _FEW:
        place[:] = np.repeat(written, np.diff(rows, append=len(times_us)))
        return
    for (start, end), text in zip(itertools.pairwise([*rows.tolist(), len(times_us)]), written, strict=True):
        place[start:end] = text


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


def _write(texts: Texts, at: int, numbers: Numbers) -> None:
    numbers_in(texts, at, numbers.itemsize)[:] = numbers
