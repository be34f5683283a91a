"""Reading messages: from a place to a place, filtered, and on as they come."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hbuf.format import index
from hbuf.format.message import Message, message_of
from hbuf.format.places import END, Place
from hbuf.format.scan import Record, key_of, tags_of
from hbuf.format.tags import Tags, key_term, tag_term
from hbuf.store.reader import Chunk, Reader

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Filter:
    """Which messages are wanted. Empty: all."""

    key: bytes | None = None
    tag: bytes | None = None
    pattern: re.Pattern[bytes] | None = None
    until_us: int | None = None

    @property
    def by_terms(self) -> bool:
        return self.key is not None or self.tag is not None

    def terms(self, tags: Tags) -> set[int]:
        found = [tags.find([term]) for term in self._terms()]
        return set.intersection(*found)

    def _terms(self) -> list[bytes]:
        terms = [key_term(self.key)] if self.key is not None else []
        return [*terms, tag_term(self.tag)] if self.tag is not None else terms

    def wants(self, data: bytes, record: Record) -> bool:
        if self.key is not None and key_of(data, record) != self.key:
            return False
        if self.tag is not None and self.tag not in tags_of(data, record):
            return False
        return self.pattern is None or self.pattern.search(data, record.section_end, record.end - 2) is not None

    @property
    def wants_all(self) -> bool:
        return not self.by_terms and self.pattern is None


EVERYTHING = Filter()


def select_chunks(reader: Reader, start: int, end: int, wanted: Filter) -> Iterator[tuple[Chunk, list[int] | None]]:
    """Chunks, each with the places in it that are wanted (None: all of them)."""
    terms = wanted.terms if wanted.by_terms else None
    for chunk in reader.chunks(start, end, terms):
        entries = chunk.entries
        stop = len(entries)
        if wanted.until_us is not None and entries[-1].time_us >= wanted.until_us:
            stop = next(i for i, entry in enumerate(entries) if entry.time_us >= wanted.until_us)
        if wanted.wants_all and stop == len(entries) and not any(entry.flags & index.FLAG_DELETE for entry in entries):
            yield chunk, None
            continue
        places = []
        for i in range(stop):
            if entries[i].flags & index.FLAG_DELETE:
                continue
            record = chunk.parse(i)
            if record is None:
                note_damage(reader, chunk, i)
            elif wanted.wants(chunk.data, record):
                places.append(i)
        yield chunk, places
        if stop < len(entries):
            return


def note_damage(reader: Reader, chunk: Chunk, i: int) -> None:
    """Message `i` of a chunk cannot be read: said once, and passed over."""
    seq = chunk.first + i
    reader.damage[reader.segment_of(seq), chunk.entries[i].offset] = f"message {seq} is damaged"


def messages(reader: Reader, start: int, end: int, wanted: Filter = EVERYTHING) -> Iterator[Message]:
    tenant, name = reader.directory.tenant, reader.directory.name
    for chunk, places in select_chunks(reader, start, end, wanted):
        for i in range(len(chunk.entries)) if places is None else places:
            record = chunk.parse(i)
            if record is None:
                note_damage(reader, chunk, i)
            else:
                yield message_of(chunk.data, record, tenant, name)


def bodies(chunk: Chunk, places: list[int] | None) -> list[bytes]:
    """Bodies by the index alone: nothing is parsed."""
    base, data = chunk.base, chunk.data
    entries = chunk.entries if places is None else [chunk.entries[i] for i in places]
    return [data[entry[1] - base + entry[3] : entry[1] - base + entry[3] + entry[2]] for entry in entries]


def records(chunk: Chunk, places: list[int] | None) -> list[bytes]:
    """Records as they are stored."""
    entries = chunk.entries if places is None else [chunk.entries[i] for i in places]
    return [chunk.data[entry.offset - chunk.base : entry.end - chunk.base] for entry in entries]


class Follower:
    """Waits for new messages: woken by inotify through watchdog, or by looking now and then (`poll`)."""

    def __init__(self, reader: Reader, *, poll: bool = False) -> None:
        self._reader = reader
        self._poll = poll
        self._woken = threading.Event()
        self._observer: object | None = None
        if not poll:
            self._watch()

    def _watch(self) -> None:
        from watchdog.events import (
            FileCreatedEvent,
            FileModifiedEvent,
            FileMovedEvent,
            FileSystemEvent,
            FileSystemEventHandler,
        )
        from watchdog.observers import Observer

        woken = self._woken

        class Wake(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                woken.set()

        observer = Observer()
        observer.daemon = True
        # Not opening and closing: our own reading would wake us.
        wanted: list[type[FileSystemEvent]] = [FileCreatedEvent, FileModifiedEvent, FileMovedEvent]
        observer.schedule(Wake(), str(self._reader.directory.segments), event_filter=wanted)
        observer.start()
        self._observer = observer

    def wait(self, end: int, timeout_seconds: float | None = None) -> int:
        """Returns when there are messages from `end` on, or the time is up: one more than the last number."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            self._woken.clear()
            self._reader.refresh()
            if self._reader.end_seq > end:
                return self._reader.end_seq
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return end
            if self._poll:
                time.sleep(_POLL_SECONDS if left is None else min(_POLL_SECONDS, left))
            else:
                self._woken.wait(left)

    def close(self) -> None:
        stop: Callable[[], None] | None = getattr(self._observer, "stop", None)
        if stop:
            stop()


def follow(reader: Reader, place: Place = END, wanted: Filter = EVERYTHING, *, poll: bool = False) -> Iterator[Message]:
    """Messages from `place` on, for ever."""
    follower = Follower(reader, poll=poll)
    try:
        at = reader.resolve(place)
        while True:
            end = follower.wait(at)
            yield from messages(reader, at, end, wanted)
            at = max(at, end)
    finally:
        follower.close()
