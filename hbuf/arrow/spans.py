"""Many short stretches of bytes at once: looked at where they are, or taken out into an Arrow column."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hbuf.arrow.block import Bools, Ints
from hbuf.format.grammar import C1_CONTROL


class Differs(Exception):
    """A record is not as its entry says, or as its grammar demands."""


def expect(as_expected: Bools) -> None:
    if not as_expected.all():
        raise Differs


def gathered(data: bytes, places: Ints, width: int) -> npt.NDArray[np.void]:
    """`width` bytes from each place on. Raises IndexError for a place that has not so many."""
    if len(data) < width or (len(places) and int(places.min()) < 0):
        raise IndexError
    return np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))[places]


def has(data: bytes, places: Ints, wanted: bytes) -> Bools:
    """Whether `wanted` stands at each place."""
    found: Bools = gathered(data, places, len(wanted)) == np.void(wanted)
    return found


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
