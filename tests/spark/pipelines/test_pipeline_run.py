"""Runs in the shared session: what comes out, that it comes out once, and what a failure stops and does not."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import hbuf
from hbuf.ops.set import read_settings
from hbuf.spark.delivery import CHUNKS_A_BATCH
from hbuf.spark.pipelines.follow import Follower
from hbuf.spark.pipelines.graph import descendants
from hbuf.spark.pipelines.inputs import settled
from hbuf.spark.pipelines.model import Pipeline
from hbuf.spark.pipelines.prepare import prepared
from hbuf.spark.pipelines.run import Failure, Runner
from hbuf.spark.pipelines.state import RerunRequest, stage_state
from hbuf.spark.pipelines.status import pipeline_status
from hbuf.spark.staged_file import PieceLimits
from hbuf.spark.staging import Manifest, PieceRange, Staging, sender_of

if TYPE_CHECKING:
    from spark.pipelines.conftest import Bodies, Fill, Load, Module

DEADLINE_SECONDS = 120
RunOnce = Callable[[Pipeline], Runner]

UPPER = "select key, upper(decode(body, 'UTF-8')) as body from input"


def stage(name: str, sql: str, *lines: str, given: str = "orders") -> str:
    text = [f"[stages.{name}]", f'input = "{given}"', f"sql = '''{sql}'''", f'output = "{name}"', *lines, ""]
    return "\n".join(text)


@pytest.fixture
def run_once(spark: SparkSession) -> RunOnce:
    """run_once(pipeline): one round of all stages, as `run --once` has it."""

    def run(pipeline: Pipeline) -> Runner:
        with prepared(pipeline, spark, pause_seconds=0.01) as runner:
            runner.round()
            return runner

    return run


def log_of(pipeline: Pipeline, *names: str) -> list[tuple[Any, ...]]:
    """What happened, in order: of each message the stage, the event and the values of `names`."""
    with hbuf.open(pipeline.log) as buffer:
        events = [json.loads(message.body) for message in buffer.read()]
    return [(event["stage"], event["event"], *(event.get(name) for name in names)) for event in events]


def test_function_and_sql_in_two_stages_process_each_message_once(
    load: Load, fill: Fill, bodies: Bodies, module: Module, run_once: RunOnce, tmp_path: Path
) -> None:
    # The function's own function runs on workers, which have no such module.
    name = module(
        "from pyspark.sql.functions import broadcast, udf\n"
        "SIGN = '!'\n"
        "@udf('string', useArrow=False)\n"
        "def shout(body):\n    return body.decode().upper() + SIGN\n"
        "def clean(frame, customers):\n"
        "    known = broadcast(customers.selectExpr('key'))\n"
        "    return frame.join(known, 'key').select('key', shout('body').alias('body'), 'tags')\n"
    )
    fill("customers", ["somebody"], key="ann")
    fill("orders", ["one", "two"], key="ann")
    fill("orders", ["not by a customer"], key="bob")
    pipeline = load(
        '[buffers]\ncustomers = "customers"\n'
        f'[stages.clean]\ninput = "orders"\nfunction = "{name}:clean"\noutput = "clean"\ndependencies = ["customers"]\n'
        + stage("totals", "select body, array('seen') as tags from input where key = 'ann'", given="stage:clean")
    )
    assert run_once(pipeline).failures == {}
    assert (bodies("clean"), bodies("totals")) == (["ONE!", "TWO!"], ["ONE!", "TWO!"])
    expected = [
        ("clean", "started", None, {"default/orders": 1}, None),
        ("clean", "finished", 3, {"default/orders": 1}, {"default/orders": 4}),
        ("totals", "started", None, {"default/clean": 1}, None),
        ("totals", "finished", 2, {"default/clean": 1}, {"default/clean": 3}),
    ]
    assert log_of(pipeline, "rows", "start", "end") == expected
    assert [(each.state, each.lag, each.rows) for each in pipeline_status(pipeline)] == [("done", 0, 3), ("done", 0, 2)]
    # Again, with nothing new: nothing happens. With something new: that alone is processed.
    run_once(pipeline)
    assert log_of(pipeline, "rows", "start", "end") == expected
    fill("orders", ["three"], key="ann")
    assert pipeline_status(pipeline)[0].state == "waiting"
    run_once(pipeline)
    assert (bodies("clean"), bodies("totals")) == (["ONE!", "TWO!", "THREE!"], ["ONE!", "TWO!", "THREE!"])
    with hbuf.open(tmp_path / "clean") as buffer:
        assert [message.key for message in buffer.read()] == ["ann"] * 3
    with hbuf.open(pipeline.log) as buffer:
        message = next(buffer.read())
    assert (message.key, list(message.tags)) == ("clean", ["pipeline=shop", "stage=clean", "event=started"])


def test_failed_stage_stops_what_depends_on_it_and_nothing_else(
    load: Load, fill: Fill, bodies: Bodies, run_once: RunOnce
) -> None:
    fill("orders", ["1", "two"])
    broken = "select string(int(decode(body, 'UTF-8'))) as body from input"
    text = (
        "[pipeline]\nretries = 1\n"
        + stage("parsed", broken)
        + stage("reads", "select body from input", given="stage:parsed")
        + stage("given", "select body from input", 'dependencies = ["parsed"]')
        + stage("later", "select body from input", 'after = ["given"]')
        + stage("other", UPPER)
    )
    pipeline = load(text)
    runner = run_once(pipeline)
    assert list(runner.failures) == ["parsed"]
    assert runner.failures["parsed"].exit_code == 70
    assert "CAST_INVALID_INPUT" in runner.failures["parsed"].reason
    assert not runner.is_stuck()
    assert [bodies(name) for name in ("parsed", "reads", "given", "later")] == [[]] * 4
    assert bodies("other") == ["1", "TWO"]
    events = [event for stage_name, event in log_of(pipeline) if stage_name == "parsed"]
    assert events == ["started", "retried", "started", "failed"]
    states = {each.stage: (each.state, each.reason) for each in pipeline_status(pipeline)}
    assert states["reads"] == ("waiting", "stage parsed failed")
    assert states["later"] == ("waiting", "stage given failed")
    assert states["parsed"][0] == "failed"
    assert states["other"] == ("done", "")
    # Mended, the next run finishes the batch that was begun, and everything is there once.
    mended = text.replace("string(int(decode(body, 'UTF-8')))", "coalesce(string(try_cast(string(body) as int)), '?')")
    assert run_once(load(mended)).failures == {}
    assert bodies("parsed") == bodies("reads") == ["1", "?"]
    assert bodies("given") == bodies("later") == ["1", "two"]


def test_rerun_appends_the_results_again_from_a_place_on(
    load: Load, fill: Fill, bodies: Bodies, spark: SparkSession, run_once: RunOnce
) -> None:
    fill("orders", ["one", "two", "three"])
    pipeline = load(
        stage("upper", UPPER) + stage("copied", "select body from input", given="stage:upper") + stage("other", UPPER)
    )
    run_once(pipeline)
    start = settled(pipeline.stages["upper"].inputs, "-2")
    stage_state(pipeline, "upper").ask_for_rerun(RerunRequest("some id", "-2", start))
    fill("orders", ["four"])
    with prepared(pipeline, spark) as runner:
        runner.round(descendants(pipeline, "upper"))
    assert bodies("upper") == ["ONE", "TWO", "THREE", "TWO", "THREE", "FOUR"]
    assert bodies("copied") == bodies("upper")
    assert bodies("other") == ["ONE", "TWO", "THREE"]
    assert ("upper", "rerun", "-2", {"default/orders": 2}) in log_of(pipeline, "place", "start")
    run_once(pipeline)
    assert bodies("upper") == ["ONE", "TWO", "THREE", "TWO", "THREE", "FOUR"]
    assert bodies("other") == ["ONE", "TWO", "THREE", "FOUR"]


def test_rerun_finishes_the_batch_that_was_half_appended_before_it(
    half_appended: Pipeline, bodies: Bodies, run_once: RunOnce
) -> None:
    assert run_once(half_appended).failures == {}
    assert bodies("upper") == ["ONE", "TWO", "THREE", "FOUR", "FIVE", "THREE"]
    assert os.listdir(half_appended.folder / "upper/staging") == []


def test_rerun_that_cannot_finish_what_was_half_appended_fails_once_and_is_left(
    half_appended: Pipeline, bodies: Bodies, spark: SparkSession
) -> None:
    [staged] = half_appended.folder.glob("upper/staging/*.arrow")
    staged.unlink()
    with prepared(half_appended, spark) as runner:
        assert runner.has_work()
        runner.round()
        assert not runner.has_work()
        assert runner.failures["upper"] == Failure(f"{staged}: is gone, and its rows are not all stored", 66)
        assert runner.is_stuck()
    assert bodies("upper") == ["ONE", "TWO", "THREE", "FOUR"]
    assert stage_state(half_appended, "upper").rerun_request() is not None


@pytest.fixture
def half_appended(load: Load, fill: Fill, run_once: RunOnce) -> Pipeline:
    """A pipeline whose driver died between the two chunks of a batch, and that is to be rerun."""
    fill("orders", ["one", "two", "three"])
    pipeline = load(stage("upper", UPPER))
    run_once(pipeline)
    state, buffer, rows = stage_state(pipeline, "upper"), pipeline.folder / "upper", ["FOUR", "FIVE"]
    sender = f"spark-{state.query()}"
    staging = Staging(buffer / "staging", sender_of(read_settings(str(buffer)).uuid, sender))
    file = staging.stage(1, 0, [pa.record_batch({"body": rows})], PieceLimits(1, 1))
    assert file is not None
    staging.save_manifest(1, Manifest(tuple((PieceRange(file.name, i, i + 1),) for i in range(len(rows)))))
    with hbuf.open(buffer) as opened:
        opened.append(rows[0].encode(), producer=sender, producer_seq=CHUNKS_A_BATCH)
    state.ask_for_rerun(RerunRequest("some id", "last", settled(pipeline.stages["upper"].inputs, "last")))
    return pipeline


def test_stage_whose_state_cannot_be_used_fails_alone_and_goes_on_when_it_can(
    load: Load, fill: Fill, bodies: Bodies, spark: SparkSession, tmp_path: Path
) -> None:
    fill("orders", ["one"])
    pipeline = load(stage("upper", UPPER) + stage("copied", "select body from input"))
    folder = stage_state(pipeline, "upper").folder
    folder.parent.mkdir(parents=True)
    folder.write_text("not a directory")
    with prepared(pipeline, spark) as runner:
        assert runner.has_work()
        runner.round()
        assert runner.failures["upper"] == Failure(f"{folder}/rerun.json: Not a directory", 66)
        assert not runner.has_work()
        runner.round()
    assert [event for name, event in log_of(pipeline) if name == "upper"] == ["failed"]
    assert (bodies("upper"), bodies("copied")) == ([], ["one"])
    folder.unlink()
    with prepared(pipeline, spark) as runner:
        runner.round()
    assert bodies("upper") == ["ONE"]


def test_stage_that_failed_stays_so_until_it_is_rerun(
    load: Load, fill: Fill, bodies: Bodies, spark: SparkSession
) -> None:
    fill("orders", ["bad"])
    sql = "select string(int(string(body))) as body from input"
    pipeline = load("[pipeline]\nretries = 0\n" + stage("parsed", sql))
    with prepared(pipeline, spark) as runner:
        runner.round()
        fill("orders", ["2"])
        assert (list(runner.failures), runner.has_work(), runner.is_stuck()) == (["parsed"], False, True)
        start = settled(pipeline.stages["parsed"].inputs, "last")
        stage_state(pipeline, "parsed").ask_for_rerun(RerunRequest("some id", "last", start))
        assert runner.has_work()
        runner.round()
        assert runner.failures == {}
    assert bodies("parsed") == ["2"]


def test_place_where_a_stage_begins_is_settled_once(load: Load, fill: Fill, bodies: Bodies, run_once: RunOnce) -> None:
    fill("orders", ["old"])
    pipeline = load(stage("upper", UPPER, 'input_options = {from = "end"}'))
    run_once(pipeline)
    fill("orders", ["new"])
    run_once(pipeline)
    assert bodies("upper") == ["NEW"]


def test_several_inputs_and_new_buffers_of_a_glob_are_one_input(
    load: Load, fill: Fill, bodies: Bodies, run_once: RunOnce
) -> None:
    fill("returns", ["back"])
    fill("web/one", ["a"])
    pipeline = load(stage("all", UPPER).replace('"orders"', '["returns", "web/*"]'))
    run_once(pipeline)
    assert sorted(bodies("all")) == ["A", "BACK"]
    fill("web/two", ["b"])
    run_once(pipeline)
    assert sorted(bodies("all")) == ["A", "B", "BACK"]
    status = pipeline_status(pipeline)[0]
    assert {one.buffer: (one.next, one.lag) for one in status.inputs} == {
        "default/returns": (2, 0),
        "default/one": (2, 0),
        "default/two": (2, 0),
    }


def test_follower_goes_on_as_messages_come_until_it_is_stopped(
    load: Load, fill: Fill, bodies: Bodies, spark: SparkSession
) -> None:
    fill("orders", ["one"])
    pipeline = load(stage("upper", UPPER) + stage("copied", "select body from input", given="stage:upper"))
    with prepared(pipeline, spark) as runner:
        follower = Follower(pipeline, runner)
        thread = threading.Thread(target=follower.run)
        thread.start()
        try:
            _wait_until(lambda: bodies("copied") == ["ONE"])
            fill("orders", ["two"])
            _wait_until(lambda: bodies("copied") == ["ONE", "TWO"])
        finally:
            follower.stop()
            thread.join(DEADLINE_SECONDS)
            follower.close()
    assert not thread.is_alive()
    assert bodies("upper") == ["ONE", "TWO"]


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
