"""Erasing messages by number, by key, or after a list; saying what would go, and what went."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hbuf.errors import Damaged, NotAllowed, UsageError
from hbuf.format.deletes import check_reason
from hbuf.format.erased_list import encode_erased_list, parse_erased_list
from hbuf.format.message import Message, message_of
from hbuf.ops.filter import Filter
from hbuf.ops.set import read_settings
from hbuf.ops.tail import messages
from hbuf.remote.buffer import RemoteBuffer
from hbuf.store import erase as store
from hbuf.store.deletes import erasures
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
from hbuf.store.lock import Lock
from hbuf.store.markers import acting_user
from hbuf.store.reader import Reader
from hbuf.store.signing import Signer
from hbuf.store.writer import Writer

_NUMBERS = re.compile(r"([1-9][0-9]{0,17})(?:-([1-9][0-9]{0,17}))?")
_WAIT_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Erasing:
    """Why something is erased, and how."""

    reason: str
    timeout_seconds: float = 30
    wait_paused: bool = field(default=True, kw_only=True)
    signer: Signer | None = None
    notice: Callable[[str], None] = lambda line: None
    by: bytes | None = None  # who, if not the user of this process; see `acting_user`
    missing: Callable[[int], None] = lambda count: None  # told how many that a list names are not in the buffer

    def run(
        self, directory: BufferDirectory, numbers: Sequence[int], *, again: bool = False, named: bool = True
    ) -> int:
        reason = self.checked_reason()
        writer = Writer(
            directory,
            timeout_seconds=self.timeout_seconds,
            wait_paused=self.wait_paused,
            notice=self.notice,
            signer=self.signer,
        )
        with writer, os_errors(directory.shown):
            if not numbers and directory.erasing.exists():
                with writer.locked():  # opening it finishes what was interrupted
                    store.refuse_unfinished(directory)
                    return 0
            by = acting_user() if self.by is None else self.by
            erased = store.erase(writer, numbers, by, reason, again=again, named=named)
            self._tell_of_staged(directory)
            return erased

    def checked_reason(self) -> bytes:
        reason = check_reason(self.reason)
        if not reason:
            raise UsageError("the reason cannot be empty")
        return reason

    def _tell_of_staged(self, directory: BufferDirectory) -> None:
        """What a job of Spark that was killed left, may hold the same messages. Only the job knows which."""
        with contextlib.suppress(FileNotFoundError):
            if os.listdir(directory.staging):
                self.notice("staging/ has rows of a write that is under way or was killed: they were not looked at")


def parse_numbers(texts: Iterable[str]) -> list[range]:
    """`7` and `10-20`, the last one included."""
    found = []
    for text in texts:
        match = _NUMBERS.fullmatch(text)
        start = int(match[1]) if match else 0
        end = int(match[2] or start) if match else 0
        if not 0 < start <= end:
            raise UsageError(f"'{text}' is not a number or a range", hint="write it like 7 or 10-20")
        found.append(range(start, end + 1))
    return found


def erase(path: str | RemoteBuffer, wanted: Sequence[range] | str, erasing: Erasing) -> int:
    """Erases messages by their numbers, or all of one key. Returns how many; 0 where they were erased already.

    Of a range all that are messages go; a number that is not there, or is no message, is refused, and nothing goes.
    """
    if isinstance(path, RemoteBuffer):
        from hbuf.remote import verbs

        erasing.checked_reason()
        return verbs.erase(path, _named(wanted), erasing.reason, erasing.timeout_seconds)
    directory = _erasable(path)
    erased = 0
    start = 1
    while True:
        with Reader(directory) as reader:
            end = reader.end_seq
            numbers = [message.seq for message in _select(reader, wanted, start)]
        erased += erasing.run(directory, numbers, named=not isinstance(wanted, str))
        if not isinstance(wanted, str) or not numbers:
            return erased
        start = end  # more of the key may have come meanwhile


def _named(wanted: Sequence[range] | str) -> dict[str, Any]:
    """What is wanted, as a server is told."""
    if isinstance(wanted, str):
        return {"key": wanted}
    return {"numbers": [str(each.start) if len(each) == 1 else f"{each.start}-{each.stop - 1}" for each in wanted]}


def candidates(path: str | RemoteBuffer, wanted: Sequence[range] | str) -> Iterator[Message]:
    """The messages that `erase` would erase."""
    if isinstance(path, RemoteBuffer):
        from hbuf.remote import verbs

        yield from verbs.candidates(path, _named(wanted))
        return
    with Reader(_erasable(path)) as reader:
        yield from _select(reader, wanted, 1)


def list_erased(path: str | RemoteBuffer) -> bytes:
    """All that DELETEs say was erased, as a text for `apply_list`."""
    if isinstance(path, RemoteBuffer):
        from hbuf.remote import verbs

        return verbs.list_erased(path)
    directory = BufferDirectory(path)
    directory.require()
    lock = Lock(directory)
    try:
        with os_errors(directory.shown):
            with contextlib.suppress(FileNotFoundError):  # a copy without its lock: whoever writes makes it first
                lock.acquire(shared=True, deadline=time.monotonic() + _WAIT_SECONDS)
            found = erasures(directory)
    finally:
        lock.close()
    return encode_erased_list(read_settings(path).uuid, found.values())


def apply_list(path: str | RemoteBuffer, listed: bytes, erasing: Erasing) -> int:
    """Erases again what a list names, in a buffer that was restored from an older backup. Returns how many.

    A number that is another message now is left alone: what the list names came after the backup.
    """
    uuid, found = parse_erased_list(listed)
    if isinstance(path, RemoteBuffer):
        from hbuf.remote import verbs

        erasing.checked_reason()
        erased, missing = verbs.apply_list(path, listed, erasing.reason, erasing.timeout_seconds)
        _say_missing(erasing, missing, len(found))
        return erased
    directory = _erasable(path)
    own = read_settings(path).uuid
    if uuid != own:
        raise NotAllowed(f"{directory.shown}: the list is of another buffer: {uuid}, and this is {own}")
    expected = {what.seq: what for what in found}
    with Reader(directory) as reader:
        there = _merged([range(seq, seq + 1) for seq in expected if reader.first_seq <= seq < reader.end_seq])
        ids = {seq: found_id for each in there for seq, found_id in _ids_of(reader, each)}
    numbers = [seq for seq, found_id in ids.items() if found_id == expected[seq].id]
    _say_missing(erasing, len(expected) - len(numbers), len(expected))
    return erasing.run(directory, numbers, again=True, named=False)


def _say_missing(erasing: Erasing, missing: int, count: int) -> None:
    if missing:
        erasing.missing(missing)
        erasing.notice(f"{missing} of the {count} messages that the list names are not in this buffer")


def _erasable(path: str) -> BufferDirectory:
    directory = BufferDirectory(path)
    directory.require()
    if not read_settings(path).erasable:
        raise store.not_erasable(directory)
    return directory


def _ids_of(reader: Reader, numbers: range) -> Iterator[tuple[int, bytes]]:
    for chunk in reader.chunks(numbers.start, numbers.stop):
        for i, seq in enumerate(chunk.seqs()):
            record = chunk.parse(i)
            if record is None:
                raise Damaged(f"{reader.directory.shown}: message {seq} is damaged, and cannot be erased")
            yield seq, record.id


def _select(reader: Reader, wanted: Sequence[range] | str, start: int) -> Iterator[Message]:
    """The messages that are wanted and not erased yet, each once, ascending."""
    if isinstance(wanted, str):
        yield from messages(reader, max(start, reader.first_seq), reader.end_seq, Filter(key=os.fsencode(wanted)))
        _refuse_damage(reader)
        return
    single = {each.start for each in wanted if len(each) == 1}
    for each in _merged(wanted):
        for seq in (each.start, each.stop - 1):
            if not reader.first_seq <= seq < reader.end_seq:
                raise store.not_there(reader.directory, seq)
        yield from _messages_of(reader, each, single)


def _messages_of(reader: Reader, numbers: range, single: set[int]) -> Iterator[Message]:
    directory = reader.directory
    following = numbers.start
    for chunk in reader.chunks(numbers.start, numbers.stop):
        if chunk.first != following:
            break
        following += len(chunk.entries)
        for i, seq in enumerate(chunk.seqs()):
            record = chunk.parse(i)
            if record is None:
                raise Damaged(f"{directory.shown}: message {seq} is damaged, and cannot be erased")
            if record.method == b"POST" and record.salted != b"gone":
                yield message_of(chunk.data, record, directory.tenant, directory.name)
            elif record.method != b"POST" and seq in single:
                raise store.no_message(directory, seq)
    if following != numbers.stop:
        _refuse_damage(reader)
        raise store.not_there(directory, following)


def _refuse_damage(reader: Reader) -> None:
    for (first, at), reason in sorted(reader.damage.items()):
        raise Damaged(f"{reader.directory.segment_shown(first)}: byte {at}: {reason}")


def _merged(wanted: Sequence[range]) -> list[range]:
    """Ascending, none touching another."""
    merged: list[range] = []
    for each in sorted(wanted, key=lambda numbers: numbers.start):
        if merged and each.start <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, each.stop))
        else:
            merged.append(each)
    return merged
