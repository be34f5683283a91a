"""`status` from files alone: here those that a run leaves are written by hand, so that every state can be made."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hbuf.errors import Damaged, Locked
from hbuf.spark.pipelines.inputs import settled
from hbuf.spark.pipelines.model import Pipeline
from hbuf.spark.pipelines.run_lock import RunLock, runs_now
from hbuf.spark.pipelines.state import LastRun, RerunRequest, stage_state
from hbuf.spark.pipelines.status import InputStatus, StageStatus, pipeline_has_work, pipeline_status

if TYPE_CHECKING:
    from spark.pipelines.conftest import Fill, Load

TIME = "2026-11-18T04:51:00.000000Z"
SHOP = """
[stages.clean]
input = "orders"
sql = "select body from input"
output = "clean"

[stages.totals]
input = "stage:clean"
sql = "select body from input"
output = "totals"
"""


@pytest.fixture
def shop(load: Load, fill: Fill) -> Pipeline:
    """Two stages, and three messages that nobody has processed."""
    fill("orders", ["one", "two", "three"])
    fill("clean", [])
    return load(SHOP)


def test_state_directory_is_its_owners_only(shop: Pipeline) -> None:
    with RunLock(shop.state, shop.shown) as lock:
        lock.acquire()
    assert shop.state.stat().st_mode & 0o777 == 0o700
    other = stage_state(shop, "clean")
    other.record_run(LastRun("done", TIME))
    assert shop.state.stat().st_mode & 0o777 == 0o700


def checkpoint(pipeline: Pipeline, stage: str, batches: list[dict[str, int]], finished: int) -> None:
    """Writes what Spark writes: the places that each batch reads up to, and which batches are finished."""
    folder = stage_state(pipeline, stage).checkpoint()
    for kind in ("offsets", "commits"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for number, places in enumerate(batches):
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchTimestampMs":1}}\n{json.dumps(places)}')
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc")
    for number in range(finished):
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def first(pipeline: Pipeline) -> StageStatus:
    return pipeline_status(pipeline)[0]


def test_stage_that_never_ran_waits_with_all_messages_before_it(shop: Pipeline) -> None:
    clean, totals = pipeline_status(shop)
    assert clean == StageStatus("clean", "waiting", "", None, 0, 0, 3, (InputStatus("default/orders", 1, 3),))
    assert (totals.state, totals.lag) == ("waiting", 0)


def test_finished_batches_count_and_one_that_was_begun_does_not(shop: Pipeline) -> None:
    stage_state(shop, "clean").record_run(LastRun("done", TIME, rows=2, seconds=1.5))
    checkpoint(shop, "clean", [{"default/orders": 2}, {"default/orders": 4}], finished=1)
    status = first(shop)
    assert (status.state, status.inputs) == ("waiting", (InputStatus("default/orders", 2, 2),))
    checkpoint(shop, "clean", [{"default/orders": 2}, {"default/orders": 4}], finished=2)
    status = first(shop)
    assert (status.state, status.lag, status.rows, status.time) == ("done", 0, 2, TIME)


def test_batch_that_was_begun_counts_as_work_to_do(shop: Pipeline) -> None:
    stage_state(shop, "clean").record_run(LastRun("done", TIME))
    checkpoint(shop, "clean", [{"default/orders": 4}, {"default/orders": 4}], finished=1)
    assert first(shop).state == "waiting"


def test_new_messages_make_a_stage_that_was_done_wait(shop: Pipeline, fill: Fill) -> None:
    stage_state(shop, "clean").record_run(LastRun("done", TIME))
    checkpoint(shop, "clean", [{"default/orders": 4}], finished=1)
    assert first(shop).state == "done"
    fill("orders", ["four"])
    assert (first(shop).state, first(shop).lag) == ("waiting", 1)


def test_failed_stage_says_why_and_what_depends_on_it_waits_for_it(shop: Pipeline) -> None:
    stage_state(shop, "clean").record_run(LastRun("failed", TIME, reason="ValueError: no", exit_code=70))
    clean, totals = pipeline_status(shop)
    assert (clean.state, clean.reason) == ("failed", "ValueError: no")
    assert (totals.state, totals.reason) == ("waiting", "stage clean failed")


def test_stage_is_running_only_while_a_run_is_under_way(shop: Pipeline) -> None:
    stage_state(shop, "clean").record_run(LastRun("running", TIME))
    with RunLock(shop.state, shop.shown) as lock:
        lock.acquire()
        assert runs_now(shop.state)
        assert first(shop).state == "running"
    assert first(shop).state == "waiting"


def test_second_run_is_refused_with_the_process_that_runs(shop: Pipeline) -> None:
    with RunLock(shop.state, shop.shown) as first_lock, RunLock(shop.state, shop.shown) as second_lock:
        first_lock.acquire()
        with pytest.raises(Locked, match=r"is being run by process \d+$"):
            second_lock.acquire()
        first_lock.release()
        second_lock.acquire()


def test_next_run_waits_for_the_java_process_of_one_that_was_killed(shop: Pipeline) -> None:
    java = subprocess.Popen(["sleep", "1000"])
    taken = threading.Event()
    with RunLock(shop.state, shop.shown) as killed, RunLock(shop.state, shop.shown) as following:
        try:
            killed.acquire()
            killed.name_java(java.pid)
            killed.release()

            def acquire() -> None:
                following.acquire()
                taken.set()

            thread = threading.Thread(target=acquire)
            thread.start()
            assert not taken.wait(0.3)
        finally:
            java.kill()
            java.wait()
        thread.join(30)
        assert taken.is_set()


def test_there_is_work_until_everything_was_processed(shop: Pipeline, fill: Fill) -> None:
    assert pipeline_has_work(shop)
    checkpoint(shop, "clean", [{"default/orders": 4}], finished=1)
    assert not pipeline_has_work(shop)
    fill("clean", ["one"])
    assert pipeline_has_work(shop)


def test_rerun_begins_where_it_was_asked_to_and_only_once(shop: Pipeline, fill: Fill) -> None:
    state = stage_state(shop, "clean")
    state.record_run(LastRun("done", TIME))
    checkpoint(shop, "clean", [{"default/orders": 4}], finished=1)
    start = settled(shop.stages["clean"].inputs, "-2")
    state.ask_for_rerun(RerunRequest("a", "-2", start))
    fill("orders", ["four"])  # what the last two are is settled
    assert first(shop).state == "waiting"
    request = state.rerun_request()
    assert request is not None
    before = state.checkpoint()
    state.begin_rerun(request)
    assert (before.exists(), state.checkpoint().name) == (False, "checkpoint-2")
    assert first(shop).inputs == (InputStatus("default/orders", 2, 3),)
    # Killed before the request was removed: it is known by its id.
    state.ask_for_rerun(request)
    assert state.rerun_request() is None


def test_damaged_state_is_told(shop: Pipeline) -> None:
    stage_state(shop, "clean").record_run(LastRun("done", TIME))
    Path(shop.state / "stages/clean/last.json").write_bytes(b"{")
    with pytest.raises(Damaged, match=r"last\.json: is damaged"):
        pipeline_status(shop)
