"""What tasks staged for a batch, and the manifest of it. It knows no buffer.

A staged file is on disk, whole, under its name, or it is not there. Names are drawn anew for each attempt, so that
what a manifest names is never replaced by what was computed later.

    <sender>-<batch>-<partition>-<random>.arrow    rows of one partition
    <sender>-<batch>.manifest                      which files and pieces the batch consists of
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa

from hbuf.errors import Damaged, NotFound
from hbuf.spark.staged_file import PieceLimits, Pieces, read_staged, write_staged
from hbuf.store import fsops

_NAME = re.compile(r"(?:\.new-)?([0-9a-f]{32})-([0-9]+)(?:(?:-[0-9a-f]{32})?\.manifest|-[0-9]+-[0-9a-f]{32}\.arrow)")


@dataclass(frozen=True, slots=True)
class StagedFile:
    name: str
    pieces: Pieces


@dataclass(frozen=True, slots=True)
class PieceRange:
    """Some pieces of a staged file that follow each other."""

    file: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a batch consists of, for good: chunk by chunk, in the order in which they are appended."""

    chunks: tuple[tuple[PieceRange, ...], ...]

    def files(self) -> set[str]:
        return {pieces.file for chunk in self.chunks for pieces in chunk}


def sender_of(buffer_uuid: str, name: str) -> str:
    """Under what name somebody stages for a buffer: many may share one directory."""
    return blake2b(f"{buffer_uuid}\n{name}".encode(), digest_size=16).hexdigest()


def make_staging(path: Path) -> None:
    """The directory is there. Where it is made now it is its owner's only: bodies lie in it as they are."""
    try:
        fsops.make_directory(path, most_mode=0o700)
    except FileExistsError:
        return
    fsops.sync_directory(path.parent)


class Staging:
    """The staged files of one sender."""

    def __init__(self, directory: Path, sender: str) -> None:
        self._directory = directory
        self._sender = sender

    def stage(
        self, batch: int, partition: int, batches: Iterable[pa.RecordBatch], limits: PieceLimits
    ) -> StagedFile | None:
        """The rows are in a file, on disk, when it returns. No rows are no file."""
        if not self._directory.is_dir():
            raise NotFound(
                f"{self._directory}: is not there on this worker",
                hint="the option staging names a directory that driver and workers share",
            )
        path = self._directory / f"{self._sender}-{batch}-{partition}-{uuid.uuid4().hex}.arrow"
        beside = path.with_name(f".new-{path.name}")
        try:
            pieces = write_staged(beside, batches, limits)
            if pieces is None:
                return None
            fsops.rename(beside, path)
        except BaseException:
            self.remove([beside.name])
            raise
        fsops.sync_directory(self._directory)
        return StagedFile(path.name, pieces)

    def read(self, chunk: Iterable[PieceRange]) -> Iterator[pa.RecordBatch]:
        for pieces in chunk:
            yield from read_staged(self._directory / pieces.file, pieces.start, pieces.end)

    def save_manifest(self, batch: int, manifest: Manifest) -> None:
        """A manifest of the batch is on disk when it returns: this one, or the one that another driver saved first."""
        chunks = [[[pieces.file, pieces.start, pieces.end] for pieces in chunk] for chunk in manifest.chunks]
        path = self._manifest(batch)
        beside = f".new-{path.stem}-{uuid.uuid4().hex}{path.suffix}"
        fsops.create_durably(path, json.dumps({"chunks": chunks}).encode() + b"\n", beside)

    def load_manifest(self, batch: int) -> Manifest | None:
        try:
            content = self._manifest(batch).read_bytes()
        except FileNotFoundError:
            return None
        try:
            chunks = json.loads(content)["chunks"]
            return Manifest(tuple(tuple(PieceRange(*pieces) for pieces in chunk) for chunk in chunks))
        except (ValueError, KeyError, TypeError):
            raise Damaged(f"{self._manifest(batch)}: is damaged") from None

    def manifest_batches(self) -> list[int]:
        """The batches that have a manifest, in their order."""
        return sorted(batch for name, batch in self._files() if name == self._manifest(batch).name)

    def remove(self, names: Iterable[str]) -> None:
        """These files are gone, whether they were there or not."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                fsops.unlink(self._directory / name)

    def drop(self, batch: int, name: str) -> None:
        """Removes a file that nobody will ask for: not one that a manifest names."""
        manifest = self.load_manifest(batch)
        if manifest is None or name not in manifest.files():
            self.remove([name])

    def remove_until(self, batch: int) -> None:
        """All of this batch and of those before it is gone: also what no manifest came to name."""
        self.remove([name for name, of in self._files() if of <= batch])

    def remove_all(self) -> None:
        self.remove([name for name, _ in self._files()])

    def _files(self) -> list[tuple[str, int]]:
        """Names and batches of the sender's files."""
        found = ((name, _NAME.fullmatch(name)) for name in os.listdir(self._directory))
        return [(name, int(parts[2])) for name, parts in found if parts and parts[1] == self._sender]

    def _manifest(self, batch: int) -> Path:
        return self._directory / f"{self._sender}-{batch}.manifest"
