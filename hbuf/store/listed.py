"""The segments of a buffer as a reader listed them, and those that it has open. Others may retire some at any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hbuf.store.directory import BufferDirectory
from hbuf.store.view import View

_Found = TypeVar("_Found")


class ListedSegments:
    def __init__(self, directory: BufferDirectory) -> None:
        directory.require()
        self.directory = directory
        self.retired_seq = 0  # the last number that was asked for and is retired
        self._firsts: list[int] = []
        self._views: dict[int, View] = {}

    def _listed(self) -> list[int]:
        firsts = self.directory.segment_firsts()
        if not firsts:
            self.directory.require()
        return firsts

    def _let_go(self) -> None:
        """Closes retired segments: as long as one is open it takes room on the disk."""
        for first in [first for first in self._views if first < self._firsts[0]]:
            self._views.pop(first).close()

    @property
    def index_bytes(self) -> int:
        """How much of indexes is in memory."""
        return sum(len(view.entries) for view in self._views.values())

    def let_go_of_old(self) -> None:
        """Closes all segments but the newest and the one that was opened last: for a reader that is kept for long."""
        for first in list(self._views)[:-1]:
            if first != self._firsts[-1]:
                self._views.pop(first).close()

    def _again_if_retired(self, look: Callable[[], _Found]) -> _Found:
        """What `look` finds. Where a segment was retired before it could be opened, the segments are listed again."""
        while True:
            try:
                return look()
            except FileNotFoundError:
                if not self._pass_over_retired():
                    raise

    def _pass_over_retired(self) -> bool:
        """Drops the segments that are not there any more. Those that came are for `refresh`. False where all are."""
        listed = self._listed()
        left = [first for first in self._firsts if first >= listed[0]]
        if left == self._firsts:
            return False
        self._firsts = left or listed
        self._let_go()
        return True

    def _note_retired(self, start: int, last: int) -> None:
        if last >= start:
            self.retired_seq = max(self.retired_seq, last)
