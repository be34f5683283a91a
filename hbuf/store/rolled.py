"""Segments that were rolled and wait for their tags files: a help to readers, made outside of the lock."""

from __future__ import annotations

import contextlib

from hbuf.errors import HbufError
from hbuf.format import names
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.gate import Gate
from hbuf.store.index_file import read_index_header
from hbuf.store.ledger import Ledger
from hbuf.store.seal import build_tags

_WAIT_SECONDS = 1  # for the lock; what is not compressed now, hbuf-compress does later


class RolledSegments:
    """True where there are some."""

    def __init__(self, directory: BufferDirectory, gate: Gate, ledger: Ledger) -> None:
        self._directory = directory
        self._gate = gate
        self._ledger = ledger
        self._firsts: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def add(self, first: int) -> None:
        self._firsts.append(first)

    def seal(self, *, compress: bool) -> None:
        """What fails is left: the next writer looks for the tags file of the last one, and hbuf-reindex for all."""
        while self._firsts:
            first = self._firsts.pop()
            with contextlib.suppress(OSError, HbufError):
                self._write_tags(first)
                if compress:
                    from hbuf.store.compress import compress_segment

                    compress_segment(self._directory, first, self._gate, timeout_seconds=_WAIT_SECONDS)

    def _write_tags(self, first: int) -> None:
        header = read_index_header(self._directory.index(first))
        content = build_tags(self._directory, first)
        producers = self._ledger.known_until(first - 1)
        self._gate.enter(_WAIT_SECONDS)
        try:
            if read_index_header(self._directory.index(first)) != header:
                content = build_tags(self._directory, first)  # something was erased meanwhile
            fsops.replace_durably(self._directory.tags(first), content, names.NEW_TAGS)
            self._ledger.save(producers)
        finally:
            self._gate.leave()
