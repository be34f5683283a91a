"""From what is to be stored to the bytes of records, as the buffer's settings and keys have it. It writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hbuf.format import names
from hbuf.format.index import FLAG_ENCRYPTED
from hbuf.format.record import (
    Batch,
    behind_put,
    encode_data_key_put,
    encode_deletes,
    encode_messages,
    encode_put,
    most_lines_bytes,
)
from hbuf.format.sealing import MAX_DATA_KEY_LINE_BYTES, TAG_BYTES
from hbuf.format.settings import Settings, encode_settings
from hbuf.store.data_keys import DataKey, DrawnKey, recipients_bytes
from hbuf.store.directory import BufferDirectory
from hbuf.store.index_file import pread_all
from hbuf.store.outgoing import Columns
from hbuf.store.signed_writing import Signing
from hbuf.store.tail import Opening, Tail


class Encoder:
    def __init__(self, directory: BufferDirectory, signing: Signing, salts: Callable[[int], bytes]) -> None:
        self._directory = directory
        self._signing = signing
        self._salts = salts
        self._data_key: DataKey | None = None

    def messages(self, tail: Tail, columns: Columns, time_us: int) -> Batch:
        opening = tail.opening
        prev, offset, own_lines, flags = tail.prev, tail.length, columns.own_lines, columns.flags
        put, key = b"", None
        if opening.settings.recipients:
            flags = (flag | FLAG_ENCRYPTED for flag in flags)
            if self._data_key is None or not _is_brought(tail, self._data_key):
                put, prev = self._bring_data_key(tail, time_us)
                offset += len(put)
            key = self._data_key
        if key is not None:
            line = key.line
            own_lines = (lines + line for lines in own_lines)
        batch = encode_messages(
            opening.hasher,
            self._name(opening.settings),
            prev,
            tail.next_seq,
            time_us,
            self._salts(len(columns.bodies)) if opening.settings.erasable else None,
            columns.bodies,
            columns.fields,
            own_lines,
            offset=offset,
            flags=flags,
            seal=key.seal if key is not None else None,
            sign=self._signing.head_signer(opening.settings.uuid),
        )
        return behind_put(put, batch) if put else batch

    def _bring_data_key(self, tail: Tail, time_us: int) -> tuple[bytes, bytes]:
        """Draws a data key for the segment. Returns the PUT that brings it, and its id."""
        opening = tail.opening
        drawn = DrawnKey(opening.settings, opening.hasher)
        name, salt = self._name(opening.settings), self._salts(1)[:43]
        put, put_id = encode_data_key_put(opening.hasher, name, tail.prev, time_us, salt, drawn.recipient_lines)
        self._data_key = drawn.brought_by(put, tail.length)
        return put, put_id

    def deletes(self, tail: Tail, own_lines: Sequence[bytes], time_us: int) -> Batch:
        """Records that say what was erased or retired."""
        opening = tail.opening
        return encode_deletes(
            opening.hasher,
            self._name(opening.settings),
            tail.prev,
            tail.next_seq,
            time_us,
            self._salts(len(own_lines)) if opening.settings.erasable else None,
            own_lines,
            offset=tail.length,
            sign=self._signing.head_signer(opening.settings.uuid),
        )

    def put(
        self, opening: Opening, settings: Settings, prev: bytes, first: int, time_us: int, *, rotate: bool
    ) -> tuple[bytes, bytes]:
        """The record that opens a segment, and its id. With `rotate` it announces a new key."""
        sign_key, sign = self._signing.put_keys(opening, rotate=rotate)
        return encode_put(
            opening.hasher,
            self._name(settings),
            prev,
            first,
            time_us,
            self._salts(1)[:43] if settings.erasable else None,
            encode_settings(settings),
            hash_name=settings.hash,
            uuid=settings.uuid,
            epoch=opening.epoch,
            sign_key=sign_key,
            recovery_key=opening.keys.recovery,
            sign=sign,
        )

    def data_key_bytes(self, opening: Opening, last_seq: int) -> int:
        """The bytes that a PUT which brings a data key takes at most; 0 where nothing is encrypted."""
        settings = opening.settings
        return self.lines_bytes(opening, last_seq) + recipients_bytes(settings) if settings.recipients else 0

    def lines_bytes(self, opening: Opening, last_seq: int) -> int:
        """The bytes that the lines which every record has take at most."""
        settings, signed = opening.settings, opening.keys.sign is not None
        plain = most_lines_bytes(self._name(settings), last_seq, salted=settings.erasable, signed=signed)
        return plain + MAX_DATA_KEY_LINE_BYTES + TAG_BYTES if settings.recipients else plain

    def _name(self, settings: Settings) -> str:
        """The directory's name wins, where it is a name."""
        return self._directory.name if names.is_buffer_name(self._directory.name) else settings.name


def _is_brought(tail: Tail, key: DataKey) -> bool:
    """Whether the segment has the key's PUT: it may have been cut, or a backup put in the segment's place."""
    return pread_all(tail.segment_fd, len(key.put), key.put_at) == key.put
