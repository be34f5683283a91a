"""Verifying a buffer on a server: its files are downloaded and checked here. The server's word counts for nothing.

The disk holds what is being checked and no more: of a segment that was checked only its opening is kept, which
what follows is compared with. What looks wrong may be an erase that went on meanwhile, so it is looked at again,
until the server lists the same files before and after.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from hbuf.errors import Damaged, HbufError, Locked, NotFound
from hbuf.format import names
from hbuf.ops.audits import SHARE_BYTES, Task, audit_in_process
from hbuf.ops.report import Report
from hbuf.ops.verify import Wanted, judge
from hbuf.remote.buffer import RemoteBuffer
from hbuf.remote.connection import Connection
from hbuf.remote.segment import Listed, list_files
from hbuf.store.audit import SegmentAudit, audit_segment
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
from hbuf.store.index_file import read_index_header
from hbuf.store.segment_file import opened_segment
from hbuf.store.tail import read_opening

_PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.2
_ROUNDS = 30  # as many listings, at most, until what looks wrong is certain
_CERTAIN_ROUNDS = 3  # listings between which no sealed segment changed


class _Copies(BufferDirectory):
    """A directory with copies of a server's files, some of them cut to what joining needs."""

    def __init__(self, path: Path, shown: str) -> None:
        super().__init__(path)
        self.shown = shown
        self.files: dict[int, str] = {}  # the names of the segments' files on the server

    def segment_firsts(self) -> list[int]:
        return sorted(self.files)

    def segment_file(self, first: int) -> Path:
        return self.segments / self.files[first]


class _Snapshot:
    """What the server lists at one time."""

    def __init__(self, listed: list[Listed]) -> None:
        self.files = {each.file: each for each in listed}
        self.segments: dict[int, Listed] = {}
        for each in listed:
            first = names.parse_segment_file(each.file)
            if first is not None:
                self.segments.setdefault(first, each)

    def of(self, first: int) -> tuple[Listed | None, ...]:
        """All that is listed of one segment, in the order in which it is to be read.

        The index comes first: then the segment has all that the index knows of.
        """
        stem = names.segment_stem(first)
        beside = (self.files.get(stem + suffix) for suffix in (names.INDEX_SUFFIX, names.TAGS_SUFFIX))
        return (*beside, self.segments.get(first))


def verify_remote(
    buffer: RemoteBuffer, wanted: Wanted, jobs: int | None, progress: Callable[[int, int], None]
) -> Report:
    """Checks all that the server has of the buffer now."""
    with (
        os_errors(tempfile.gettempdir()),
        tempfile.TemporaryDirectory(prefix="hbuf-verify-") as folder,
        buffer.connect(_PATIENCE_SECONDS) as connection,
    ):
        directory = _Copies(Path(folder) / buffer.name, buffer.shown)
        directory.segments.mkdir(parents=True)
        return _Verifying(directory, connection, wanted, jobs or os.cpu_count() or 1, progress).run()


