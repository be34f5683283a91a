"""The example project does what its README says: the commands of the page, in a copy of the directory."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

from pyspark.sql import SparkSession

from hbuf import library

from .pages import ROOT, blocks_of, needs_programs, run_shell

SHOP = ROOT / "contrib" / "examples" / "shop"
PAGE = (SHOP / "README.md").read_text()


@needs_programs
def test_example_runs_from_messages_to_its_report(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(SHOP, tmp_path / "shop"))
    appended, ran, read, reported = (run_shell(block, copy) for _, block in blocks_of(PAGE, "sh"))
    assert appended == ""
    assert [line.split("\t")[:6] for line in ran.splitlines()[-3:]] == [
        ["parsed", "done", "default/orders", "6", "0", "5"],
        ["named", "done", "default/parsed", "5", "0", "4"],
        ["refused", "done", "default/orders", "6", "0", "5"],
    ]
    assert "this is not JSON\n" in read
    assert "buffers/named: intact: 4 messages, " in read
    with library.open(copy / "buffers" / "named") as named:
        assert sorted((message.key, message.body) for message in named.read()) == [
            ("17", b'{"name":"Anna","total":30}'),
            ("17", b'{"name":"Anna","total":42}'),
            ("18", b'{"name":"Bo","total":7}'),
            ("99", b'{"total":1}'),
        ]
    [(_, expected)] = blocks_of(PAGE, "text")
    assert reported.strip() == expected.strip()
    # The page on Spark shows the same pipeline, and how it is drawn.
    drawn = ran[: ran.index("parsed\tdone")]
    assert f"```\n{drawn}```\n" in (ROOT / "docs" / "spark.md").read_text()


def test_erased_order_is_no_order_that_was_refused(spark: SparkSession) -> None:
    query = tomllib.loads((SHOP / "shop.toml").read_text())["stages"]["refused"]["sql"]
    orders = "select cast(null as binary) as body, true as erased union all select binary('no order'), false"
    made = spark.newSession().sql(f"with input as ({orders}) {query}")
    assert [bytes(row.body) for row in made.collect()] == [b"no order"]


def test_page_on_spark_shows_the_files_of_the_example() -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    assert blocks_of(page, "toml") == [("toml", (SHOP / "shop.toml").read_text())]
    functions = (SHOP / "stages.py").read_text().partition("\n\n")[2]
    assert ("python", functions) in blocks_of(page, "python")
