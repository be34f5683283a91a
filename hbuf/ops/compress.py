"""Compressing the sealed segments of a buffer. Its messages, and what they are found by, stay as they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from hbuf.errors import Damaged
from hbuf.store import fsops
from hbuf.store.compress import DEFAULT_LEVEL, compress_segment, remove_abandoned
from hbuf.store.directory import BufferDirectory
from hbuf.store.gate import Gate


@dataclass(frozen=True, slots=True)
class Compressed:
    """A segment that was compressed."""

    file: str
    plain_bytes: int
    bytes: int


def compress(
    path: str,
    *,
    level: int = DEFAULT_LEVEL,
    timeout_seconds: float,
    notice: Callable[[str], None] = lambda line: None,
    done: Callable[[Compressed], None] = lambda compressed: None,
) -> bool:
    """Returns whether all of it is compressed now, but for the newest segment: a damaged one is left as it is.

    `done` is told of each segment that was compressed.
    """
    directory = BufferDirectory(path)
    directory.require()
    gate = Gate(directory, notice)
    whole = True
    try:
        with fsops.os_errors(directory.shown):
            gate.enter(timeout_seconds, even_closed=True)
            remove_abandoned(directory)
            gate.leave()
        for first in directory.segment_firsts()[:-1]:
            try:
                with fsops.os_errors(directory.shown):
                    compressed = _compress(directory, first, gate, level, timeout_seconds)
            except Damaged as error:
                notice(error.message)
                whole = False
                continue
            if compressed is not None:
                done(compressed)
    finally:
        gate.close()
    return whole


def _compress(
    directory: BufferDirectory, first: int, gate: Gate, level: int, timeout_seconds: float
) -> Compressed | None:
    """None where it is compressed already, or was retired meanwhile."""
    try:
        plain_bytes = os.stat(directory.segment(first)).st_size
        if not compress_segment(directory, first, gate, level=level, timeout_seconds=timeout_seconds):
            return None
        file = directory.compressed(first)
        return Compressed(file.name, plain_bytes, os.stat(file).st_size)
    except FileNotFoundError:
        return None
