"""Goes on with a pipeline as messages come: woken by what is written to the inputs, and once a second anyway.

The second look is for what no watch tells of: a new buffer that a glob matches, a rerun that somebody asks for, a
network file system.
"""

from __future__ import annotations

import contextlib

from hbuf.ops.watching import Watch
from hbuf.spark.pipelines.inputs import found_buffers
from hbuf.spark.pipelines.model import Pipeline
from hbuf.spark.pipelines.run import Runner

_LOOK_SECONDS = 1.0


class Follower:
    def __init__(self, pipeline: Pipeline, runner: Runner) -> None:
        self._pipeline = pipeline
        self._runner = runner
        self._watch: Watch | None = None
        with contextlib.suppress(OSError):  # the system has no watch left to give: it looks now and then
            self._watch = Watch()

    def stop(self) -> None:
        """May be called by a signal handler."""
        self._runner.stop.set()
        if self._watch is not None:
            self._watch.wake()

    def run(self) -> None:
        """Until `stop` is called, or no stage is left that could run."""
        while not self._runner.stop.is_set():
            self._runner.round()
            if self._runner.is_stuck():
                return
            self._watch_inputs()
            if self._watch is not None:
                self._watch.clear()
            if self._runner.stop.is_set() or self._runner.has_work():
                continue
            if self._watch is not None:
                self._watch.wait(_LOOK_SECONDS)
            else:
                self._runner.stop.wait(_LOOK_SECONDS)

    def _watch_inputs(self) -> None:
        if self._watch is None:
            return
        folders = {
            directory.segments
            for stage in self._pipeline.stages.values()
            for one in stage.inputs
            for directory in found_buffers(one)
        }
        with contextlib.suppress(OSError):
            self._watch.only(folders)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
