"""Many short stretches of bytes at once: looked at where they are, or taken out into an Arrow column.

Bytes are compared as numbers, eight at a time: numpy compares what it calls void one byte after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hbuf.arrow.block import Bools, Ints
from hbuf.format.grammar import C1_CONTROL

Texts = npt.NDArray[np.void]  # stretches of the same width, back to back

# In a form it stands for any byte: no line of a record has it.
ANY = b"\0"
_FIXED = re.compile(rb"[^\0]+")


class Differs(Exception):
    """A record is not as its entry says, or as its grammar demands."""


def expect(as_expected: Bools) -> None:
    if not as_expected.all():
        raise Differs


def gathered(data: bytes, places: Ints, width: int) -> Texts:
    """`width` bytes from each place on. Raises IndexError for a place that has not so many."""
    if len(data) < width or (len(places) and int(places.min()) < 0):
        raise IndexError
    return np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))[places]


def has(data: bytes, places: Ints, wanted: bytes) -> Bools:
    """Whether `wanted` stands at each place."""
    return shows(gathered(data, places, len(wanted)), 0, wanted)


def shows(texts: Texts, at: int, wanted: bytes) -> Bools:
    """Whether `wanted` stands in each text, `at` bytes behind its beginning."""
    return _all_of(_compared(texts, at, wanted))


def expect_form(texts: Texts, form: bytes) -> None:
    """Each text is as `form`, but where that has `ANY`."""
    expect(_all_of(each for fixed in _FIXED.finditer(form) for each in _compared(texts, fixed.start(), fixed[0])))


def _compared(texts: Texts, at: int, wanted: bytes) -> Iterator[Bools]:
    """Eight bytes at a time, or as many as there are. The last may overlap those before."""
    length = len(wanted)
    width = next(width for width in (8, 4, 2, 1) if width <= length)
    for offset in range(0, length, width):
        start = min(offset, length - width)
        yield numbers_in(texts, at + start, width) == int.from_bytes(wanted[start : start + width], "little")


def _all_of(conditions: Iterator[Bools]) -> Bools:
    found = next(conditions)
    for each in conditions:
        found &= each
    return found


def expect_same(texts: Texts, expected: Texts) -> None:
    """Byte for byte."""
    if not pa.py_buffer(texts.view(np.uint8)).equals(pa.py_buffer(expected.view(np.uint8))):
        raise Differs


def ends_line(data: bytes, ends: Ints) -> Bools:
    """Whether a line ends at each place. None is at less than 2."""
    each = np.frombuffer(data, np.uint8)
    found: Bools = (each[ends - 2] == ord("\r")) & (each[ends - 1] == ord("\n"))
    return found


def numbers_in(texts: Texts, at: int, width: int) -> npt.NDArray[np.unsignedinteger]:
    """The `width` bytes at `at` of each text as a number. Writing to it writes to the texts."""
    return np.ndarray(len(texts), f"<u{width}", texts, at, (texts.itemsize,))


def part_of(texts: Texts, at: int, width: int) -> Texts:
    """The same for more bytes, as they are."""
    return np.ndarray(len(texts), f"V{width}", texts, at, (texts.itemsize,))


def taken(data: bytes, starts: Ints, ends: Ints, *, present: Bools | None = None) -> pa.Array:
    """The bytes from each start to each end, null where not `present`. They must be ascending, without overlap.

    Seen as one array, `data` has the wanted bytes at its even places and those between at its odd ones.
    """
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2], offsets[1::2] = starts, ends
    everything = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    places = pa.array(np.arange(0, 2 * count, 2), mask=None if present is None else ~present)
    return everything.take(places)


def joined(spans: pa.Array) -> tuple[Ints, bytes]:
    """What `taken` took as one text, and where in it each begins; one more tells where the last ends."""
    _, offsets, content = spans.buffers()
    if not len(spans) or content is None:
        return np.zeros(len(spans) + 1, np.int64), b""
    found = np.frombuffer(offsets, np.int32, len(spans) + 1).astype(np.int64)
    return found, content[: int(found[-1])].to_pybytes()


def expect_text(content: bytes, starts: Ints, ends: Ints, controls: int = 0) -> None:
    """Values of fields have no control characters, but for so many that stand between them, and no blanks around.

    Whether they are UTF-8 shows when they are made strings.
    """
    each = np.frombuffer(content, np.uint8)
    if np.count_nonzero((each < ord(" ")) | (each == 0x7F)) != controls:
        raise Differs
    if not content.isascii() and C1_CONTROL.search(content):
        raise Differs
    full = ends > starts
    expect((each[starts[full]] != ord(" ")) & (each[ends[full] - 1] != ord(" ")))
