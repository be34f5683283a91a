"""What a run needs before its first stage: a pipeline without faults, its outputs, its log, its modules on workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from hbuf.ops.create import create
from hbuf.spark.pipelines.check import check
from hbuf.spark.pipelines.functions import modules_beside
from hbuf.spark.pipelines.log import PipelineLog
from hbuf.spark.pipelines.model import Pipeline
from hbuf.spark.pipelines.run import Runner, Watcher
from hbuf.store.signing import Signer


@contextlib.contextmanager
def prepared(
    pipeline: Pipeline,
    session: SparkSession,
    *,
    watcher: Watcher = lambda stage, state, rows: None,
    notice: Callable[[str], None] = lambda line: None,
    pause_seconds: float = 1.0,
) -> Iterator[Runner]:
    """A runner for the pipeline. Raises BadPipeline before anything is made or started."""
    functions = check(pipeline, session)
    for module in modules_beside(pipeline):
        # Workers get what a function uses of it together with the function.
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    _make_outputs(pipeline)
    log = PipelineLog(pipeline.log, pipeline.name, notice)
    try:
        yield Runner(pipeline, functions, session, log, watcher=watcher, notice=notice, pause_seconds=pause_seconds)
    finally:
        log.close()


def _make_outputs(pipeline: Pipeline) -> None:
    """A stage that reads another's output finds a buffer, if an empty one."""
    for stage in pipeline.stages.values():
        key = stage.output_options.get("sign")
        create(str(stage.output), may_exist=True, signer=Signer(Path(key)) if key is not None else None)
