"""A stretch of records with their index entries as one numpy array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hbuf.format import index
from hbuf.format.scan import Record
from hbuf.store.view import Chunk, View

# A batch of Arrow columns has no more rows than this, and its records no more bytes, unless one alone does.
BLOCK_ROWS = 10_000
BLOCK_BYTES = 8 * 1024 * 1024

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Entries = npt.NDArray[np.void]

_ENTRY = np.dtype(
    [
        ("time_us", "<i8"),
        ("offset", "<u4"),
        ("body_length", "<u4"),
        ("section_length", "<u2"),
        ("head_length", "<u2"),
        ("key_offset", "<u2"),
        ("key_length", "<u2"),
        ("tags_length", "<u2"),
        ("flags", "<u2"),
        ("id_start", "<u4"),
    ]
)


@dataclass(frozen=True, slots=True)
class Block:
    """Records back to back, from number `first` on. Positions are those in `data`."""

    first: int
    base: int
    data: bytes
    table: bytes  # the index entries
    starts: Ints
    ends: Ints
    holes: Sequence[tuple[int, int]]

    @property
    def entries(self) -> Entries:
        return np.frombuffer(self.table, _ENTRY)

    @property
    def count(self) -> int:
        return len(self.table) // index.ENTRY_BYTES

    def chunk(self) -> Chunk:
        """The same for reading record by record."""
        entries = index.parse_entries(self.table)
        return Chunk(self.first, self.base, self.data, entries, suspect=True, holes=self.holes)

    def first_record(self) -> Record | None:
        """None where it is damaged."""
        return Chunk(self.first, self.base, self.data, [index.parse_entry(self.table, 0)], holes=self.holes).parse(0)


def cut_block(view: View, at: int, last: int) -> Block | None:
    """A block from entry `at` on; None where the index turns out to be wrong."""
    end = view.end_of_run(at, min(at + BLOCK_ROWS, last))
    table = bytes(memoryview(view.entries)[at * index.ENTRY_BYTES : end * index.ENTRY_BYTES])
    entries = np.frombuffer(table, _ENTRY)
    starts = entries["offset"].astype(np.int64)
    ends = starts + entries["section_length"] + entries["body_length"] + len(b"\r\n")
    base = int(starts[0])
    count = max(int(np.searchsorted(ends, base + BLOCK_BYTES, "right")), 1)
    entries, starts, ends = entries[:count], starts[:count], ends[:count]
    if not _join(entries, starts, ends, view.end_before(at)):
        return None
    stretch = view.read(base, int(ends[-1]))
    if stretch is None:
        return None
    data, holes = stretch
    return Block(view.number(at), base, data, table[: count * index.ENTRY_BYTES], starts - base, ends - base, holes)


def _join(entries: Entries, starts: Ints, ends: Ints, before: int) -> bool:
    """Whether each record begins where the one before ends, or says that it does not. See `index.joins`."""
    due = np.empty_like(starts)
    due[0], due[1:] = before, ends[:-1]
    may_gap = (entries["flags"] & index.FLAG_GAP) != 0
    return bool(np.all((starts == due) | (may_gap & (starts > due))))
