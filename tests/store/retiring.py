"""What tests of retiring share: a buffer of many small segments with times of the test's own."""

from __future__ import annotations

from pathlib import Path

from hbuf.format.keys import new_key_file
from hbuf.ops.create import create
from hbuf.ops.retire import retire
from hbuf.store.directory import BufferDirectory
from hbuf.store.keyring import create_key
from hbuf.store.outgoing import Outgoing
from hbuf.store.retention import Plan
from hbuf.store.signing import Signer
from hbuf.store.writer import Writer

from .checking import read_all
from .set_clock import DAY_US, SetClock


class Retiring:
    """A buffer of segments with two messages each, one message a day."""

    def __init__(self, path: Path, *, key: Path | None = None, **settings: str) -> None:
        self.path = path
        self.key = key
        self.clock = SetClock()
        self.notices: list[str] = []
        if key is not None and not key.exists():
            create_key(key, new_key_file("sign", key.stem.encode().ljust(32, b"k")))
        create(str(path), {"segment_messages": "2"} | settings, signer=self.signer())

    def signer(self) -> Signer | None:
        return Signer(self.key) if self.key is not None else None

    def writer(self) -> Writer:
        return Writer(BufferDirectory(self.path), timeout_seconds=20, clock=self.clock, signer=self.signer())

    def append(self, count: int, *, producer: bytes | None = None, every_us: int = DAY_US) -> None:
        """Messages whose bodies are their producer's numbers, which are those of the messages."""
        for _ in range(count):
            self.clock.run(every_us)
            with self.writer() as writer, writer.locked() as tail:
                number = tail.next_seq
            with self.writer() as writer:
                producers = [(producer, number)] if producer is not None else None
                writer.append(Outgoing([b"%d" % number], producers=producers))

    def retire(self, *, idle: bool = False, dry_run: bool = False, reason: str = "") -> Plan:
        return retire(
            str(self.path),
            idle=idle,
            dry_run=dry_run,
            reason=reason,
            timeout_seconds=20,
            notice=self.notices.append,
            signer=self.signer(),
            clock=self.clock,
        )

    @property
    def firsts(self) -> list[int]:
        return BufferDirectory(self.path).segment_firsts()

    @property
    def seqs(self) -> list[int]:
        return [message.seq for message in read_all(self.path)]

    def segment(self, first: int) -> Path:
        return self.path / "segments" / f"{first:020d}.http"

    def files(self) -> dict[str, bytes]:
        return {str(file.relative_to(self.path)): file.read_bytes() for file in self.path.rglob("*") if file.is_file()}
