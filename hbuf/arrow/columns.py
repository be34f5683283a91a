"""Arrow columns of a block: each is made with one `take` over the block's bytes, and no message is touched alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from hbuf.arrow.block import BLOCK_ROWS, Block, Ints
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
_NO_TEXTS = pa.array([], pa.string())


def columns_of(
    block: Block,
    layout: Layout,
    rows: Ints,
    names: Sequence[str],
    tenant: str,
    buffer: str,
    opened: pa.Array | None = None,
) -> list[pa.Array]:
    """The columns `names` of the messages at `rows` of a block.

    With `opened` these are their bodies: all that are not erased could be opened.
    Raises Differs, or pyarrow's ArrowInvalid, where a key, a tag, a header or an id is not what one may be.
    """
    data, chosen, count = block.data, layout.only(rows), len(rows)
    made: dict[str, Callable[[], pa.Array]] = {
        "tenant": lambda: _repeated(tenant).slice(0, count),
        "buffer": lambda: _repeated(buffer).slice(0, count),
        "seq": lambda: pa.array(rows + block.first),
        "time": lambda: pa.array(chosen.times_us).view(SCHEMA.field("time").type),
        "id": lambda: _ids_column(data, chosen.ids),
        "key": lambda: key_column(data, chosen),
        "tags": lambda: tags_column(data, chosen),
        "headers": lambda: _headers_column(data, chosen),
        "body": lambda: _bodies_column(data, chosen) if opened is None else opened,
        "erased": lambda: pa.array(chosen.erased),
        "encrypted": lambda: pa.array(chosen.encrypted if opened is None else chosen.encrypted & chosen.erased),
    }
    return [made[name]() for name in names]


@lru_cache(maxsize=4)
def _repeated(text: str) -> pa.Array:
    """As often as a block may have rows: making it costs more than all else that a column costs."""
    return pa.repeat(pa.scalar(text), BLOCK_ROWS)


def _ids_column(data: bytes, places: Ints) -> pa.Array:
    ids = gathered(data, places, ID_BYTES)
    digits = ids.view(np.uint8) - ord("0")  # what is below wraps around
    is_digit = digits < 10
    digits -= ord("a") - ord("0")
    is_digit |= digits < 6
    expect(is_digit)
    offsets = np.arange(0, (len(ids) + 1) * ID_BYTES, ID_BYTES, dtype=np.int32)
    return pa.StringArray.from_buffers(len(ids), pa.py_buffer(offsets), pa.py_buffer(ids))


def key_column(data: bytes, layout: Layout) -> pa.Array:
    present = layout.key_ends > layout.keys
    if not present.any():
        return pa.nulls(len(present), pa.string())
    spans = taken(data, layout.keys, layout.key_ends, present=present)
    places, content = joined(spans)
    expect_text(content, places[:-1], places[1:])
    return spans.cast(pa.string())


def tags_column(data: bytes, layout: Layout) -> pa.Array:
    """The tag lines of all messages are put behind each other, and cut at their ends."""
    kind = SCHEMA.field("tags").type
    if not (layout.tags_ends > layout.tags).any():
        return pa.ListArray.from_arrays(pa.array(np.zeros(layout.records + 1, np.int32)), _NO_TEXTS, type=kind)
    places, lines = joined(taken(data, layout.tags, layout.tags_ends))
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
    return pa.ListArray.from_arrays(pa.array(counts), tags, type=kind)


def _headers_column(data: bytes, layout: Layout) -> pa.Array:
    """Many messages have the same headers: each set of them is parsed once."""
    parsed: dict[bytes, list[dict[str, str]]] = {}
    each = []
    starts = layout.tags_ends.tolist()
    ends = np.where(layout.erased, layout.tags_ends, layout.headers_ends).tolist()
    for start, end in zip(starts, ends, strict=True):
        lines = data[start:end]
        if lines not in parsed:
            if not CLIENT_LINES.fullmatch(lines) or not is_text(lines):
                raise Differs
            parsed[lines] = [{"name": name, "value": value} for name, value in parse_fields(lines)[2]]
        each.append(parsed[lines])
    return pa.array(each, SCHEMA.field("headers").type)


def _bodies_column(data: bytes, layout: Layout) -> pa.Array:
    """Null where a message is erased, or encrypted: then what is stored is not its body."""
    absent = layout.erased | layout.encrypted
    return taken(data, layout.bodies, layout.body_ends, present=~absent if absent.any() else None)
