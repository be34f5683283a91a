from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hbuf.errors import NotFound
from hbuf.spark.pipelines.file import load_pipeline

if TYPE_CHECKING:
    from spark.pipelines.conftest import Load, Problems

STAGE = """
[stages.clean]
input = "orders"
sql = "select body from input"
output = "out/clean"
"""


def test_everything_that_can_stand_in_a_file_is_read(load: Load, tmp_path: Path) -> None:
    pipeline = load("""
[pipeline]
name = "shop"
state = "/var/state/shop"
log = "logs/_pipelines"
retries = 5
parallel = 4

[buffers]
customers = "buffers/customers"

[spark]
master = "local[2]"
sql.shuffle.partitions = 8
sql.ansi.enabled = true

[stages.clean]
input = ["orders", "tenants/*/buffers/*"]
function = "clean:clean"
output = "out/clean"
input_options = {maxRowsPerTrigger = 100, failOnDataLoss = false, identity = "keys/read.key"}
output_options = {sign = "/keys/sign.key", timeout = "1m"}

[stages.totals]
input = "stage:clean"
sql = "select body from input"
output = "out/totals"
output_mode = "update"
after = ["clean"]
dependencies = ["customers", "clean"]
""")
    assert (pipeline.name, pipeline.retries, pipeline.parallel) == ("shop", 5, 4)
    assert (pipeline.state, pipeline.log) == (Path("/var/state/shop"), tmp_path / "logs/_pipelines")
    assert pipeline.spark == {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.ansi.enabled": "true",
    }
    clean, totals = pipeline.stages.values()
    assert [one.path for one in clean.inputs] == [f"{tmp_path}/orders", f"{tmp_path}/tenants/*/buffers/*"]
    assert (clean.function, clean.sql, clean.output) == ("clean:clean", None, tmp_path / "out/clean")
    assert clean.input_options == {
        "maxRowsPerTrigger": "100",
        "failOnDataLoss": "false",
        "identity": f"{tmp_path}/keys/read.key",
    }
    assert clean.output_options == {"sign": "/keys/sign.key", "timeout": "1m"}
    assert [(one.stage, one.path) for one in totals.inputs] == [("clean", f"{tmp_path}/out/clean")]
    assert (totals.after, totals.dependencies, totals.output_mode) == (("clean",), ("customers", "clean"), "update")
    assert pipeline.dependency_path("customers") == f"{tmp_path}/buffers/customers"
    assert pipeline.dependency_path("clean") == f"{tmp_path}/out/clean"


def test_what_is_not_said_has_a_default_beside_the_file(load: Load, tmp_path: Path) -> None:
    pipeline = load(STAGE)
    assert (pipeline.name, pipeline.retries, pipeline.parallel) == ("shop", 3, 2)
    assert (pipeline.state, pipeline.log) == (tmp_path / ".shop-state", tmp_path / ".shop-state/_pipelines")


def test_paths_are_relative_to_the_file_wherever_one_is(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(STAGE)
    monkeypatch.chdir("/")
    assert load_pipeline(str(tmp_path / "shop.toml")).stages["clean"].output == tmp_path / "out/clean"


def test_all_faults_are_told_and_not_only_the_first(problems: Problems) -> None:
    found = problems("""
colour = "red"

[pipeline]
name = "Über"
retries = -1
speed = 3

[stages.Clean]
input = "orders"
output = "out/clean"

[stages.both]
function = "clean"
sql = "select 1"
output = "out/Both"
after = ["nobody"]
dependencies = ["nothing"]
input = ["stage:nowhere"]
input_options = {color = "red"}
output_mode = "complete"

[stages.last]
input = 7
sql = ""
""")
    assert found == [
        "there is no 'colour' here: pipeline, buffers, stages, spark",
        "there is no 'pipeline.speed' here: name, state, log, retries, parallel",
        "pipeline.name: 'Über' cannot be a pipeline's name",
        "retries is not a number from 0 on",
        "stage Clean: 'Clean' cannot be a stage's name",
        "stage Clean: needs a function or sql",
        "stage both: needs a function or sql, and not both",
        "stage both: function: 'clean' is not module:function",
        "stage both: output_mode: 'complete' is not append or update",
        "stage both: output: 'Both' cannot be a buffer's name",
        "stage both: input: there is no stage 'nowhere'",
        "stage both: after: there is no stage 'nobody'",
        "stage both: dependencies: there is no stage or buffer 'nothing'",
        "stage both: there is no 'input_options.color' here: columns, failOnDataLoss, from, identity, key, "
        "maxRowsPerTrigger, mode, tag",
        "stage last: sql is empty",
        "stage last: output is missing",
        "stage last: input is not a list of texts",
        "stage last: input is missing",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "there are no stages"),
        ("stages = 3", "stages is not a table"),
        ("[stages]\nclean = 3", "stage clean: is not a table"),
        ("[pipeline]\nname = 3" + STAGE, "name is not text"),
        ("[pipeline]\nretries = true" + STAGE, "retries is not a number from 0 on"),
        ("[pipeline]\nstate = ''" + STAGE, "state is empty"),
        ("[buffers]\nclean = 'other'" + STAGE, "stage clean: 'clean' is also the name of a buffer"),
        ("[buffers]\ninput = 'other'" + STAGE, "buffers: 'input' cannot be a name here"),
        ("[spark]\nlist = [1]" + STAGE, "spark.list is neither text nor a number"),
        (STAGE.replace("orders", "https://host/b/orders"), "stage clean: 'https://host/b/orders' is a URL"),
        (STAGE.replace("out/clean", "out/_clean"), "stage clean: output: '_clean' cannot be a buffer's name"),
        (STAGE.replace('"orders"', '["orders", 3]'), "stage clean: input is not a list of texts"),
        (STAGE + "input_options = {from = 'noon'}", "stage clean: input_options.from: 'noon' is not a place"),
        (STAGE + "output_options = {timeout = 'soon'}", "stage clean: output_options.timeout: 'soon' is not a length"),
    ],
)
def test_fault_is_told_in_one_line(problems: Problems, text: str, line: str) -> None:
    found = problems(text)
    assert found[0].startswith(line)
    assert not any("\n" in each for each in found)


def test_what_is_no_toml_is_told_with_its_place(problems: Problems) -> None:
    [line] = problems("[stages]\nclean = ?")
    assert line.startswith("is not TOML: ")
    assert "line 2" in line


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_bytes(b"\xff")
    with pytest.raises(Exception, match=r"shop\.toml: is not UTF-8"):
        load_pipeline(str(tmp_path / "shop.toml"))


def test_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="No such file"):
        load_pipeline(str(tmp_path / "shop.toml"))