class _Verifying:
    def __init__(
        self,
        directory: _Copies,
        connection: Connection,
        wanted: Wanted,
        jobs: int,
        progress: Callable[[int, int], None],
    ) -> None:
        self._directory = directory
        self._connection = connection
        self._wanted = wanted
        self._jobs = jobs
        self._progress = progress
        self._done: dict[int, SegmentAudit] = {}
        self._seen: dict[int, tuple[Listed | None, ...]] = {}  # what of each segment was checked
        self._erase_counters: dict[int, int] = {}
        self._beside: dict[str, Listed | None] = {}
        self._taken = 0
        self._total = 0

    def run(self) -> Report:
        steady = 0
        for _ in range(_ROUNDS):
            snapshot = _Snapshot(list_files(self._connection))
            if not snapshot.segments:
                raise Damaged(f"{self._directory.shown}: the server lists no segments")
            changed = [first for first in snapshot.segments if self._seen.get(first) != snapshot.of(first)]
            newest = max(self._seen, default=0)
            steady = 0 if any(first < newest for first in changed) else steady + 1
            try:
                self._look(snapshot, changed)
            except NotFound:
                steady = 0  # a file was compressed or retired since it was listed
                continue
            report = Report(self._directory.shown)
            judge(self._directory, {first: self._done[first] for first in snapshot.segments}, report, self._wanted)
            if not report.faults:
                return report
            if not self._is_being_erased(snapshot) and (
                steady >= _CERTAIN_ROUNDS or not self._is_changed_since(snapshot)
            ):
                return report
            time.sleep(_PAUSE_SECONDS)
        # Neither a yes nor a fault: what looks wrong may be an erase that takes long.
        raise Locked(
            f"{self._directory.shown}: something looks wrong, and it is being changed: that may be an erase under way",
            hint="verify it again, or while it is paused",
        )

    def _is_changed_since(self, snapshot: _Snapshot) -> bool:
        return _Snapshot(list_files(self._connection)).files != snapshot.files

    def _is_being_erased(self, snapshot: _Snapshot) -> bool:
        """Whether an index says that messages of its segment were being erased when it was read."""
        return any(self._erase_counters.get(first, 0) % 2 for first in snapshot.segments)

    def _look(self, snapshot: _Snapshot, changed: list[int]) -> None:
        """Downloads and checks what is not known yet."""
        self._total = self._taken + sum(file.bytes for first in changed for file in snapshot.of(first) if file)
        self._directory.files = {first: listed.file for first, listed in snapshot.segments.items()}
        for first in self._done.keys() - snapshot.segments.keys():
            self._forget(first)
        for name in (names.SETTINGS, names.KEYS):
            self._fetch_beside(name, snapshot.files.get(name))
        newest = max(snapshot.segments)
        for task, audit in self._audits(snapshot, sorted(changed), newest):
            self._done[task.first] = audit
            self._seen[task.first] = snapshot.of(task.first)
            self._cut(task.first)

    # Files

    def _fetch_beside(self, name: str, listed: Listed | None) -> None:
        """buffer.json and keys.http, as they are."""
        path = self._directory.path / name
        if listed is None:
            path.unlink(missing_ok=True)
        elif self._beside.get(name) != listed or not path.exists():
            self._download(listed.file, path)
        self._beside[name] = listed

    def _fetch(self, snapshot: _Snapshot, first: int) -> int:
        """Downloads a segment and what lies beside it. Returns how many bytes there are to check."""
        self._forget(first)
        size = 0
        for listed in snapshot.of(first):
            if listed is not None:
                size = self._download(listed.file, self._directory.segments / listed.file)
        segment = snapshot.segments[first]
        header = read_index_header(self._directory.index(first))
        self._erase_counters[first] = header.erase_counter if header else 0
        if segment.file.endswith(names.COMPRESSED_SUFFIX):
            with opened_segment(self._directory, first) as opened:
                return opened.length
        return max(size, segment.bytes)  # what is missing of what was listed is a fault

    def _download(self, name: str, path: Path) -> int:
        def taken(count: int) -> None:
            self._taken += count
            self._progress(self._taken, max(self._total, self._taken))

        with open(path, "wb") as file:
            length, _ = self._connection.download(f"/segments/{name}", file, taken)
        return length

    def _forget(self, first: int) -> None:
        self._done.pop(first, None)
        self._seen.pop(first, None)
        directory = self._directory
        for path in (
            directory.segment(first),
            directory.compressed(first),
            directory.index(first),
            directory.tags(first),
        ):
            path.unlink(missing_ok=True)

    def _cut(self, first: int) -> None:
        """Keeps no more of a segment than its opening."""
        directory = self._directory
        with contextlib.suppress(HbufError), opened_segment(directory, first) as segment:
            opening = segment.pread(read_opening(segment, directory.segment_shown(first)).length, 0)
            directory.segment(first).write_bytes(opening)
            directory.compressed(first).unlink(missing_ok=True)
        directory.index(first).unlink(missing_ok=True)
        directory.tags(first).unlink(missing_ok=True)

    # Auditing

    def _audits(self, snapshot: _Snapshot, firsts: list[int], newest: int) -> Iterator[tuple[Task, SegmentAudit]]:
        """Checks segments in processes of their own while others are still being downloaded."""
        running: dict[Future[list[SegmentAudit]], list[Task]] = {}
        share: list[Task] = []
        pool = ThreadPoolExecutor(self._jobs)
        try:
            for first in firsts:
                length = self._fetch(snapshot, first)
                share.append(Task(str(self._directory.path), first, length, first == newest, self._wanted.asked))
                if sum(task.length for task in share) >= SHARE_BYTES:
                    while len(running) > self._jobs:
                        yield from _finished(running)
                    running[pool.submit(audit_in_process, share)] = share
                    share = []
            for task in share:  # the last are few
                yield task, audit_segment(*task)
            while running:
                yield from _finished(running)
        finally:
            pool.shutdown(cancel_futures=True)


def _finished(
    running: dict[Future[list[SegmentAudit]], list[Task]],
) -> Iterator[tuple[Task, SegmentAudit]]:
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        yield from zip(running.pop(future), future.result(), strict=True)
