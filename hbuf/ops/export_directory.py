"""The directory of an export: each file appears under its name when it is whole and on disk, the manifest last.

It does not know what the files hold. Names that start with `_` are passed over by Spark, pyarrow and others.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import quote

from hbuf.errors import CannotCreate
from hbuf.format.times import datetime_of
from hbuf.store import fsops
from hbuf.store.create import make_directories
from hbuf.store.directory import BufferDirectory

By = Literal["day", "buffer"]

MANIFEST = "_export.json"
# There from the first file on until the manifest is written: who finds it has half an export.
UNFINISHED = "_unfinished"
_NEW = "_new-"

DAY_US = 86_400_000_000


def day_of(time_us: int) -> int:
    """The UTC day of a time, counted from 1970."""
    return time_us // DAY_US


class NewFile:
    """A file under a temporary name. Also what pyarrow takes for a file to write to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(_NEW + path.name)
        self._fd = fsops.create_file(self._temporary)
        self._length = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        size = memoryview(data).nbytes
        if self.closed:
            return size  # pyarrow writes an end even to what has failed; the number may be another file's by now
        fsops.write_all_at(self._fd, data, self._length)
        self._length += size
        return size

    def tell(self) -> int:
        return self._length

    def flush(self) -> None:
        """What was written is in the system's cache already."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._fd)

    def finish(self) -> None:
        """The file is on disk, under its name."""
        fsops.sync_data(self._fd)
        self.close()
        fsops.rename(self._temporary, self._path)
        fsops.sync_directory(self._path.parent)


class ExportDirectory:
    """An empty directory, made where it is missing, that takes one export. Left with an error, it is as it was before.

    Not for two threads at once.
    """

    def __init__(self, path: str) -> None:
        self.shown = path
        self.path = Path(os.path.abspath(path))
        self.files: list[dict[str, Any]] = []
        self._made: list[Path] = []  # directories, the outer ones first

    def check(self) -> None:
        """Raises where no export can be made here."""
        with fsops.os_errors(self.shown):
            if not self.path.exists():
                around = next((above for above in self.path.parents if BufferDirectory(above).exists()), None)
            else:
                if not self.path.is_dir():
                    raise CannotCreate(f"{self.shown}: exists and is not a directory")
                if (self.path / UNFINISHED).exists():
                    raise CannotCreate(
                        f"{self.shown}: holds an export that was not finished", hint="remove it, and export again"
                    )
                if any(self.path.iterdir()):
                    raise CannotCreate(f"{self.shown}: is not empty", hint="an export needs a directory of its own")
                around = next((at for at in (self.path, *self.path.parents) if BufferDirectory(at).exists()), None)
        if around is not None:
            raise CannotCreate(f"{self.shown}: is inside the buffer {around}")

    def __enter__(self) -> ExportDirectory:
        with fsops.os_errors(self.shown):
            try:
                self._make(self.path)
                os.close(fsops.create_file(self.path / UNFINISHED))
                fsops.sync_directory(self.path)
            except BaseException:
                self._clean_up()
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._clean_up()

    def new_file(self, name: str) -> NewFile:
        """A file that is not there yet; its directories are made."""
        path = self.path / name
        self._make(path.parent)
        return NewFile(path)

    def take_over(self, file: Path, name: str) -> None:
        """A whole file that somebody else wrote in this directory: on disk, under its name."""
        path = self.path / name
        self._make(path.parent)
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fsops.own_like(fd, os.stat(path.parent))
            fsops.sync_data(fd)
        finally:
            os.close(fd)
        fsops.rename(file, path)
        fsops.sync_directory(path.parent)

    def note(self, name: str, messages: int) -> None:
        """A file that is finished."""
        self.files.append({"path": name, "messages": messages})

    def finish(self, manifest: dict[str, Any]) -> None:
        """Writes the manifest: the export is whole, and on disk."""
        with fsops.os_errors(self.shown):
            content = json.dumps({**manifest, "files": self.files}, indent=1, ensure_ascii=False) + "\n"
            fsops.replace_durably(self.path / MANIFEST, content.encode(), _NEW + MANIFEST)
            fsops.unlink(self.path / UNFINISHED)
            fsops.sync_directory(self.path)

    def _make(self, path: Path) -> None:
        missing = []
        while not path.exists():
            missing.append(path)
            path = path.parent
        self._made += reversed(missing)
        if missing:
            make_directories(missing[0])

    def _clean_up(self) -> None:
        """Takes away what was made. What cannot be taken away stays, marked as unfinished."""
        with contextlib.suppress(OSError):
            for folder in reversed([made for made in self._made if made.exists()]):
                if folder.is_relative_to(self.path):
                    _empty(folder)
                os.rmdir(folder)
            if self.path.exists():
                _empty(self.path)


def _empty(folder: Path) -> None:
    for file in sorted(folder.iterdir(), key=lambda file: file.name == UNFINISHED):
        fsops.unlink(file)


class FormatFile(Protocol):
    """Writes rows of one form into a `NewFile`."""

    def add(self, rows: Any) -> None: ...
    def finish(self) -> None: ...


class Partitions:
    """The files of one buffer: one for each day, or one for all. A buffer's times never go back, nor do its days."""

    def __init__(
        self,
        directory: ExportDirectory,
        by: By,
        suffix: str,
        place: int,
        source: tuple[str, str],
        open_file: Callable[[NewFile], FormatFile],
    ) -> None:
        """`place` is that of the buffer in the export, `source` its tenant and name."""
        self._directory = directory
        self._by = by
        self._suffix = suffix
        self._place = place
        self._source = source
        self._open_file = open_file
        self._day: int | None = None
        self._name = ""
        self._count = 0
        self._messages = 0
        self._file: NewFile | None = None
        self._form: FormatFile | None = None

    def __enter__(self) -> Partitions:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                with fsops.os_errors(self._directory.shown):
                    self._end()
        finally:
            if self._file is not None:
                self._file.close()

    def add(self, day: int, rows: Any, messages: int) -> None:
        with fsops.os_errors(self._directory.shown):
            if self._form is None or (self._by == "day" and day != self._day):
                self._end()
                self._form = self._begin(day)
            self._form.add(rows)
        self._messages += messages

    def _begin(self, day: int) -> FormatFile:
        self._day = day
        self._name = f"{partition(self._by, day, self._source)}/{part(self._place, self._count)}{self._suffix}"
        self._count += 1
        self._file = self._directory.new_file(self._name)
        return self._open_file(self._file)

    def _end(self) -> None:
        if self._file is None or self._form is None:
            return
        self._form.finish()
        self._file.finish()
        self._directory.note(self._name, self._messages)
        self._file, self._form, self._messages = None, None, 0


def partition(by: By, day: int, source: tuple[str, str]) -> str:
    """The directory of rows, as Hive names it: columns and their values."""
    if by == "day":
        return f"day={datetime_of(day * DAY_US).date().isoformat()}"
    tenant, buffer = source
    return f"tenant={quote(tenant, safe='')}/buffer={quote(buffer, safe='')}"


def part(place: int, number: int) -> str:
    """The name of a file: files sorted by name are in order of buffers, and of messages in a buffer."""
    return f"part-{place:05d}-{number:05d}"
