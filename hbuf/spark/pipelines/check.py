"""What can be known to be wrong with a pipeline before it runs, and is not in its file: no message is read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from hbuf.errors import HbufError, NotFound, UsageError
from hbuf.spark.pipelines.functions import Function, load_functions
from hbuf.spark.pipelines.graph import sources
from hbuf.spark.pipelines.inputs import found_buffers, name_of
from hbuf.spark.pipelines.model import Pipeline, Stage, StageInput
from hbuf.spark.pipelines.problems import BadPipeline, Problem
from hbuf.spark.pipelines.reasons import reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEY_FILES = {"identity": "input_options", "sign": "output_options"}


def leave_telling_to_us() -> None:
    """Spark's Python part also logs what it raises: a page of JSON for a column that is misspelt."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def check(pipeline: Pipeline, session: SparkSession) -> dict[str, Function]:
    """The functions of the stages. Raises BadPipeline with everything that is wrong."""
    functions, problems = load_functions(pipeline)
    problems = [*missing_files(pipeline), *problems]
    unusable = {problem.stage for problem in problems if problem.text.startswith("function: ")}
    for stage in pipeline.stages.values():
        if stage.name not in unusable:
            # Its views and settings are its own.
            problems += _wrong_results(stage, functions.get(stage.name), session.newSession())
    if problems:
        raise BadPipeline(pipeline.shown, problems)
    return functions


def missing_files(pipeline: Pipeline) -> list[Problem]:
    """What must be on disk, and is not."""
    return [problem for stage in pipeline.stages.values() for problem in _missing(pipeline, stage)]


def _missing(pipeline: Pipeline, stage: Stage) -> Iterator[Problem]:
    for one in stage.inputs:
        if not sources(pipeline, one):
            yield from _unless_buffers(stage, one, "input")
    yield from _same_names(stage)
    for name in stage.dependencies:
        if name not in pipeline.stages:
            one = StageInput(pipeline.buffers_shown[name], pipeline.buffers[name])
            yield from _unless_buffers(stage, one, f"dependencies: {name}")
    for option, options in _KEY_FILES.items():
        path = getattr(stage, options).get(option)
        if path is not None and not os.path.exists(path):
            yield Problem(stage.name, f"{options}.{option}: {path}: there is no such file", NotFound.exit_code)


def _same_names(stage: Stage) -> Iterator[Problem]:
    """How far a stage is, is known by tenant and buffer: two of one name cannot be told apart."""
    known: dict[str, str] = {}
    for one in stage.inputs:
        with contextlib.suppress(HbufError):  # it is told above
            for directory in found_buffers(one):
                name, path = name_of(directory), str(directory.path)
                if known.setdefault(name, path) != path:
                    yield Problem(stage.name, f"input: {known[name]} and {path} are both called {name}")


def _unless_buffers(stage: Stage, one: StageInput, what: str) -> Iterator[Problem]:
    try:
        if not found_buffers(one):
            yield Problem(stage.name, f"{what}: {one.shown}: there is no such buffer", NotFound.exit_code)
    except HbufError as error:
        yield Problem(stage.name, f"{what}: {error.message}", error.exit_code)


def _wrong_results(stage: Stage, function: Function | None, session: SparkSession) -> Iterator[Problem]:
    """Builds the stage on stand-ins that have the columns of its input, and looks at what comes out."""
    from hbuf.spark.pipelines.build import results

    try:
        dependencies = {name: _stand_in(session, {}, streaming=False) for name in stage.dependencies}
        stream = _stand_in(session, stage.input_options, streaming=True)
        made = results(stage, function, stream, dependencies)
        _check_results(stage, made)
    except Exception as error:  # whatever a function or Spark says to it
        yield Problem(stage.name, reason_of(error)[0])


def _stand_in(session: SparkSession, options: Mapping[str, str], *, streaming: bool) -> DataFrame:
    """A table or stream with the columns that the source has with these options, and no rows."""
    from hbuf.spark.options import TYPES, parse_read_options

    columns = parse_read_options({**options, "path": "."}).columns
    empty = session.readStream.format("rate").load() if streaming else session.range(0)
    return empty.selectExpr(*(f"cast(null as {TYPES[name]}) as {name}" for name in columns))


def _check_results(stage: Stage, made: DataFrame) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from hbuf.arrow.outgoing import check_columns

    if not made.isStreaming:
        raise UsageError("what it makes does not come from its input")
    check_columns(to_arrow_schema(made.schema, timezone="UTC"))
    _refuse_what_streams_cannot(stage, made)


def _refuse_what_streams_cannot(stage: Stage, made: DataFrame) -> None:
    """Sorting, for one: Spark says so when a query starts, and this asks it before."""
    jvm = made.sparkSession._jvm
    plan = made._jdf.queryExecution().analyzed()
    modes = jvm.org.apache.spark.sql.streaming.OutputMode  # type: ignore[union-attr]
    mode = modes.Update() if stage.output_mode == "update" else modes.Append()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker  # type: ignore[union-attr]
    checker.checkForStreaming(plan, mode)
