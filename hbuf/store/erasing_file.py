"""The file `erasing`: the numbers of an erase that is under way, a number or a range a line, and nothing else.

It is there before the first DELETE of the erase is, and until the last byte is overwritten and on disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from hbuf.store import fsops

_LINE = re.compile(rb"([1-9][0-9]{0,18})(?:-([1-9][0-9]{0,18}))?")
_MOST_NUMBERS = 10_000_000  # more than any erase has at once: a file that names more is damaged


def write_erasing(path: Path, numbers: Iterable[int]) -> None:
    """`numbers` ascend. On disk when it returns."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    lines = [b"%d\n" % start if start == end else b"%d-%d\n" % (start, end) for start, end in ranges]
    fsops.replace_durably(path, b"".join(lines))


def read_erasing(path: Path) -> set[int] | None:
    """The numbers; None where the file is damaged: then it could be any."""
    numbers: set[int] = set()
    for line in path.read_bytes().splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            return None
        start = int(found[1])
        end = int(found[2] or start)
        if not start <= end < start + _MOST_NUMBERS:
            return None
        numbers.update(range(start, end + 1))
    return numbers


def remove_erasing(path: Path) -> None:
    fsops.unlink(path)
    fsops.sync_directory(path.parent)
