"""Messages as hbuf-tail and hbuf-grep write them: bodies, records as they are stored, or JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from hbuf.cli.streams import complain, counted
from hbuf.errors import HbufError, NotAllowed
from hbuf.format.jsonlines import encode_json
from hbuf.format.message import message_of
from hbuf.ops.reading import Readable
from hbuf.store.view import Chunk

Form = Literal["body", "http", "json"]


class Printer:
    def __init__(self, reader: Readable, form: Form, end: bytes) -> None:
        self._reader = reader
        self._form = form
        self._end = end  # behind each body
        self.first_erased: int | None = None  # of the messages that had no body to write

    def encode(self, chunk: Chunk, places: Iterable[int]) -> list[bytes]:
        """What is written of each message; of one that is damaged, nothing, and no body of one that is erased."""
        if self._form == "body":
            end = self._end
            if chunk.may_have_erased():
                return [b"" if self._is_erased(chunk, i) else chunk.body(i) + end for i in places]
            return [chunk.body(i) + end for i in places]
        if self._form == "http":
            base, entries = chunk.base, chunk.entries
            return [chunk.data[entries[i].offset - base : entries[i].end - base] for i in places]
        return [self._encode_json(chunk, i) for i in places]

    def _is_erased(self, chunk: Chunk, i: int) -> bool:
        if not chunk.is_erased(i):
            return False
        if self.first_erased is None:
            self.first_erased = chunk.first + i
        return True

    def _encode_json(self, chunk: Chunk, i: int) -> bytes:
        record = chunk.parse(i)
        if record is None:
            self._reader.note_damage(chunk, i)
            return b""
        return encode_json(message_of(chunk.data, record, self._reader.tenant, self._reader.name)) + b"\n"


class Closed:
    """What could not be opened of encrypted messages: said as it comes, and once for all of one kind."""

    def __init__(self, program: str) -> None:
        self.exit_code = 0
        self._program = program
        self._said = False  # that a message is encrypted
        self._more = 0

    def notice(self, error: HbufError) -> None:
        if isinstance(error, NotAllowed):
            if self._said:
                self._more += 1
                return
            self._said = True
        complain(self._program, error.message, error.hint)
        self.exit_code = self.exit_code or error.exit_code

    def finish(self) -> int:
        """The exit code: 0 where all could be opened."""
        if self._more:
            complain(self._program, f"{counted(self._more, 'more message is', 'more messages are')} encrypted")
        return self.exit_code


def say_retired(program: str, reader: Readable) -> None:
    """Says, once, that messages which were asked for are retired, and where it goes on."""
    if reader.retired_seq:
        last, reader.retired_seq = reader.retired_seq, 0
        complain(program, f"{reader.shown}: messages up to {last} are retired; the first is {last + 1}")


def complain_of_damage(program: str, reader: Readable) -> bool:
    """Says where the buffer is damaged. Returns whether it is."""
    lines = reader.damage_lines()
    for line in lines:
        complain(program, line)
    return bool(lines)
