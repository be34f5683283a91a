"""Draws a pipeline as text: stages in the order in which they run, with what goes in and what comes out."""

from __future__ import annotations

from hbuf.spark.pipelines.graph import sources, steps
from hbuf.spark.pipelines.model import Pipeline, Stage, StageInput


def draw(pipeline: Pipeline) -> str:
    """A line for each input, with an arrow to its stage; stages with the same number in front run side by side."""
    order = steps(pipeline)
    width = max(len(_input(pipeline, one)) for name in order for one in pipeline.stages[name].inputs)
    number_width = len(str(max(order.values())))
    lines = [
        f"pipeline {pipeline.name}",
        f"state    {pipeline.shown_path(pipeline.state)}",
        f"log      {pipeline.shown_path(pipeline.log)}",
    ]
    for name, step in order.items():
        lines.append("")
        drawn = _stage_lines(pipeline, pipeline.stages[name], width)
        lines += [f"{step if i == 0 else '':>{number_width}}  {line}" for i, line in enumerate(drawn)]
    return "\n".join(lines) + "\n"


def _stage_lines(pipeline: Pipeline, stage: Stage, width: int) -> list[str]:
    inputs = [_input(pipeline, one) for one in stage.inputs]
    target = f"{stage.name} ({stage.work}) --> {stage.output_shown}"
    if len(inputs) == 1:
        lines = [f"{_arrow(inputs[0], width)}----> {target}"]
    else:
        lines = [f"{_arrow(text, width)}-+" for text in inputs[:-1]]
        lines.append(f"{_arrow(inputs[-1], width)}-+--> {target}")
    indent = " " * (width + len(" ------> "))
    if stage.dependencies:
        lines.append(f"{indent}with {', '.join(_dependency(pipeline, name) for name in stage.dependencies)}")
    if stage.after:
        lines.append(f"{indent}after {', '.join(stage.after)}")
    return lines


def _arrow(text: str, width: int) -> str:
    return f"{text} ".ljust(width + 1, "-") + "--"


def _input(pipeline: Pipeline, one: StageInput) -> str:
    if one.stage is not None:
        return one.stage
    # A path or a glob that is another stage's output is one of its inputs all the same.
    found = sources(pipeline, one)
    return f"{one.shown} ({', '.join(found)})" if found else one.shown


def _dependency(pipeline: Pipeline, name: str) -> str:
    return name if name in pipeline.stages else f"{name} ({pipeline.buffers_shown[name]})"
