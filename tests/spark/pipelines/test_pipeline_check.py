from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from hbuf.spark.pipelines.check import check
from hbuf.spark.pipelines.problems import BadPipeline

if TYPE_CHECKING:
    from spark.pipelines.conftest import Fill, Load, Module

Refused = Callable[[str], BadPipeline]


@pytest.fixture
def refused(load: Load, spark: SparkSession) -> Refused:
    """refused(TOML): what check says to a file that is right in itself."""

    def check_text(text: str) -> BadPipeline:
        pipeline = load(text)
        with pytest.raises(BadPipeline) as caught:
            check(pipeline, spark)
        return caught.value

    return check_text


def sql_stage(name: str, sql: str, *lines: str, given: str = "orders") -> str:
    return "\n".join(
        [f"[stages.{name}]", f'input = "{given}"', f"sql = '''{sql}'''", f'output = "out/{name}"', *lines, ""]
    )


def function_stage(name: str, function: str, *lines: str) -> str:
    return "\n".join(
        [f"[stages.{name}]", 'input = "orders"', f'function = "{function}"', f'output = "out/{name}"', *lines, ""]
    )


def test_right_pipeline_passes_and_nothing_is_made(
    load: Load, fill: Fill, module: Module, spark: SparkSession, tmp_path: Path
) -> None:
    fill("orders", ["one"])
    fill("customers", ["somebody"])
    name = module("def clean(frame, customers, first):\n    return frame.select('key', 'body')\n")
    pipeline = load(
        '[buffers]\ncustomers = "customers"\n'
        + sql_stage("first", "select cast(count(*) as string) as body from input", 'output_mode = "update"')
        + function_stage("second", f"{name}:clean", 'dependencies = ["customers", "first"]')
        + sql_stage(
            "third",
            "select input.body, input.tags from input join second using (key)",
            'dependencies = ["second"]',
            given="stage:second",
        )
    )
    before = sorted(tmp_path.rglob("*"))
    functions = check(pipeline, spark)
    assert list(functions) == ["second"]
    assert [path for path in sorted(tmp_path.rglob("*")) if path not in before and "__pycache__" not in str(path)] == []


def test_every_stage_says_what_is_wrong_with_it(fill: Fill, module: Module, refused: Refused) -> None:
    fill("orders", ["one"])
    name = module(
        "def takes_nothing():\n    return None\n"
        "def returns_nothing(frame):\n    return None\n"
        "def breaks(frame):\n    raise ValueError('not today')\n"
        "def forgets(frame):\n    return frame.sparkSession.range(3).selectExpr('string(id) as body')\n"
        "NUMBER = 7\n"
    )
    broken = module("import no_such_module_anywhere\n")
    error = refused(
        function_stage("a", "no_such_module_at_all:run")
        + function_stage("b", f"{broken}:run")
        + function_stage("c", f"{name}:missing")
        + function_stage("d", f"{name}:NUMBER")
        + function_stage("e", f"{name}:takes_nothing")
        + function_stage("f", f"{name}:returns_nothing")
        + function_stage("g", f"{name}:breaks")
        + function_stage("h", f"{name}:forgets")
        + sql_stage("i", "select body form input where")
        + sql_stage("j", "select nothing from input")
        + sql_stage("k", "select body from elsewhere")
        + sql_stage("l", "select * from input")
        + sql_stage("m", "select key from input")
        + sql_stage("n", "select seq as body from input")
        + sql_stage("o", "select body from input order by seq")
        + sql_stage("p", "select body, string(count(*)) as key from input group by body")
        + sql_stage("q", "select body from input", 'input_options = {columns = "body,colour"}')
    )
    found = {problem.stage: problem.text for problem in error.problems}
    expected = {
        "a": "function: cannot import 'no_such_module_at_all': ModuleNotFoundError: No module named",
        "b": f"function: cannot import '{broken}': ModuleNotFoundError: No module named 'no_such_module_anywhere'",
        "c": f"function: there is no function 'missing' in '{name}'",
        "d": f"function: there is no function 'NUMBER' in '{name}'",
        "e": f"function: '{name}:takes_nothing' cannot be called with (input): too many positional arguments",
        "f": f"function: '{name}:returns_nothing' returned NoneType, not a DataFrame",
        "g": "ValueError: not today",
        "h": "what it makes does not come from its input",
        "i": "[PARSE_SYNTAX_ERROR] Syntax error at or near",
        "j": "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column",
        "k": "[TABLE_OR_VIEW_NOT_FOUND] The table or view `elsewhere` cannot be found",
        "l": "there is no place for columns tenant, buffer, seq, time, id, erased, encrypted",
        "m": "there is no column body",
        "n": "column body is int64, and must be binary or string",
        "o": "Sorting is not supported on streaming DataFrames",
        "p": "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION]",
        "q": "there is no column 'colour'",
    }
    assert list(found) == list(expected)
    assert {stage: found[stage][: len(start)] for stage, start in expected.items()} == expected
    assert error.exit_code == 2
    assert not any("\n" in text for text in found.values())


def test_two_buffers_of_one_name_are_not_one_input(fill: Fill, refused: Refused, tmp_path: Path) -> None:
    fill("orders", ["one"])
    fill("old/orders", ["two"])
    error = refused(sql_stage("a", "select body from input").replace('"orders"', '["orders", "old/*"]'))
    told = f"stage a: input: {tmp_path}/orders and {tmp_path}/old/orders are both called default/orders"
    assert [str(problem) for problem in error.problems] == [told]


def test_missing_inputs_keys_and_dependencies_are_66(fill: Fill, refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    fill("orders", ["one"])
    error = refused(
        '[buffers]\ncustomers = "customers"\n'
        + sql_stage("a", "select body from input", given="nowhere")
        + sql_stage("b", "select body from input", given="no*where")
        + sql_stage("c", "select body from input", given="photos")
        + sql_stage("d", "select body from input", 'dependencies = ["customers"]')
        + sql_stage("e", "select body from input", 'output_options = {sign = "no.key"}')
    )
    assert [str(problem) for problem in error.problems] == [
        "stage a: input: nowhere: there is no such buffer",
        "stage b: input: no*where: there is no such buffer",
        "stage c: input: photos: there is no such buffer",
        "stage d: dependencies: customers: customers: there is no such buffer",
        f"stage e: output_options.sign: {tmp_path}/no.key: there is no such file",
    ]
    assert error.exit_code == 66
