"""How a pipeline stands, from its files alone: it works while a run is under way, and where there is no Spark."""

from __future__ import annotations

from dataclasses import dataclass

from hbuf.spark.pipelines.graph import parents, steps
from hbuf.spark.pipelines.inputs import Extent, extents
from hbuf.spark.pipelines.model import Pipeline, Stage
from hbuf.spark.pipelines.run_lock import runs_now
from hbuf.spark.pipelines.state import LastRun, StageState, stage_state


@dataclass(frozen=True, slots=True)
class InputStatus:
    buffer: str  # tenant/buffer
    next: int  # the number of the message that is processed next
    lag: int  # messages that are there and not processed


@dataclass(frozen=True, slots=True)
class StageStatus:
    stage: str
    state: str  # waiting, running, done, failed
    reason: str  # why it failed, or what it waits for
    time: str | None  # of the last run
    rows: int
    seconds: float
    lag: int
    inputs: tuple[InputStatus, ...]


def next_numbers(state: StageState, there: dict[str, Extent]) -> dict[str, int]:
    """Where each buffer of a stage is read on from."""
    places = {**(state.current().start or {}), **state.progress().places}
    return {name: max(places.get(name, extent.first), extent.first) for name, extent in there.items()}


def has_work(stage: Stage, state: StageState, there: dict[str, Extent]) -> bool:
    """Whether the stage would do something: it has messages before it, a batch to finish, or a rerun to begin."""
    if state.rerun_request() is not None or state.progress().unfinished:
        return True
    if state.is_new() and "from" in stage.input_options:
        return True  # where it begins is not settled yet
    numbers = next_numbers(state, there)
    return any(extent.end > numbers[name] for name, extent in there.items())


def pipeline_has_work(pipeline: Pipeline) -> bool:
    return any(
        has_work(stage, stage_state(pipeline, stage.name), extents(stage.inputs)) for stage in pipeline.stages.values()
    )


def pipeline_status(pipeline: Pipeline) -> list[StageStatus]:
    running = runs_now(pipeline.state)
    found: dict[str, StageStatus] = {}
    for name in steps(pipeline):
        stage = pipeline.stages[name]
        held = next((each for each in parents(pipeline, stage) if _holds(found[each])), None)
        found[name] = _stage_status(stage, stage_state(pipeline, name), running, held)
    return list(found.values())


def _holds(parent: StageStatus) -> bool:
    """Whether what depends on it does not run."""
    return parent.state == "failed" or (parent.state == "waiting" and parent.reason.endswith(" failed"))


def _stage_status(stage: Stage, state: StageState, running: bool, held: str | None) -> StageStatus:
    last = state.last_run()
    there = extents(stage.inputs)
    numbers = next_numbers(state, there)
    inputs = tuple(
        InputStatus(name, numbers[name], max(0, extent.end - numbers[name])) for name, extent in there.items()
    )
    lag = sum(one.lag for one in inputs)
    shown, reason = _state_of(last, running, held, has_work(stage, state, there))
    return StageStatus(
        stage.name,
        shown,
        reason,
        last.time if last is not None else None,
        last.rows if last is not None else 0,
        last.seconds if last is not None else 0,
        lag,
        inputs,
    )


def _state_of(last: LastRun | None, running: bool, held: str | None, outstanding: bool) -> tuple[str, str]:
    if last is not None and last.state == "running" and running:
        return "running", ""
    if last is not None and last.state == "failed":
        return "failed", last.reason
    if held is not None:
        return "waiting", f"stage {held} failed"
    if outstanding:
        return "waiting", ""
    return ("done", "") if last is not None else ("waiting", "")
