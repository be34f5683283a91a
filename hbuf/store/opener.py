"""Reading encrypted bodies: chunks come in as they are stored, and go out with the bodies that could be opened.

Each way in which one cannot be opened has its own error: no identity, other recipients, a data key that is damaged
or missing, a record that was changed, and one that was sealed for another buffer or place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from hbuf.errors import Damaged, HbufError, NotAllowed
from hbuf.format.chain import COMMITTED, IDENTIFIED
from hbuf.format.index import FLAG_ENCRYPTED, Entry
from hbuf.format.scan import Record
from hbuf.format.sealing import (
    HASH_CHARACTERS,
    DataKeyLine,
    Open,
    Recipient,
    data_key_hash,
    is_encrypted,
    opener,
    parse_data_key_line,
    parse_recipients,
    without_data_key_line,
)
from hbuf.store.data_keys import Identity
from hbuf.store.put_places import Segments, all_puts, id_before, opening_of, put_at
from hbuf.store.tail import Opening
from hbuf.store.view import Chunk

_LINE = b"\r\nx-hbuf-data-key: "


class Source(Segments, Protocol):
    """What messages were read from."""

    def segment_of(self, seq: int) -> int: ...

    def note_damage(self, chunk: Chunk, i: int) -> None: ...


class Opener:
    """Not for two threads at once. `notice` is told why a message cannot be opened; it is left out then."""

    def __init__(
        self, reader: Source, identities: Sequence[Identity], notice: Callable[[HbufError], None] = lambda error: None
    ) -> None:
        self._reader = reader
        self._identities = {identity.fingerprint: identity for identity in identities}
        self._notice = notice
        self._opens: dict[bytes, Open] = {}  # by the hash of a data key
        self._openings: dict[int, Opening] = {}
        self._recipients: dict[int, list[Recipient]] = {}  # of whole segments, where a hint was wrong

    def concerns(self, chunk: Chunk) -> bool:
        """Whether any message of a chunk may be encrypted. The index is not asked: it is no evidence."""
        return _LINE in chunk.data

    def body(self, seq: int, salt: bytes, head: bytes, fields: bytes, stored: bytes) -> bytes | None:
        """The body of a message by itself. None where it does not open, for whatever reason: `open` tells it."""
        at = head.find(_LINE) + len(_LINE)
        open_body = self._opens.get(head[at : at + HASH_CHARACTERS])
        if open_body is None:
            line = parse_data_key_line(head)
            if line is None:
                return None
            try:
                open_body = self._open_with(line, seq)
            except HbufError:
                return None
        try:
            return open_body(salt, head, fields, stored)
        except ValueError:
            return None  # the salt is none

    def open(self, chunk: Chunk, places: Iterable[int]) -> tuple[Chunk, list[int]]:
        """The chunk with plain bodies at `places`, and those of them that can be read."""
        readable: list[int] = []
        opened: dict[int, tuple[Record, bytes]] = {}
        for i in places:
            record = chunk.parse(i)
            if record is None:
                self._reader.note_damage(chunk, i)
                continue
            if record.salted != b"gone" and is_encrypted(record.own):
                try:
                    opened[i] = (record, self._open_body(chunk, record))
                except HbufError as error:
                    error.seq = record.seq
                    self._notice(error)
                    continue
            readable.append(i)
        return _with_bodies(chunk, opened), readable

    def _open_body(self, chunk: Chunk, record: Record) -> bytes:
        data, seq = chunk.data, record.seq
        line = parse_data_key_line(record.own)
        if line is None:
            raise Damaged(f"{self._where(seq)} does not say which data key it has")
        open_body = self._opens.get(line.hash) or self._open_with(line, seq)
        head, fields = data[record.start : record.head_end], data[record.head_end : record.fields_end]
        stored = data[record.body_start : record.body_end]
        body = open_body(record.salt, head, fields, stored)
        if body is not None:
            return body
        if self._is_in_chain(record, head, fields, stored):
            raise Damaged(
                f"{self._where(seq)} was encrypted for another buffer or another place", hint="it was moved here"
            )
        raise Damaged(f"{self._where(seq)} was changed, and cannot be decrypted", hint="hbuf-verify tells more")

    def _open_with(self, line: DataKeyLine, seq: int) -> Open:
        """What opens the messages that name a data key. Message `seq` is the first of them."""
        where, first = self._where(seq), self._reader.segment_of(seq)
        if not self._identities:
            hint = "--identity KEY reads it; --json shows what can be read without"
            raise NotAllowed(f"{where} is encrypted", hint=hint)
        opening = self._opening(first)
        put = put_at(self._reader, first, line.put_at)
        recipients = parse_recipients(put.own) if put is not None else []
        key = self._unsealed(recipients, line.hash, opening)
        if key is None and not (recipients and not self._mine(recipients)):
            recipients = self._all_recipients(first)
            key = self._unsealed(recipients, line.hash, opening)
        if key is not None:
            return self._opens.setdefault(line.hash, opener(key, opening.settings.uuid))
        if recipients and not self._mine(recipients):
            raise NotAllowed(f"{where} is encrypted to others, and not to the key that was given")
        if any(self._unseal(recipient) is None for recipient in self._mine(recipients)):
            raise Damaged(f"{where} has a data key that is damaged")
        raise Damaged(f"{where} has a data key that is not in this buffer")

    def _all_recipients(self, first: int) -> list[Recipient]:
        """Those of all PUTs of a segment: the offset in a message's head is a hint. Read once."""
        if first not in self._recipients:
            puts = all_puts(self._reader, first)
            self._recipients[first] = [recipient for put in puts for recipient in parse_recipients(put.own)]
        return self._recipients[first]

    def _mine(self, recipients: list[Recipient]) -> list[Recipient]:
        return [each for each in recipients if each.fingerprint in self._identities]

    def _unseal(self, recipient: Recipient) -> bytes | None:
        return self._identities[recipient.fingerprint].unseal(recipient.sealed)

    def _unsealed(self, recipients: list[Recipient], key_hash: bytes, opening: Opening) -> bytes | None:
        """The data key with this hash, where one of the recipients' boxes holds it."""
        for recipient in self._mine(recipients):
            key = self._unseal(recipient)
            # The cipher does not commit to its key: without this, one stored body could have two meanings.
            if key is not None and data_key_hash(opening.hasher, key) == key_hash:
                return key
        return None

    def _is_in_chain(self, record: Record, head: bytes, fields: bytes, stored: bytes) -> bool:
        """Whether the id of a record is right here: then it was written as it is, and not changed since."""
        first = self._reader.segment_of(record.seq)
        hasher = self._opening(first).hasher
        commit = hasher(COMMITTED % (record.salt, fields, stored)).hexdigest().encode()
        prev = id_before(self._reader, first, record.seq)
        return hasher(IDENTIFIED % (prev, commit, head)).hexdigest().encode() == record.id

    def _opening(self, first: int) -> Opening:
        if first not in self._openings:
            self._openings[first] = opening_of(self._reader, first)
        return self._openings[first]

    def _where(self, seq: int) -> str:
        return f"{self._reader.shown}: message {seq}"


