"""What is to be read: buffers found by path, glob, or in a directory of them or of links to them.

A buffer that is named twice, as by two links, is read once.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hbuf.errors import HbufError, NotFound, UsageError
from hbuf.format import names
from hbuf.ops.ls import find_buffers
from hbuf.store.directory import BufferDirectory, LooseSegments

_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Input:
    """A buffer, or some segments of it, or segments that lie outside of one."""

    path: str
    loose: bool = False
    segments: frozenset[int] | None = None  # first numbers; None: all

    def directory(self) -> BufferDirectory:
        return LooseSegments(self.path) if self.loose else BufferDirectory(self.path)


def find_inputs(paths: Iterable[str]) -> list[Input]:
    """Raises NotFound for a path where there is nothing to read."""
    whole: dict[str, Input] = {}
    parts: dict[tuple[str, bool], set[int]] = {}
    for path in paths:
        found = list(_find(local_path(path)))
        if not found:
            raise NotFound(f"{path}: there is no buffer and no segment")
        for each in found:
            if each.segments is None:
                whole[each.path] = each
            else:
                parts.setdefault((each.path, each.loose), set()).update(each.segments)
    some = [Input(path, loose, frozenset(segments)) for (path, loose), segments in parts.items() if path not in whole]
    return sorted([*whole.values(), *some], key=lambda each: each.path)


def local_path(path: str) -> str:
    """A path without `file:`. Raises UsageError for any other scheme: workers open paths, and nothing else."""
    if path.startswith("file:"):
        rest = path.removeprefix("file:")
        return "/" + rest.lstrip("/")
    if "://" in path:
        raise UsageError(f"{path}: is a URL, and only what the workers can open as a path is taken")
    return path


def _find(path: str) -> Iterator[Input]:
    alternatives = list(without_braces(path))
    # What is there by this very name is meant, whatever letters it has.
    if os.path.lexists(path) or (len(alternatives) == 1 and not glob.has_magic(path)):
        yield from _at(path, named=True)
        return
    for alternative in alternatives:
        for match in sorted(glob.glob(alternative, recursive=True)):
            yield from _at(match, named=False)


def without_braces(path: str) -> Iterator[str]:
    """`{a,b}` stands for either, as in the globs of a shell and of Hadoop."""
    found = _BRACES.search(path)
    if not found:
        yield path
        return
    for choice in found[1].split(","):
        yield from without_braces(path[: found.start()] + choice + path[found.end() :])


def _at(path: str, *, named: bool) -> Iterator[Input]:
    """What is at one path. `named` is one that the user wrote as it is: there must be something."""
    if os.path.isdir(path):
        yield from _in_directory(path)
        return
    first = names.parse_segment_file(os.path.basename(path))
    if first is not None and os.path.exists(path):
        yield _segments_in(os.path.dirname(os.path.realpath(path)), frozenset([first]))
    elif named and not os.path.exists(path):
        raise NotFound(f"{path}: there is no such buffer")
    elif named:
        raise UsageError(f"{path}: is neither a buffer nor a segment")


def _in_directory(path: str) -> Iterator[Input]:
    real = os.path.realpath(path)
    if BufferDirectory(real).exists():
        yield Input(real)
    elif any(names.parse_segment_file(file) is not None for file in os.listdir(real)):
        yield _segments_in(real, None)
    else:
        for found in find_buffers(real, _raise):
            # As Spark does with files, what is internal is read only where it is named.
            if not found.name.startswith("_"):
                yield Input(os.path.realpath(found.path))


def _segments_in(folder: str, segments: frozenset[int] | None) -> Input:
    if os.path.basename(folder) == names.SEGMENTS:
        return Input(os.path.dirname(folder), segments=segments)
    return Input(folder, loose=True, segments=segments)


def _raise(error: HbufError) -> None:
    raise error
