"""A pipeline as its file tells it: values that never change, and what each stage depends on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from hbuf.spark.inputs import without_braces


@dataclass(frozen=True)
class StageInput:
    """A buffer, a directory of buffers, a glob of them, or a stage, whose output it then is."""

    shown: str  # as the file has it
    path: str  # absolute; of a stage, its output
    stage: str | None = None

    @cached_property
    def buffers(self) -> str:
        """The path without `segments/*.http` behind it."""
        above, _, last = self.path.rpartition("/segments")
        return above if above and (not last or last.startswith("/")) else self.path

    def takes(self, buffer: str) -> bool:
        """Whether the buffer at `buffer` is read, going by its path alone: named, matched, or below what is.

        As everywhere on Spark, what is hbuf's own is read only where it is named.
        """
        there = buffer.split("/")
        hidden = there[-1].startswith("_")
        ends = range(len(there) if hidden else 1, len(there) + 1)
        globs = [one.split("/") for one in without_braces(self.buffers)]
        return any(_matches(there[:end], wanted) for wanted in globs for end in ends)


def _matches(parts: list[str], wanted: list[str]) -> bool:
    if not wanted:
        return not parts
    if wanted[0] == "**":
        return any(_matches(parts[i:], wanted[1:]) for i in range(len(parts) + 1))
    if not parts or not (parts[0] == wanted[0] or fnmatchcase(parts[0], wanted[0])):
        return False
    return _matches(parts[1:], wanted[1:])


@dataclass(frozen=True)
class Stage:
    name: str
    inputs: tuple[StageInput, ...]
    output: Path
    output_shown: str
    function: str | None = None  # module:function
    sql: str | None = None
    after: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    output_mode: str = "append"
    input_options: Mapping[str, str] = field(default_factory=dict)
    output_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def work(self) -> str:
        return self.function or "SQL"


@dataclass(frozen=True)
class Pipeline:
    file: Path
    shown: str  # the file as it was asked for
    name: str
    state: Path
    log: Path
    retries: int
    parallel: int
    stages: Mapping[str, Stage]
    buffers: Mapping[str, str]  # further buffers that stages depend on, by name
    buffers_shown: Mapping[str, str]
    spark: Mapping[str, str]  # settings of the session

    @property
    def folder(self) -> Path:
        return self.file.parent

    def dependency_path(self, name: str) -> str:
        """Where a stage or a named buffer is read."""
        return str(self.stages[name].output) if name in self.stages else self.buffers[name]

    def shown_path(self, path: Path) -> str:
        """Beside the file, its name alone."""
        return os.path.relpath(path, self.folder) if path.is_relative_to(self.folder) else str(path)
