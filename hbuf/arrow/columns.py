"""Arrow columns of a block: each is made with one `take` over the block's bytes, and no message is touched alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from hbuf.arrow.block import Block, Bools, Ints
from hbuf.arrow.layout import ID_BYTES, Layout
from hbuf.format.fields import parse_fields

_HEADER = pa.struct([pa.field("name", pa.string()), pa.field("value", pa.string())])
SCHEMA = pa.schema(
    [
        pa.field("tenant", pa.string()),
        pa.field("buffer", pa.string()),
        pa.field("seq", pa.int64()),
        pa.field("time", pa.timestamp("us", tz="UTC")),
        pa.field("id", pa.string()),
        pa.field("key", pa.string()),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field("headers", pa.list_(pa.field("element", _HEADER))),
        pa.field("body", pa.binary()),
        pa.field("erased", pa.bool_()),
        pa.field("encrypted", pa.bool_()),
    ]
)

_TAG_NAME_BYTES = len(b"x-hbuf-tag: ")


def columns_of(
    block: Block, layout: Layout, rows: Ints, names: Sequence[str], tenant: str, buffer: str
) -> list[pa.Array]:
    """The columns `names` of the messages at `rows` of a block."""
    made: dict[str, Callable[[], pa.Array]] = {
        "tenant": lambda: pa.repeat(pa.scalar(tenant), len(rows)),
        "buffer": lambda: pa.repeat(pa.scalar(buffer), len(rows)),
        "seq": lambda: pa.array(rows + block.first),
        "time": lambda: pa.array(layout.times_us[rows]).view(SCHEMA.field("time").type),
        "id": lambda: _texts(block.data, layout.ids[rows], layout.ids[rows] + ID_BYTES),
        "key": lambda: key_column(block, layout, rows),
        "tags": lambda: tags_column(block, layout, rows),
        "headers": lambda: _headers_column(block, layout, rows),
        "body": lambda: _bodies_column(block, layout, rows),
        "erased": lambda: pa.array(layout.erased[rows]),
        "encrypted": lambda: pa.array(layout.encrypted[rows]),
    }
    return [made[name]() for name in names]


def key_column(block: Block, layout: Layout, rows: Ints) -> pa.Array:
    keys, ends = layout.keys[rows], layout.key_ends[rows]
    return _texts(block.data, keys, ends, present=ends > keys)


def tags_column(block: Block, layout: Layout, rows: Ints) -> pa.Array:
    """The tag lines of all messages are put behind each other, and cut at their ends."""
    starts, ends = layout.tags[rows], layout.tags_ends[rows]
    lines = _spans(block.data, starts, ends)
    offsets = np.frombuffer(lines.buffers()[1], np.int32, len(rows) + 1)
    joined = lines.buffers()[2]
    content = np.frombuffer(joined, np.uint8, int(offsets[-1])) if joined is not None else np.empty(0, np.uint8)
    line_ends = np.flatnonzero(content == ord("\n")) + 1
    line_starts = np.zeros_like(line_ends)
    line_starts[1:] = line_ends[:-1]
    tags = _texts(content.tobytes(), line_starts + _TAG_NAME_BYTES, line_ends - 2)
    counts = np.searchsorted(line_ends, offsets, "right").astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(counts), tags, type=SCHEMA.field("tags").type)


def _headers_column(block: Block, layout: Layout, rows: Ints) -> pa.Array:
    """Many messages have the same headers: each set of them is parsed once."""
    parsed: dict[bytes, list[dict[str, str]]] = {}
    each = []
    starts = layout.tags_ends[rows].tolist()
    ends = np.where(layout.erased, layout.tags_ends, layout.headers_ends)[rows].tolist()
    for start, end in zip(starts, ends, strict=True):
        lines = block.data[start:end]
        if lines not in parsed:
            parsed[lines] = [{"name": name, "value": value} for name, value in parse_fields(lines)[2]]
        each.append(parsed[lines])
    return pa.array(each, SCHEMA.field("headers").type)


def _bodies_column(block: Block, layout: Layout, rows: Ints) -> pa.Array:
    """Null where a message is erased, or encrypted: then what is stored is not its body."""
    present = ~(layout.erased | layout.encrypted)[rows]
    return _spans(block.data, layout.bodies[rows], layout.body_ends[rows], present=present)


def _texts(data: bytes, starts: Ints, ends: Ints, *, present: Bools | None = None) -> pa.Array:
    """Raises pyarrow's ArrowInvalid for what is not UTF-8."""
    return _spans(data, starts, ends, present=present).cast(pa.string())


def _spans(data: bytes, starts: Ints, ends: Ints, *, present: Bools | None = None) -> pa.Array:
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
