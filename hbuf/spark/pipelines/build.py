"""A stage as Spark knows it: the stream that it reads, what its function or SQL makes of that, and where it goes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from hbuf.errors import UsageError
from hbuf.spark.pipelines.functions import Function
from hbuf.spark.pipelines.model import Pipeline, Stage

FORMAT = "hbuf"


def use_in_this_thread(session: SparkSession) -> None:
    """Spark looks up what a format means in the session of the thread that it was called from."""
    java = SparkSession._get_j_spark_session_class(session._jvm)
    java.setActiveSession(session._jsparkSession)


def read_stream(session: SparkSession, stage: Stage, start: Mapping[str, int] | None) -> DataFrame:
    """The inputs of a stage as one stream. `start` is the number that each buffer begins with."""
    options = {**stage.input_options, "paths": json.dumps([one.path for one in stage.inputs])}
    if start is not None:
        options["from"] = json.dumps(start)
    return session.readStream.format(FORMAT).options(**options).load()


def read_dependencies(session: SparkSession, pipeline: Pipeline, stage: Stage) -> dict[str, DataFrame]:
    """What the stage depends on, as it is when a batch is computed."""
    return {name: session.read.format(FORMAT).load(pipeline.dependency_path(name)) for name in stage.dependencies}


def results(
    stage: Stage, function: Function | None, stream: DataFrame, dependencies: Mapping[str, DataFrame]
) -> DataFrame:
    """What the stage makes of its input. Nothing is read yet."""
    if function is not None:
        made = function(stream, **dependencies)
        if not isinstance(made, DataFrame):
            raise UsageError(f"function: '{stage.function}' returned {type(made).__name__}, not a DataFrame")
        return made
    for name, frame in {"input": stream, **dependencies}.items():
        frame.createOrReplaceTempView(name)
    return stream.sparkSession.sql(stage.sql or "")


def start_query(stage: Stage, made: DataFrame, checkpoint: Path) -> StreamingQuery:
    """A query that processes what is there now, and ends."""
    return (
        made.writeStream.format(FORMAT)
        .outputMode(stage.output_mode)
        .options(**stage.output_options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(stage.output))
    )
