"""Which stage waits for which: those that it reads, those that it depends on, and those that it comes after."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from hbuf.spark.pipelines.model import Pipeline, Stage, StageInput
from hbuf.spark.pipelines.problems import Problem


def sources(pipeline: Pipeline, one: StageInput) -> list[str]:
    """The stages whose outputs an input reads, by name or by path: a glob may well match an output."""
    if one.stage is not None:
        return [one.stage]
    return [stage.name for stage in pipeline.stages.values() if one.takes(str(stage.output))]


def parents(pipeline: Pipeline, stage: Stage) -> list[str]:
    """The stages that must have finished before this one starts, each once."""
    reads = [name for one in stage.inputs for name in sources(pipeline, one)]
    given = [name for name in stage.dependencies if name in pipeline.stages]
    return list(dict.fromkeys([*reads, *given, *stage.after]))


def steps(pipeline: Pipeline) -> dict[str, int]:
    """Each stage with its step, from 1 on, in the order in which they run: stages of one step wait for none other."""
    found: dict[str, int] = {}
    for name in TopologicalSorter(_graph(pipeline)).static_order():
        found[name] = 1 + max((found[parent] for parent in parents(pipeline, pipeline.stages[name])), default=0)
    order = list(pipeline.stages)
    return dict(sorted(found.items(), key=lambda each: (each[1], order.index(each[0]))))


def descendants(pipeline: Pipeline, name: str) -> set[str]:
    """The stage and all that wait for it."""
    found = {name}
    for each in steps(pipeline):
        if found.intersection(parents(pipeline, pipeline.stages[each])):
            found.add(each)
    return found


def graph_problems(pipeline: Pipeline) -> list[Problem]:
    """What is wrong with how the stages go together."""
    problems = [*_shared_outputs(pipeline), *_log_as_input(pipeline)]
    try:
        TopologicalSorter(_graph(pipeline)).prepare()
    except CycleError as error:
        cycle = error.args[1]
        problems.append(Problem(cycle[0], f"waits for itself: {' -> '.join(cycle)}"))
    return problems


def _graph(pipeline: Pipeline) -> dict[str, list[str]]:
    return {name: parents(pipeline, stage) for name, stage in pipeline.stages.items()}


def _shared_outputs(pipeline: Pipeline) -> Iterator[Problem]:
    owners: dict[str, str] = {}
    for stage in pipeline.stages.values():
        owner = owners.setdefault(str(stage.output), stage.name)
        if owner != stage.name:
            yield Problem(stage.name, f"output: {stage.output_shown} is the output of stage {owner} already")


def _log_as_input(pipeline: Pipeline) -> Iterator[Problem]:
    for stage in pipeline.stages.values():
        if any(one.takes(str(pipeline.log)) for one in stage.inputs):
            yield Problem(stage.name, "input: the pipeline's own log is among it, which would set it off for ever")
        if stage.output == pipeline.log:
            yield Problem(stage.name, "output: is the pipeline's own log")
