"""The newest head of a signed buffer, as a note to keep elsewhere. No secret is needed: it is signed already."""

from __future__ import annotations

import base64

from hbuf.errors import Damaged, NotFound, NotSigned
from hbuf.format.note import encode_note
from hbuf.remote.buffer import RemoteBuffer
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
from hbuf.store.reader import Reader
from hbuf.store.segment_file import opened_segment
from hbuf.store.tail import Opening, read_opening


def head(path: str | RemoteBuffer) -> str:
    """The C2SP signed note of the last message."""
    if isinstance(path, RemoteBuffer):
        from hbuf.remote import verbs

        return verbs.head(path)
    directory = BufferDirectory(path)
    with Reader(directory) as reader, os_errors(path):
        seq = reader.end_seq - 1
        if seq < reader.first_seq:
            raise NotFound(f"{path}: has no message yet, and so no head")
        opening = _opening_of(directory, reader.segment_of(seq))
        if opening.keys.sign is None:
            hint = "hbuf-tail -n 1 --json shows number and id of the last message"
            raise NotSigned(f"{path}: is not signed", hint=hint)
        record = next((chunk.parse(0) for chunk in reader.chunks(seq, seq + 1)), None)
    if record is None or record.sig is None:
        raise Damaged(f"{path}: message {seq} is damaged, or is not signed", hint="hbuf-verify tells more")
    signature = base64.urlsafe_b64decode(record.sig + b"==")
    return encode_note(opening.settings.uuid, seq, record.id, opening.keys.sign, signature)


def _opening_of(directory: BufferDirectory, first: int) -> Opening:
    with opened_segment(directory, first) as segment:
        return read_opening(segment, directory.segment_shown(first))
