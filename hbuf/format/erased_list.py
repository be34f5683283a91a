"""A list of erased messages as text, to be kept apart from the buffer and applied to a backup that is restored.

    hbuf erased <uuid of the buffer>
    <number> <id> <commitment>
    …

It names nothing of what a message said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hbuf.errors import BadInput
from hbuf.format.deletes import ERASES, Erasure

_HEADER = re.compile(rb"hbuf erased ([0-9a-f-]{36})")


def encode_erased_list(uuid: str, erasures: Iterable[Erasure]) -> bytes:
    lines = [f"hbuf erased {uuid}\n".encode()]
    lines += [b"%d %b %b\n" % erasure for erasure in sorted(erasures)]
    return b"".join(lines)


def parse_erased_list(data: bytes) -> tuple[str, list[Erasure]]:
    """The buffer's uuid, and what was erased. Each line is whole, or the list is refused: it may have been cut."""
    first, *lines = data.split(b"\n")
    header = _HEADER.fullmatch(first)
    if header is None:
        raise BadInput("not a list of erased messages", hint="hbuf-erase --list writes one")
    if not lines or lines.pop():
        raise BadInput("the list of erased messages is cut short")
    erasures = []
    for number, line in enumerate(lines, 2):
        found = ERASES.fullmatch(line)
        if found is None:
            raise BadInput(f"line {number} is not SEQ ID COMMITMENT")
        erasures.append(Erasure(int(found[1]), found[2], found[3]))
    return header[1].decode(), erasures
