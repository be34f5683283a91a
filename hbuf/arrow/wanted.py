"""Which messages of a block are wanted, by key and tag, for all of them at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hbuf.arrow.block import Block, Ints
from hbuf.arrow.columns import key_column, tags_column
from hbuf.arrow.layout import Layout
from hbuf.format.message import Message
from hbuf.format.tags import Tags, key_term, tag_term


@dataclass(frozen=True, slots=True)
class Wanted:
    """Messages that have one of the keys, and the tag. None: all."""

    keys: frozenset[str] | None = None
    tag: str | None = None

    @property
    def by_terms(self) -> bool:
        return self.keys is not None or self.tag is not None

    def numbers(self, tags: Tags) -> set[int]:
        """The numbers that a sealed segment's tags file names."""
        found = []
        if self.keys is not None:
            found.append(tags.find(key_term(key.encode()) for key in self.keys))
        if self.tag is not None:
            found.append(tags.find([tag_term(self.tag.encode())]))
        return set.intersection(*found)

    def rows(self, block: Block, layout: Layout) -> Ints:
        """The rows of a block that are wanted. What says that others were erased or retired is no message."""
        rows: Ints = np.flatnonzero(~layout.deletes)
        if self.keys is not None:
            among = pc.is_in(
                key_column(block.data, layout.only(rows)), value_set=pa.array(sorted(self.keys), pa.string())
            )
            rows = rows[np.asarray(among)]
        if self.tag is not None:
            tags = tags_column(block.data, layout.only(rows))
            has_it = np.asarray(pc.equal(tags.flatten(), self.tag))
            rows = rows[np.unique(np.asarray(pc.list_parent_indices(tags))[has_it])]
        return rows

    def wants(self, message: Message) -> bool:
        if self.keys is not None and message.key not in self.keys:
            return False
        return self.tag is None or self.tag in message.tags


EVERYTHING = Wanted()
