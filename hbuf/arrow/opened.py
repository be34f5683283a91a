"""The bodies of encrypted messages of a block, opened where they lie. All else of them is in columns already."""

from __future__ import annotations

import pyarrow as pa

from hbuf.arrow.block import Block, Ints
from hbuf.arrow.layout import SALT_AT, SALT_CHARACTERS, Layout
from hbuf.store.opener import Opener


def opened_bodies(block: Block, layout: Layout, rows: Ints, opener: Opener) -> pa.Array | None:
    """The bodies at `rows`, null where erased. None where one does not open: read by itself, its message tells why."""
    chosen, data = layout.only(rows), block.data
    starts = block.starts[rows]
    head_ends = starts + block.entries["head_length"][rows]
    bodies: list[bytes | None] = []
    for seq, start, head_end, fields_end, body_start, body_end, erased, encrypted in zip(
        (rows + block.first).tolist(),
        starts.tolist(),
        head_ends.tolist(),
        chosen.headers_ends.tolist(),
        chosen.bodies.tolist(),
        chosen.body_ends.tolist(),
        chosen.erased.tolist(),
        chosen.encrypted.tolist(),
        strict=True,
    ):
        body: bytes | None = None
        if encrypted and not erased:
            salt_at = fields_end + SALT_AT
            salt = data[salt_at : salt_at + SALT_CHARACTERS]
            body = opener.body(seq, salt, data[start:head_end], data[head_end:fields_end], data[body_start:body_end])
            if body is None:
                return None
        elif not erased:
            body = data[body_start:body_end]
        bodies.append(body)
    return pa.array(bodies, pa.binary())