def _with_bodies(chunk: Chunk, opened: dict[int, tuple[Record, bytes]]) -> Chunk:
    """The chunk as if the opened messages had been stored without encryption. Bytes between records are left out."""
    parts: list[bytes] = []
    entries: list[Entry] = []
    at = 0
    for i, entry in enumerate(chunk.entries):
        if i in opened:
            data, new = _plain(chunk.data, *opened[i], entry)
        else:
            data, new = chunk.data[entry.offset - chunk.base : entry.end - chunk.base], entry
        parts.append(data)
        entries.append(Entry(new[0], at, *new[2:]))
        at += len(data)
    return Chunk(chunk.first, 0, b"".join(parts), entries, suspect=True)


def _plain(data: bytes, record: Record, body: bytes, entry: Entry) -> tuple[bytes, Entry]:
    """A record with a plain body, its length, and no line that says otherwise; and its entry.

    The lengths are the record's own: those of the entry may be wrong.
    """
    head = data[record.start : record.head_end]
    length_at = head.rindex(b"content-length: ")
    plain_head = without_data_key_line(head[:length_at]) + b"content-length: %d\r\n" % len(body)
    start = record.start + len(head) - len(plain_head)
    (key_start, key_end), (tags_start, tags_end) = record.key, record.tags
    new = Entry(
        entry.time_us,
        entry.offset,
        len(body),
        record.section_end - start,
        record.head_end - start,
        key_start - start if key_start >= 0 else 0,
        key_end - key_start,
        tags_end - tags_start,
        entry.flags & ~FLAG_ENCRYPTED,
        entry.id_start,
    )
    return plain_head + data[record.head_end : record.section_end] + body + b"\r\n", new
