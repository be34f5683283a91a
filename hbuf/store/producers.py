"""What is known of producers: the last number of each, as of some record. Rebuildable: the log is the truth.

The file is JSON behind a line with its checksum: a bit that flips in a number would drop a message or store
one twice, so a file that does not match is not believed, and the log is read instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from hbuf.format.chain import ZERO_ID
from hbuf.format.scan import Record, own_values
from hbuf.store import fsops

_LINE = b"x-hbuf-producer: "


@dataclass(slots=True)
class Producers:
    """`last[name]` is (the producer's number, the number of the message that has it)."""

    as_of: int = 0
    as_of_id: bytes = ZERO_ID
    last: dict[bytes, tuple[int, int]] = field(default_factory=dict)

    def note(self, data: bytes, records: Iterable[Record]) -> None:
        """Reads on over records that follow `as_of`."""
        mentioned = _LINE in data
        for record in records:
            if not record.seq:
                continue
            self.as_of, self.as_of_id = record.seq, record.id
            if mentioned and record.own:
                values = own_values(record.own)
                name = values.get(b"x-hbuf-producer")
                if name is not None:
                    self.last[name] = (int(values[b"x-hbuf-producer-seq"]), record.seq)


def load_producers(path: Path) -> Producers:
    """What the file says, or nothing as of record 0 where it is missing or damaged."""
    try:
        checksum, _, content = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return Producers()
    if checksum != _checksum(content):
        return Producers()
    values = json.loads(content)
    last = {name.encode(): (number, seq) for name, (number, seq) in values["producers"].items()}
    return Producers(values["as_of"], values["id"].encode(), last)


def save_producers(path: Path, producers: Producers) -> None:
    values = {
        "as_of": producers.as_of,
        "id": producers.as_of_id.decode(),
        "producers": {name.decode(): place for name, place in sorted(producers.last.items())},
    }
    content = json.dumps(values, indent=0, ensure_ascii=False).encode() + b"\n"
    fsops.replace_durably(path, _checksum(content) + b"\n" + content)


def _checksum(content: bytes) -> bytes:
    return b"blake2b " + blake2b(content, digest_size=32).hexdigest().encode()
