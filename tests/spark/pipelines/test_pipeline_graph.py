from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hbuf.spark.pipelines.graph import descendants, parents, steps
from hbuf.spark.pipelines.plan import draw

if TYPE_CHECKING:
    from spark.pipelines.conftest import Load, Problems


def stage(name: str, *lines: str, given: str = "orders") -> str:
    return "\n".join(
        [
            f"[stages.{name}]",
            f'input = "{given}"',
            'sql = "select body from input"',
            f'output = "out/{name}"',
            *lines,
            "",
        ]
    )


def test_stages_run_after_what_they_read_depend_on_and_come_after(load: Load) -> None:
    pipeline = load(
        stage("last", 'after = ["side"]', given="stage:first")
        + stage("side", 'dependencies = ["first"]')
        + stage("first")
        + stage("other")
    )
    assert steps(pipeline) == {"first": 1, "other": 1, "side": 2, "last": 3}
    assert parents(pipeline, pipeline.stages["last"]) == ["first", "side"]
    assert descendants(pipeline, "first") == {"first", "side", "last"}
    assert descendants(pipeline, "other") == {"other"}


@pytest.mark.parametrize(
    "given",
    [
        "out/first",
        "out/*",
        "*/first",
        "./out/../out/first",
        "out/*/segments/*.http",
        "out",
        "**/first",
        "o*",
        "out/{a,first}",
    ],
)
def test_output_that_is_read_by_its_path_counts_as_the_stage(load: Load, given: str) -> None:
    pipeline = load(stage("first") + stage("second", given=given).replace("out/second", "elsewhere"))
    assert parents(pipeline, pipeline.stages["second"]) == ["first"]


def test_output_below_a_folder_that_looks_like_a_glob_counts_as_the_stage(load: Load) -> None:
    pipeline = load(stage("first").replace("out/first", "out[1]/first") + stage("second", given="out[1]/*"))
    assert parents(pipeline, pipeline.stages["second"]) == ["first"]


@pytest.mark.parametrize("given", ["out/firs", "out/first/more", "out/[a-e]*", "other/*/*", "*/first"])
def test_path_that_does_not_lead_to_the_output_is_no_stage(load: Load, given: str) -> None:
    pipeline = load(stage("first").replace("out/first", "a/out/first") + stage("second", given=given))
    assert parents(pipeline, pipeline.stages["second"]) == []


def test_cycle_is_named(problems: Problems) -> None:
    [line] = problems(
        stage("one", given="stage:three") + stage("two", given="stage:one") + stage("three", 'after = ["two"]')
    )
    assert line.partition(": waits for itself: ")[2] in (
        "one -> two -> three -> one",
        "two -> three -> one -> two",
        "three -> one -> two -> three",
    )


@pytest.mark.parametrize("given", ["stage:one", "out/one", "out/*", "out"])
def test_stage_that_reads_its_own_output_waits_for_itself(problems: Problems, given: str) -> None:
    assert problems(stage("one", given=given)) == ["stage one: waits for itself: one -> one"]


def test_two_stages_with_one_output_are_refused(problems: Problems) -> None:
    text = stage("one") + stage("two").replace("out/two", "./out/one")
    assert problems(text) == ["stage two: output: ./out/one is the output of stage one already"]


def test_own_log_as_input_is_refused(problems: Problems) -> None:
    [line] = problems('[pipeline]\nlog = "buffers/_pipelines"\n' + stage("one", given="buffers/*"))
    assert line.startswith("stage one: input: the pipeline's own log is among it")


def test_directory_with_the_log_in_it_is_taken_without_the_log(load: Load) -> None:
    load('[pipeline]\nlog = "buffers/_pipelines"\n' + stage("one", given="buffers"))


def test_plan_is_drawn(load: Load) -> None:
    pipeline = load("""
[pipeline]
log = "/var/log/_pipelines"

[buffers]
customers = "buffers/customers"

[stages.alerts]
input = "out/clean"
function = "alerts:find"
output = "out/alerts"
dependencies = ["customers", "totals"]
after = ["archive"]

[stages.clean]
input = ["buffers/orders", "tenants/*/buffers/returns"]
function = "shop.cleaning:clean"
output = "out/clean"

[stages.totals]
input = "stage:clean"
sql = "select body from input"
output = "out/totals"

[stages.archive]
input = "buffers/orders"
sql = "select body from input"
output = "/archive/orders"
""")
    assert (
        draw(pipeline)
        == """\
pipeline shop
state    .shop-state
log      /var/log/_pipelines

1  buffers/orders --------------+
   tenants/*/buffers/returns ---+--> clean (shop.cleaning:clean) --> out/clean

1  buffers/orders -----------------> archive (SQL) --> /archive/orders

2  clean --------------------------> totals (SQL) --> out/totals

3  out/clean (clean) --------------> alerts (alerts:find) --> out/alerts
                                     with customers (buffers/customers), totals
                                     after archive
"""
    )
