"""What a writer knows of producers at the end of its buffer, and when that is written down."""

from __future__ import annotations

from collections.abc import Iterable

from hbuf.store.directory import BufferDirectory
from hbuf.store.outgoing import Numbers, Outgoing, numbers_of
from hbuf.store.producers import Producers, save_producers
from hbuf.store.seal import producers_until
from hbuf.store.tail import Tail

# The producers file is written when it is this many records behind: what an open has to read stays bounded.
_SAVE_EVERY = 1024


class Ledger:
    """Reads the log for producers only when somebody asks for one."""

    def __init__(self, directory: BufferDirectory) -> None:
        self._directory = directory
        self._known: Producers | None = None
        self._saved = 0

    def last_numbers(self, tail: Tail) -> Numbers:
        """The last number of each producer, and the number of the message that has it."""
        if self._known is None or self._known.as_of != tail.next_seq - 1:
            self._known = producers_until(self._directory, tail.next_seq - 1)
        return self._known.last

    def note(self, parts: Iterable[Outgoing], first: int, last_id: bytes) -> None:
        """Messages `first`, `first + 1`, … were appended."""
        known = self._known
        if known is None or known.as_of != first - 1:
            return
        for part in parts:
            known.last.update(numbers_of(part, first))
            first += len(part.bodies)
        known.as_of, known.as_of_id = first - 1, last_id

    def known_until(self, seq: int) -> Producers:
        """What the log says up to message `seq`, or further where more is known already."""
        known = self._known
        return known if known is not None and known.as_of >= seq else producers_until(self._directory, seq)

    def save_sometimes(self) -> None:
        if self._known is not None and self._known.as_of - self._saved >= _SAVE_EVERY:
            self.save(self._known)

    def save(self, producers: Producers) -> None:
        firsts = self._directory.segment_firsts()
        if producers.as_of < firsts[0] - 1:
            return  # meanwhile messages behind it were retired, and what they said is saved
        if producers.as_of > self._saved:
            save_producers(self._directory.producers, producers)
            self._saved = producers.as_of
