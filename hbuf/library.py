"""hbuf as a library: the same words as the commands. Importing it costs nothing until a buffer is opened."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from hbuf.errors import Damaged, HbufError, UsageError
from hbuf.format.fields import encode_fields, encode_producer
from hbuf.format.keys import parse_public
from hbuf.format.message import Draft, Message
from hbuf.format.places import Place, parse_place
from hbuf.ops import create as create_op
from hbuf.ops import tail as tail_op
from hbuf.ops.filter import Filter, compile_pattern
from hbuf.ops.report import Report
from hbuf.ops.verify import expected_head
from hbuf.ops.verify import verify as verify_op
from hbuf.store.data_keys import Identity
from hbuf.store.directory import BufferDirectory
from hbuf.store.opener import Opener
from hbuf.store.outgoing import Appended, Outgoing
from hbuf.store.reader import Reader
from hbuf.store.signing import Signer
from hbuf.store.writer import Writer


@dataclass(frozen=True, slots=True)
class Receipt:
    """A message that is on disk. A duplicate was not stored again; `seq` is 0 where its number is not known."""

    seq: int
    id: str
    time_us: int
    duplicate: bool = False


def draft(
    body: bytes,
    *,
    key: str | None = None,
    tags: Iterable[str] = (),
    headers: Iterable[tuple[str, str]] = (),
    producer: str | None = None,
    producer_seq: int | None = None,
) -> Draft:
    """A message to append."""
    if (producer is None) != (producer_seq is None):
        raise UsageError("producer and producer_seq come together")
    if producer_seq is not None and not 0 <= producer_seq < 10**18:
        raise UsageError("producer_seq is a number from 0 on")
    sender = (encode_producer(producer), producer_seq) if producer is not None and producer_seq is not None else None
    return Draft(body, encode_fields(key, tags, headers), sender)


def create(
    path: str | os.PathLike[str],
    *,
    sign: str | os.PathLike[str] | None = None,
    recovery: str | None = None,
    encrypt_to: Iterable[str] = (),
    **settings: str,
) -> Buffer:
    """Makes a buffer; settings are given as text, as in `hbuf-create --set`.

    `sign` is the file of a key that signs it; `recovery` and `encrypt_to` are public keys as text.
    """
    recovery_key = parse_public(recovery).data if recovery is not None else None
    create_op.create(
        os.fspath(path), settings, signer=_signer(sign), recovery_key=recovery_key, recipients=list(encrypt_to)
    )
    return Buffer(path, sign=sign)


def open(  # noqa: A001
    path: str | os.PathLike[str],
    *,
    create: bool = False,
    timeout_seconds: float = 30,
    sign: str | os.PathLike[str] | None = None,
    identities: Iterable[str | os.PathLike[str]] = (),
) -> Buffer:
    """Opens a buffer. With `create` a missing one is made.

    `sign` is the file of the key that a signed buffer needs to be written, `identities` are those of keys that
    encrypted messages can be read with.
    """
    if create:
        create_op.create(os.fspath(path), may_exist=True, signer=_signer(sign))
    return Buffer(path, timeout_seconds=timeout_seconds, sign=sign, identities=identities)


class Buffer:
    """A buffer. Not for two threads at once; many processes may have the same one open."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timeout_seconds: float = 30,
        sign: str | os.PathLike[str] | None = None,
        identities: Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        self._directory = BufferDirectory(path)
        self._directory.require()
        self._timeout_seconds = timeout_seconds
        self._sign = sign
        self._identities = [Identity(Path(file)) for file in identities]
        self._writer: Writer | None = None

    def __enter__(self) -> Buffer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def append(
        self,
        body: bytes,
        *,
        key: str | None = None,
        tags: Iterable[str] = (),
        headers: Iterable[tuple[str, str]] = (),
        producer: str | None = None,
        producer_seq: int | None = None,
    ) -> Receipt:
        """Stores one message. It is on disk when this returns."""
        one = draft(body, key=key, tags=tags, headers=headers, producer=producer, producer_seq=producer_seq)
        return self.append_many([one])[0]

    def append_many(self, messages: Iterable[bytes | Draft], *, atomic: bool = False) -> list[Receipt]:
        """Stores messages, one write and one sync a segment; with `atomic` all of them or none, whatever happens."""
        drafts = [message if isinstance(message, Draft) else Draft(message) for message in messages]
        producers = [each.producer for each in drafts]
        outgoing = Outgoing(
            [each.body for each in drafts],
            [each.fields for each in drafts],
            producers if any(producers) else None,
            unit=atomic,
        )
        return _receipts(self._open_writer().append(outgoing))

    def read(
        self,
        place: str | Place = "first",
        *,
        count: int | None = None,
        until: str | Place | None = None,
        key: str | None = None,
        tag: str | None = None,
        pattern: str | None = None,
    ) -> Iterator[Message]:
        """Messages from `place` up to but not `until` (or the end as it is now), at most `count`.

        What is damaged is passed over; when all the others were given, Damaged is raised, which names the first place.
        So is what the given identities cannot decrypt; with none, encrypted messages come as they are stored.
        """
        refused: list[HbufError] = []
        with Reader(self._directory) as reader:
            opener = self._opener(reader, refused.append)
            end = reader.end_seq if until is None else min(reader.resolve(_place(until)), reader.end_seq)
            found = tail_op.messages(reader, reader.resolve(_place(place)), end, _filter(key, tag, pattern), opener)
            for number, message in enumerate(found):
                if count is not None and number >= count:
                    return
                yield message
            _raise_damage(reader)
        if refused:
            raise refused[0]

    def follow(
        self, place: str | Place = "end", *, key: str | None = None, tag: str | None = None, pattern: str | None = None
    ) -> Iterator[Message]:
        """Messages from `place` on, for ever, as they come. What the given identities cannot decrypt is an error."""
        with Reader(self._directory) as reader:
            opener = self._opener(reader, _raise)
            yield from tail_op.follow(reader, _place(place), _filter(key, tag, pattern), opener)

    def erase(self, numbers: Iterable[int] = (), *, key: str | None = None, reason: str) -> int:
        """Erases messages by number, or all of one key, for good. Returns how many: not those that were erased before.

        `reason` stays in the log. What is not there raises NotFound, and then nothing is erased.
        """
        from hbuf.ops.erase import Erasing, erase

        wanted = [range(number, number + 1) for number in numbers]
        if bool(wanted) == (key is not None):
            raise UsageError("either numbers or a key say what is to be erased")
        erasing = Erasing(reason, self._timeout_seconds, _signer(self._sign))
        return erase(str(self._directory.path), wanted if key is None else key, erasing)

    def verify(self, *, head: str | None = None, signer: str | None = None) -> Report:
        """Checks every byte. `head` is a `SEQ:ID` or the file of a note, `signer` a public key as text."""
        return verify_op(
            str(self._directory.path),
            head=expected_head(head) if head is not None else None,
            signer=parse_public(signer).data if signer is not None else None,
        )

    def _open_writer(self) -> Writer:
        if self._writer is None:
            signer = _signer(self._sign)
            self._writer = Writer(self._directory, timeout_seconds=self._timeout_seconds, signer=signer)
        return self._writer

    def _opener(self, reader: Reader, notice: Callable[[HbufError], None]) -> Opener | None:
        return Opener(reader, self._identities, notice) if self._identities else None


def _raise(error: HbufError) -> None:
    raise error


def _signer(path: str | os.PathLike[str] | None) -> Signer | None:
    return Signer(Path(path)) if path is not None else None


def _raise_damage(reader: Reader) -> None:
    for (first, at), reason in sorted(reader.damage.items()):
        raise Damaged(f"{reader.directory.segment_shown(first)}: byte {at}: {reason}")


def _place(place: str | Place) -> Place:
    return place if isinstance(place, Place) else parse_place(place, time.time_ns() // 1000)


def _filter(key: str | None, tag: str | None, pattern: str | None) -> Filter:
    return Filter(
        key.encode() if key is not None else None,
        tag.encode() if tag is not None else None,
        compile_pattern(pattern) if pattern is not None else None,
    )


def _receipts(appended: Appended) -> list[Receipt]:
    return [
        Receipt(seq, record_id.decode(), time_us, place in appended.duplicates)
        for place, (seq, record_id, time_us) in enumerate(
            zip(appended.seqs, appended.ids, appended.times_us, strict=True)
        )
    ]
