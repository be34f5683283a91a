"""Arrow columns of a block: each is made with one `take` over the block's bytes, and no message is touched alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from hbuf.arrow.block import Block, Ints
from hbuf.arrow.layout import ID_BYTES, Layout
from hbuf.arrow.spans import Differs, expect, expect_text, gathered, has, joined, taken
from hbuf.format.fields import parse_fields
from hbuf.format.grammar import CLIENT_LINES, is_text

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

_TAG_NAME = b"x-hbuf-tag: "


def columns_of(
    block: Block, layout: Layout, rows: Ints, names: Sequence[str], tenant: str, buffer: str
) -> list[pa.Array]:
    """The columns `names` of the messages at `rows` of a block.

    Raises Differs, or pyarrow's ArrowInvalid, where a key, a tag, a header or an id is not what one may be.
    """
    made: dict[str, Callable[[], pa.Array]] = {
        "tenant": lambda: pa.repeat(pa.scalar(tenant), len(rows)),
        "buffer": lambda: pa.repeat(pa.scalar(buffer), len(rows)),
        "seq": lambda: pa.array(rows + block.first),
        "time": lambda: pa.array(layout.times_us[rows]).view(SCHEMA.field("time").type),
        "id": lambda: _ids_column(block, layout, rows),
        "key": lambda: key_column(block, layout, rows),
        "tags": lambda: tags_column(block, layout, rows),
        "headers": lambda: _headers_column(block, layout, rows),
        "body": lambda: _bodies_column(block, layout, rows),
        "erased": lambda: pa.array(layout.erased[rows]),
        "encrypted": lambda: pa.array(layout.encrypted[rows]),
    }
    return [made[name]() for name in names]


def _ids_column(block: Block, layout: Layout, rows: Ints) -> pa.Array:
    ids = layout.ids[rows]
    digits = gathered(block.data, ids, ID_BYTES).view(np.uint8)
    expect((digits - ord("0") < 10) | (digits - ord("a") < 6))  # below "0" the bytes wrap around
    return taken(block.data, ids, ids + ID_BYTES).cast(pa.string())


def key_column(block: Block, layout: Layout, rows: Ints) -> pa.Array:
    keys, ends = layout.keys[rows], layout.key_ends[rows]
    spans = taken(block.data, keys, ends, present=ends > keys)
    places, content = joined(spans)
    expect_text(content, places[:-1], places[1:])
    return spans.cast(pa.string())


def tags_column(block: Block, layout: Layout, rows: Ints) -> pa.Array:
    """The tag lines of all messages are put behind each other, and cut at their ends."""
    places, lines = joined(taken(block.data, layout.tags[rows], layout.tags_ends[rows]))
    line_ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n")) + 1
    line_starts = np.zeros_like(line_ends)
    line_starts[1:] = line_ends[:-1]
    starts, ends = line_starts + len(_TAG_NAME), line_ends - 2
    if len(line_ends):
        expect(starts <= ends)
        expect(has(lines, line_starts, _TAG_NAME) & has(lines, ends, b"\r\n"))
        expect_text(lines, starts, ends, controls=2 * len(ends))
    tags = taken(lines, starts, ends).cast(pa.string())
    counts = np.searchsorted(line_ends, places, "right").astype(np.int32)
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
            if not CLIENT_LINES.fullmatch(lines) or not is_text(lines):
                raise Differs
            parsed[lines] = [{"name": name, "value": value} for name, value in parse_fields(lines)[2]]
        each.append(parsed[lines])
    return pa.array(each, SCHEMA.field("headers").type)


def _bodies_column(block: Block, layout: Layout, rows: Ints) -> pa.Array:
    """Null where a message is erased, or encrypted: then what is stored is not its body."""
    present = ~(layout.erased | layout.encrypted)[rows]
    return taken(block.data, layout.bodies[rows], layout.body_ends[rows], present=present)
