"""Where the files of one buffer are. It builds paths and lists segments; it reads no content."""

from __future__ import annotations

import os
import re
from functools import cached_property
from pathlib import Path

from hbuf.errors import NotFound, UsageError
from hbuf.format import names
from hbuf.store.fsops import os_errors

# What an interrupted creation can leave: with only these a directory counts as empty.
_OWN_FILES = {names.SETTINGS, names.SEGMENTS, names.LOCK, f".new-{names.SETTINGS}"}


_REQUEST_LINE = re.compile(rb"PUT /b/(\S+) HTTP/1\.1\r\n")
_REQUEST_LINE_BYTES = 512


class BufferDirectory:
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.shown = os.fspath(path)  # as the user named it, for what is said to people
        if not self.shown:
            raise UsageError("a buffer's name cannot be empty")
        if "://" in self.shown:
            raise UsageError(f"{self.shown}: is a URL, and this version works on directories")
        self.path = Path(os.path.abspath(path))
        self.segments = self.path / names.SEGMENTS
        self.quarantine = self.path / names.QUARANTINE
        self.staging = self.path / names.STAGING
        self.settings = self.path / names.SETTINGS
        self.producers = self.path / names.PRODUCERS
        self.keys = self.path / names.KEYS
        self.reserve = self.path / names.RESERVE
        self.erasing = self.path / names.ERASING
        self.paused = self.path / names.PAUSED
        self.closed = self.path / names.CLOSED
        self.lock = self.path / names.LOCK

    @cached_property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def tenant(self) -> str:
        """T of `…/tenants/T/buffers/B`; `default` for a buffer that lies anywhere else."""
        tenant = self.path.parent.parent
        if self.path.parent.name == names.BUFFERS and tenant.parent.name == names.TENANTS:
            return tenant.name
        return names.DEFAULT_TENANT

    def segment_firsts(self) -> list[int]:
        """The first numbers of all segments, ascending. Empty where there is no buffer (yet)."""
        try:
            files = os.listdir(self.segments)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted({first for file in files if (first := names.parse_segment_file(file)) is not None})

    def exists(self) -> bool:
        """Whether this is a buffer: a directory with at least one segment."""
        with os_errors(self.shown):
            return bool(self.segment_firsts())

    def is_vacant(self) -> bool:
        """Whether a buffer can be made here: nothing is here, or what an interrupted creation left."""
        try:
            return set(os.listdir(self.path)) <= _OWN_FILES
        except FileNotFoundError:
            return True
        except NotADirectoryError:
            return False

    def require(self) -> None:
        if self.exists():
            return
        if not self.path.exists():
            raise NotFound(f"{self.shown}: there is no such buffer")
        raise NotFound(f"{self.shown}: is not a buffer", hint="a buffer is a directory with segments/*.http in it")

    def segment(self, first: int) -> Path:
        """A plain segment. Where it is there it counts, whatever lies beside it."""
        return self.segments / (names.segment_stem(first) + names.SEGMENT_SUFFIX)

    def compressed(self, first: int) -> Path:
        return self.segments / (names.segment_stem(first) + names.COMPRESSED_SUFFIX)

    def segment_file(self, first: int) -> Path:
        """The file that holds a segment now."""
        plain, compressed = self.segment(first), self.compressed(first)
        return compressed if not plain.exists() and compressed.exists() else plain

    def has_segment(self, first: int) -> bool:
        return self.segment_file(first).exists()

    def segment_shown(self, first: int) -> str:
        return f"{self.shown}: {self.segment_file(first).name}"

    def index(self, first: int) -> Path:
        return self.segments / (names.segment_stem(first) + names.INDEX_SUFFIX)

    def tags(self, first: int) -> Path:
        return self.segments / (names.segment_stem(first) + names.TAGS_SUFFIX)


class LooseSegments(BufferDirectory):
    """Segments in a directory that is no buffer's: a copy of some of them. It has the name that is in the records."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.segments = self.path

    @cached_property
    def name(self) -> str:
        from hbuf.store.segment_file import opened_segment

        for first in self.segment_firsts():
            with opened_segment(self, first) as segment:
                found = _REQUEST_LINE.match(segment.pread(_REQUEST_LINE_BYTES, 0))
                if found:
                    return found[1].decode()
        return self.path.name
