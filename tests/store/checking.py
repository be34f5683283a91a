"""The check after every fault, and what it needs: who was told what.

An *answer* is what a sender was told: this message is stored, that step is done. After a fault every message that
was answered for is there, in order, with its own body and id; one that was not is whole or absent; and the buffer
takes another message and verifies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

import hbuf
from hbuf.errors import Damaged, HbufError
from hbuf.format.message import Message
from hbuf.ops.verify import verify
from hbuf.store.directory import BufferDirectory
from hbuf.store.outgoing import Outgoing
from hbuf.store.signing import Signer
from hbuf.store.writer import Writer

FURTHER = b"one more, after the fault"


class Stored(NamedTuple):
    """A message that its sender was told is stored."""

    seq: int
    id: str
    body: bytes


@dataclass(slots=True)
class Answers:
    """What a sender was told, so far."""

    stored: list[Stored] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    torn: bytes = b""  # what lay behind the last whole record before

    def note_stored(self, stored: Iterable[Stored]) -> None:
        self.stored.extend(stored)

    def note_done(self, step: str) -> None:
        self.done.add(step)

    def copy(self) -> Answers:
        return Answers(list(self.stored), set(self.done), self.torn)


def open_writer(path: Path, *, sync: bool = True, key: Path | None = None) -> Writer:
    """`key` is the key file of a signed buffer."""
    return Writer(BufferDirectory(path), sync=sync, timeout_seconds=20, signer=Signer(key) if key else None)


def append(writer: Writer, bodies: Sequence[bytes], *, unit: bool = False) -> list[Stored]:
    """Appends the bodies, and returns what the sender is told."""
    done = writer.append(Outgoing(bodies, unit=unit))
    return [
        Stored(seq, record_id.decode(), body) for seq, record_id, body in zip(done.seqs, done.ids, bodies, strict=True)
    ]


def append_to(path: Path, *bodies: bytes, key: Path | None = None) -> list[Stored]:
    with open_writer(path, key=key) as writer:
        return append(writer, bodies)


def read_all(path: Path, identity: Path | None = None) -> list[Message]:
    """All messages that a reader shows, without changing anything. `identity` decrypts."""
    messages: list[Message] = []
    with contextlib.suppress(Damaged):  # raised behind the last message that can be read
        for message in _opened(path, identity).read("first"):
            messages.append(message)
    return messages


def _opened(path: Path, identity: Path | None) -> hbuf.Buffer:
    return hbuf.open(path, identities=[identity] if identity else [])


def stored_of(messages: Iterable[Message]) -> list[Stored]:
    return [Stored(message.seq, message.id, message.body) for message in messages]


def check_survived(
    path: Path,
    answered: Iterable[Stored],
    attempted: Collection[bytes] = (),
    *,
    shown: Iterable[Stored] = (),
    may_fail: bool = False,
    key: Path | None = None,
    identity: Path | None = None,
) -> None:
    """Checks a buffer after a fault. `attempted` are the bodies that may be there as well, `shown` what a reader saw.

    With `may_fail` (damage that must be named) it does not ask whether the buffer verifies, nor that no number is
    missing.
    """
    must = sorted({*answered, *shown})
    before = stored_of(read_all(path, identity))
    _check_messages(before, must, attempted, may_fail)
    [further] = append_to(path, FURTHER, key=key)
    # The library raises for damage.
    after = stored_of(read_all(path, identity) if may_fail else _opened(path, identity).read("first"))
    _check_messages(after, [*must, further], attempted, may_fail)
    assert after[: len(before)] == before, "a message that a reader had shown is gone or has changed"
    assert after[-1] == further
    if may_fail:
        return
    check_verifies(path, len(after))


def check_verifies(path: Path, messages: int, *, signer: bytes | None = None) -> None:
    report = verify(str(path), jobs=1, signer=signer)
    assert report.ok, f"{[str(fault) for fault in report.faults]}, not checked: {report.not_checked}"
    assert report.messages == messages


def _check_messages(
    found: list[Stored], must: Iterable[Stored], attempted: Collection[bytes], may_have_gaps: bool
) -> None:
    numbers = [stored.seq for stored in found]
    if not may_have_gaps:
        assert numbers == list(range(1, len(found) + 1)), "the numbers are not 1, 2, 3, …"
    assert numbers == sorted(set(numbers)), "the numbers do not ascend"
    there = set(found)
    missing = [stored for stored in must if stored not in there]
    assert not missing, f"answered for, and not there: {missing}; there are {found}"
    bodies = [stored.body for stored in found]
    assert len(set(bodies)) == len(bodies), "a message is there twice"
    known = {stored.body for stored in must} | set(attempted)
    strangers = [stored for stored in found if stored.body not in known]
    assert not strangers, f"nobody sent these: {strangers}"


def refused(work: Callable[[], object], error: type[HbufError], below: Path) -> str:
    """Does what must be refused, and must change nothing."""
    before = content_of(below)
    with pytest.raises(error) as caught:
        work()
    assert content_of(below) == before
    assert "\n" not in caught.value.message
    return caught.value.message


def content_of(below: Path) -> dict[str, bytes]:
    return {str(each.relative_to(below)): each.read_bytes() for each in sorted(below.rglob("*")) if each.is_file()}


def segment_of(path: Path, first: int) -> Path:
    return path / "segments" / f"{first:020d}.http"
