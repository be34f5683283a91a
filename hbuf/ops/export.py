"""What an export takes: which buffers, and of each the same cut in time. How it is written is for others to know."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hbuf.errors import Damaged, HbufError, NotFound, UsageError
from hbuf.format.places import FIRST, Place
from hbuf.format.times import encode_time
from hbuf.ops.ls import find_buffers
from hbuf.store.data_keys import Identity
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
from hbuf.store.reader import Reader


@dataclass(frozen=True, slots=True)
class Selection:
    """What is exported of each buffer. `at_us` None: up to the end as it is now."""

    at_us: int | None = None
    place: Place = FIRST
    key: str | None = None
    tag: str | None = None
    identities: Sequence[Identity] = ()
    skip_damaged: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """The numbers `start` up to but not `end` of a buffer."""

    directory: BufferDirectory
    start: int
    end: int

    @property
    def source(self) -> tuple[str, str]:
        return self.directory.tenant, self.directory.name


@dataclass(slots=True)
class Tally:
    """What was written of one buffer."""

    tenant: str
    buffer: str
    messages: int = 0
    first: int | None = None
    last: int | None = None
    last_id: str | None = None
    erased: int = 0
    encrypted: int = 0  # without a body that can be read
    damaged: int = 0  # left out

    def add(self, messages: int, first: int, last: int, last_id: str) -> None:
        if self.first is None:
            self.first = first
        self.last, self.last_id = last, last_id
        self.messages += messages

    def encode(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class Watch:
    """Who is told of what happens: how many numbers were looked at, and what cannot be had."""

    def __init__(
        self,
        cuts: Sequence[Cut],
        progress: Callable[[int, int], None] = lambda done, total: None,
        notice: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.notice = notice
        self._progress = progress
        self._total = sum(max(cut.end - cut.start, 0) for cut in cuts)
        self._before: dict[Cut, int] = {}
        for cut in cuts:
            self._before[cut] = sum(max(each.end - each.start, 0) for each in self._before)

    def reached(self, cut: Cut, seq: int) -> None:
        """All before number `seq` of a buffer, and all of the buffers before it, are done."""
        self._progress(self._before[cut] + max(seq - cut.start, 0), self._total)


def find_sources(paths: Sequence[str]) -> list[BufferDirectory]:
    """The buffers that are meant by buffers' directories, directories of buffers or of links to them, and globs.

    Each is there once, under its own name whatever a link to it is called, in order of tenant and name.
    """
    found: dict[Path, BufferDirectory] = {}
    for path in paths:
        for directory in _find(path):
            found.setdefault(directory.path, directory)
    ordered = sorted(found.values(), key=lambda directory: (directory.tenant, directory.name))
    for before, directory in pairwise(ordered):
        if (before.tenant, before.name) == (directory.tenant, directory.name):
            raise UsageError(f"{before.shown} and {directory.shown}: have the same tenant and name")
    for directory in ordered:
        if not (directory.tenant + directory.name).isprintable():
            raise UsageError(f"{directory.shown}: its name is not text")
    return ordered


def _find(path: str) -> Iterator[BufferDirectory]:
    is_glob = glob.has_magic(path) and not os.path.lexists(path)
    matches = sorted(glob.glob(path)) if is_glob else [path]
    if not matches:
        raise NotFound(f"{path}: there is no such buffer")
    for match in matches:
        there = list(find_buffers(match, _raise))
        # What is hbuf's own is taken only where it is named.
        wanted = [each for each in there if not each.name.startswith("_") or each.shown == match]
        if not wanted and not is_glob:
            raise NotFound(f"{match}: is not a buffer, nor is there one in it")
        for each in wanted:
            real = BufferDirectory(os.path.realpath(each.path))
            real.shown = each.shown
            yield real


def _raise(error: HbufError) -> None:
    raise error


def cut_all(directories: Sequence[BufferDirectory], selection: Selection, now: Callable[[], int]) -> list[Cut]:
    """Cuts all buffers at one moment.

    What was stored after the answer to another message was read is in the cut only if that other message is. While
    the buffers are opened one by one more may come: what has a later time than the first look is not taken.
    """
    began_us = now()
    ends = []
    for directory in directories:
        with Reader(directory) as reader:
            ends.append((directory, reader.end_seq))
    ended_us = now()
    cuts = []
    for directory, end in ends:
        with Reader(directory) as reader:
            last_us = reader.time_of(end - 1) if selection.at_us is None and end > reader.first_seq else None
            if selection.at_us is not None:
                end = min(end, reader.first_at(selection.at_us + 1))
            elif len(ends) > 1 and last_us is not None and began_us < last_us <= ended_us:
                # A time beyond the last look is that of a clock that was ahead, and tells nothing of the order.
                end = min(end, reader.first_at(began_us + 1))
            cuts.append(Cut(directory, max(reader.resolve(selection.place), 1), end))
    return cuts


def bytes_to_read(cuts: Sequence[Cut]) -> int:
    """The bytes on disk of the segments that hold what was cut out."""
    total = 0
    for cut in cuts:
        firsts = cut.directory.segment_firsts()
        for first, following in zip(firsts, [*firsts[1:], cut.end], strict=True):
            if first < cut.end and following > cut.start:
                with os_errors(cut.directory.shown), contextlib.suppress(FileNotFoundError):  # retired meanwhile
                    total += os.stat(cut.directory.segment_file(first)).st_size
    return total


class Refusals:
    """What cannot be read of a buffer, and what comes of it: an error, or a word at the end."""

    def __init__(self, reader: Reader, *, skip_damaged: bool) -> None:
        self._reader = reader
        self._skip = skip_damaged
        self._not_opened: list[str] = []

    def notice(self, error: HbufError) -> None:
        """For an `Opener`."""
        if not self._skip or not isinstance(error, Damaged):
            raise error
        self._not_opened.append(error.message)

    def check(self) -> None:
        """Raises where there is damage that is not to be passed over."""
        if self._reader.damage and not self._skip:
            raise Damaged(self._damage()[0], hint="--skip-damaged leaves out what cannot be read")

    def finish(self, tally: Tally, notice: Callable[[str], None]) -> None:
        """Says what was left out."""
        self.check()
        left_out = self._damage() + self._not_opened
        tally.damaged = len(left_out)
        for reason in left_out:
            notice(reason)
        if last := self._reader.retired_seq:
            notice(f"{self._reader.directory.shown}: messages up to {last} are retired; the first is {last + 1}")

    def _damage(self) -> list[str]:
        shown = self._reader.directory.segment_shown
        return [f"{shown(first)}: byte {at}: {reason}" for (first, at), reason in sorted(self._reader.damage.items())]


def manifest_of(form: str, by: str, at_us: int, selection: Selection, tallies: Sequence[Tally]) -> dict[str, Any]:
    """What `_export.json` says, but for its files."""
    return {
        "hbuf_export": 1,
        "format": form,
        "by": by,
        "at": encode_time(at_us),
        "key": selection.key,
        "tag": selection.tag,
        "messages": sum(tally.messages for tally in tallies),
        "buffers": [tally.encode() for tally in tallies],
    }
