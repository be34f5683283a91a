"""Runs a pipeline in a Spark session: rounds of stages in their order, each stage a query over what is there now.

A stage is exactly once by two things that it does not do itself: Spark writes down what a batch reads before it reads
it, and the sink knows the batches that are in the buffer. So a stage that fails or is killed is simply started again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from graphlib import TopologicalSorter

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from hbuf.errors import HbufError
from hbuf.format.times import encode_time
from hbuf.spark.pipelines.build import read_dependencies, read_stream, results, start_query, use_in_this_thread
from hbuf.spark.pipelines.functions import Function
from hbuf.spark.pipelines.graph import parents
from hbuf.spark.pipelines.inputs import Extent, extents, settled
from hbuf.spark.pipelines.log import PipelineLog
from hbuf.spark.pipelines.model import Pipeline, Stage
from hbuf.spark.pipelines.reasons import reason_of
from hbuf.spark.pipelines.state import LastRun, StageState, stage_state
from hbuf.spark.pipelines.status import has_work, next_numbers
from hbuf.spark.sink import finish_stream
from hbuf.store.fsops import os_errors

_LOOK_SECONDS = 0.1
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Failure:
    reason: str
    exit_code: int


# stage, state (waiting, running, done, failed), rows so far
Watcher = Callable[[str, str, int], None]


class Runner:
    """One run. `stop` ends it as soon as it can, with nothing lost."""

    def __init__(
        self,
        pipeline: Pipeline,
        functions: Mapping[str, Function],
        session: SparkSession,
        log: PipelineLog,
        *,
        watcher: Watcher = lambda stage, state, rows: None,
        notice: Callable[[str], None] = lambda line: None,
        pause_seconds: float = _FIRST_PAUSE_SECONDS,
    ) -> None:
        self.stop = threading.Event()
        self.failures: dict[str, Failure] = {}  # in the order in which they came
        self._pipeline = pipeline
        self._functions = functions
        # A session a stage: views and settings of one are not those of another.
        self._sessions = {name: session.newSession() for name in pipeline.stages}
        self._log = log
        self._watcher = watcher
        self._notice = notice
        self._pause_seconds = pause_seconds
        self._tried: dict[str, dict[str, Extent]] = {}  # what a stage's input was when it last ran
        self._reruns_tried: dict[str, str] = {}  # the last that each stage took up: one that cannot be begun is left

    def round(self, among: Collection[str] | None = None) -> None:
        """Every stage once that has something to do, those that wait for others after them."""
        names = [name for name in self._pipeline.stages if among is None or name in among]
        waits_for = {name: [each for each in self._parents(name) if each in names] for name in names}
        sorter = TopologicalSorter(waits_for)
        sorter.prepare()
        running: dict[Future[None], str] = {}
        with ThreadPoolExecutor(self._pipeline.parallel, thread_name_prefix="stage") as pool:
            while sorter.is_active():
                for name in sorter.get_ready():
                    running[pool.submit(self._take_turn, name)] = name
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    done.result()
                    sorter.done(running.pop(done))

    def has_work(self) -> bool:
        """Whether a round would do something now."""
        return any(self._may_be_due(stage) for stage in self._pipeline.stages.values())

    def is_stuck(self) -> bool:
        """Whether no stage is left that could run."""
        return all(name in self.failures or self._held_by(name) for name in self._pipeline.stages)

    def _parents(self, name: str) -> list[str]:
        return parents(self._pipeline, self._pipeline.stages[name])

    def _held_by(self, name: str) -> str | None:
        """The failed stage that this one waits for, be it through others."""
        for parent in self._parents(name):
            if parent in self.failures:
                return parent
            if held := self._held_by(parent):
                return held
        return None

    def _state(self, stage: Stage) -> StageState:
        return stage_state(self._pipeline, stage.name)

    def _may_be_due(self, stage: Stage) -> bool:
        try:
            return self._is_due(stage)
        except (HbufError, OSError):
            return stage.name not in self.failures  # its turn tells what is the matter

    def _is_due(self, stage: Stage) -> bool:
        state = self._state(stage)
        if self._held_by(stage.name):
            return False
        request = state.rerun_request()
        if request is not None and request.id != self._reruns_tried.get(stage.name):
            return True
        there = extents(stage.inputs)
        if stage.name in self.failures or self._tried.get(stage.name) == there:
            return False
        return has_work(stage, state, there)

    # One stage. From here on it may be in a thread of its own.

    def _take_turn(self, name: str) -> None:
        stage = self._pipeline.stages[name]
        try:
            with os_errors(self._state(stage).folder):
                if self.stop.is_set() or not self._is_due(stage):
                    return
                self._prepare(stage)
        except HbufError as error:
            if name not in self.failures:
                self._fail(stage, Failure(error.message, error.exit_code), 1)
            return
        for attempt in range(1, self._pipeline.retries + 2):
            try:
                self._run_once(stage, attempt)
                return
            except Exception as error:  # whatever a function, Spark or a buffer says
                if self.stop.is_set():
                    self._log.append(name, "stopped")
                    return
                failure = Failure(*reason_of(error))
            if attempt > self._pipeline.retries:
                self._fail(stage, failure, attempt)
                return
            pause = min(self._pause_seconds * 2 ** (attempt - 1), _LONGEST_PAUSE_SECONDS)
            self._log.append(name, "retried", reason=failure.reason, attempt=attempt, pause_seconds=pause)
            self._watcher(name, "waiting", 0)
            if self.stop.wait(pause):
                return

    def _prepare(self, stage: Stage) -> None:
        """Takes up a rerun, and settles where a stage begins that never ran: the next query must not decide anew."""
        state = self._state(stage)
        request = state.rerun_request()
        if request is not None:
            self._reruns_tried[stage.name] = request.id
            self.failures.pop(stage.name, None)
            query = state.query()
            if query is not None:
                finish_stream(str(stage.output), stage.output_options, query)
            state.begin_rerun(request)
            self._log.append(stage.name, "rerun", place=request.place, start=request.start)
        elif state.is_new() and "from" in stage.input_options:
            state.settle_start(settled(stage.inputs, stage.input_options["from"]))
        state.drop_old_checkpoints()

    def _run_once(self, stage: Stage, attempt: int) -> None:
        state, started = self._state(stage), time.monotonic()
        there = extents(stage.inputs)
        before = next_numbers(state, there)
        self._record(stage, state, LastRun("running", _now()))
        self._watcher(stage.name, "running", 0)
        self._log.append(stage.name, "started", attempt=attempt, start=before)
        session = self._sessions[stage.name]
        use_in_this_thread(session)
        stream = read_stream(session, stage, state.current().start)
        dependencies = read_dependencies(session, self._pipeline, stage)
        made = results(stage, self._functions.get(stage.name), stream, dependencies)
        rows, ended = self._finish(stage, start_query(stage, made, state.checkpoint()))
        if not ended:
            self._log.append(stage.name, "stopped", rows=rows)
            return
        self._tried[stage.name] = there
        seconds = round(time.monotonic() - started, 3)
        reached = next_numbers(state, there)
        self._record(stage, state, LastRun("done", _now(), rows, seconds))
        self._log.append(stage.name, "finished", rows=rows, seconds=seconds, start=before, end=reached)
        self._watcher(stage.name, "done", rows)

    def _finish(self, stage: Stage, query: StreamingQuery) -> tuple[int, bool]:
        """Waits for a query to end. Returns how many rows it read, and whether it ended by itself."""
        rows: dict[int, int] = {}  # by batch: Spark keeps the last hundred only
        ended = False
        try:
            while not ended:
                ended = bool(query.awaitTermination(_LOOK_SECONDS))  # type: ignore[arg-type]  # it takes parts of a second
                for progress in query.recentProgress:
                    rows[progress.batchId] = max(progress.numInputRows, rows.get(progress.batchId, 0))
                self._watcher(stage.name, "running", sum(rows.values()))
                if self.stop.is_set():
                    break
        finally:
            if query.isActive:
                query.stop()
        return sum(rows.values()), ended

    def _fail(self, stage: Stage, failure: Failure, attempt: int) -> None:
        self.failures[stage.name] = failure
        state = self._state(stage)
        self._record(stage, state, LastRun("failed", _now(), reason=failure.reason, exit_code=failure.exit_code))
        self._log.append(stage.name, "failed", reason=failure.reason, attempt=attempt, exit_code=failure.exit_code)
        self._watcher(stage.name, "failed", 0)
        self._notice(f"stage {stage.name}: {failure.reason}")

    def _record(self, stage: Stage, state: StageState, last: LastRun) -> None:
        """For `status`. A stage that ran is not undone because that could not be written down."""
        try:
            state.record_run(last)
        except OSError as error:
            self._notice(f"stage {stage.name}: the status is not up to date: {error}")


def _now() -> str:
    return encode_time(time.time_ns() // 1000)
