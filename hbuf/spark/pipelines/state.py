"""The state directory of a pipeline: which checkpoint each stage uses, how its last run went, and who runs it now.

    lock                       flock(2): one run at a time; holds the ids of its processes
    stages/NAME/current.json   the checkpoint that counts, and where its reading began
    stages/NAME/last.json      the last run of the stage: when, how it ended, how many rows
    stages/NAME/rerun.json     a rerun that was asked for and has not begun
    stages/NAME/checkpoint-N   Spark's own
    _pipelines                 the log, unless the file names another place

It must not know Spark: `status` reads the same files while a run is under way.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hbuf.errors import Damaged
from hbuf.spark.pipelines.model import Pipeline
from hbuf.store import fsops
from hbuf.store.create import make_directories


@dataclass(frozen=True, slots=True)
class Current:
    """What the next query of a stage goes on with. Decided by replacing one file."""

    checkpoint: int = 1
    start: dict[str, int] | None = None  # where reading began, by buffer; None: with the first message of each
    rerun: str = ""  # the rerun that this was decided for


@dataclass(frozen=True, slots=True)
class LastRun:
    state: str  # running, done, failed
    time: str
    rows: int = 0
    seconds: float = 0
    reason: str = ""
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class RerunRequest:
    id: str
    place: str  # as it was asked for
    start: dict[str, int]  # what that meant then, by buffer


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a checkpoint is: the next number of each buffer, and whether a batch was begun and not finished."""

    places: dict[str, int] = field(default_factory=dict)
    batch: int = -1
    unfinished: bool = False


class StageState:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._current = folder / "current.json"
        self._last = folder / "last.json"
        self._rerun = folder / "rerun.json"

    def current(self) -> Current:
        values = _read(self._current)
        return Current(**values) if values is not None else Current()

    def last_run(self) -> LastRun | None:
        values = _read(self._last)
        return LastRun(**values) if values is not None else None

    def rerun_request(self) -> RerunRequest | None:
        """A request that was not taken up yet: one that was is known by its id."""
        values = _read(self._rerun)
        request = RerunRequest(**values) if values is not None else None
        return request if request is not None and request.id != self.current().rerun else None

    def record_run(self, last: LastRun) -> None:
        self._write(self._last, last)

    def ask_for_rerun(self, request: RerunRequest) -> None:
        self._write(self._rerun, request)

    def settle_start(self, start: dict[str, int]) -> None:
        """Where the first query begins. Once it is written down no later one decides anew."""
        self._write(self._current, Current(start=start))

    def is_new(self) -> bool:
        return not self._current.exists() and not self.checkpoint().exists()

    def begin_rerun(self, request: RerunRequest) -> None:
        """From here on the stage goes on from the place that was asked for, with a checkpoint that is new.

        Whatever dies, either the old checkpoint counts and the request is still there, or the new one counts.
        """
        before = self.current()
        self._write(self._current, Current(before.checkpoint + 1, request.start, request.id))
        with contextlib.suppress(FileNotFoundError):
            fsops.unlink(self._rerun)
        self.drop_old_checkpoints()

    def drop_old_checkpoints(self) -> None:
        kept = self.checkpoint().name
        for path in self.folder.glob("checkpoint-*"):
            if path.name != kept:
                shutil.rmtree(path, ignore_errors=True)

    def checkpoint(self) -> Path:
        return self.folder / f"checkpoint-{self.current().checkpoint}"

    def query(self) -> str | None:
        """By what id Spark knows the query of this checkpoint; None before its first."""
        try:
            query: str = json.loads((self.checkpoint() / "metadata").read_bytes())["id"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise Damaged(f"{self.checkpoint()}/metadata: is damaged") from None
        return query

    def progress(self) -> Progress:
        """What Spark has written down: the newest batch whose places it knows, and whether that one is finished."""
        checkpoint = self.checkpoint()
        while True:
            begun, finished = _batches(checkpoint / "offsets"), _batches(checkpoint / "commits")
            if not begun:
                return Progress()
            batch = begun[-1]
            done = batch in finished
            counting = batch if done else max((each for each in begun[:-1]), default=-1)
            try:
                places = _places(checkpoint / "offsets" / str(counting)) if counting >= 0 else {}
            except FileNotFoundError:
                continue  # Spark has removed it meanwhile: there are newer ones
            return Progress(places, batch, not done)

    def _write(self, path: Path, value: Current | LastRun | RerunRequest) -> None:
        make_state_directory(self.folder.parents[1])
        make_directories(self.folder)
        fsops.replace_durably(path, json.dumps(asdict(value)).encode() + b"\n")


def make_state_directory(path: Path) -> None:
    """The directory is there. Made now it is its owner's only: Spark keeps parts of messages in it, as they are."""
    make_directories(path.parent)
    try:
        fsops.make_directory(path, most_mode=0o700)
    except FileExistsError:
        return
    fsops.sync_directory(path.parent)


def stage_state(pipeline: Pipeline, stage: str) -> StageState:
    return StageState(pipeline.state / "stages" / stage)


def _batches(folder: Path) -> list[int]:
    """The numbers of the batches that have a file in `folder`, ascending."""
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdecimal())
    except FileNotFoundError:
        return []


def _places(file: Path) -> dict[str, int]:
    """The next number of each buffer, from a file of Spark's: a version, a line about the batch, a line a source."""
    places: dict[str, int] = {}
    for line in file.read_text().split("\n")[2:]:
        found = json.loads(line) if line.startswith("{") else {}
        places.update({buffer: int(seq) for buffer, seq in found.items()})
    return places


def _read(path: Path) -> dict[str, Any] | None:
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise Damaged(f"{path}: is damaged", hint="remove it, and run 'hbuf-pipeline rerun' for this stage")
    return values
