"""The Python in docs/spark.md runs as it is printed, block after block, and prints what the page says it does.

The page's `/srv` is a temporary directory here, and `spark` is the session of these tests.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from hbuf import library
from hbuf.ops import key

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SETTINGS = ("spark.sql.python.filterPushdown.enabled", "spark.sql.session.timeZone")


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The page changes some settings. They are as before when it was read, and no view is left."""
    before = {name: spark.conf.get(name) for name in SETTINGS}
    yield spark
    for name, value in before.items():
        assert value is not None
        spark.conf.set(name, value)
    for table in spark.catalog.listTables():
        spark.catalog.dropTempView(table.name)


@pytest.fixture
def srv(tmp_path: Path) -> Path:
    """What the page takes for granted: a key, and a buffer that is encrypted to it."""
    keys = tmp_path / "keys"
    key.new("clinic", "encrypt", keys)
    (tmp_path / "clinic").mkdir()
    with library.create(tmp_path / "clinic" / "results", encrypt_to=[key.export("clinic", keys)]) as results:
        results.append(b"blood type 0", key="patient-7")
    return tmp_path


def blocks_of(page: str) -> list[tuple[str, str | None]]:
    """Each block of Python with what it prints, where the page says so."""
    found = BLOCK.findall(page)
    printed = [text if kind == "text" else None for kind, text in found[1:]] + [None]
    return [(text, after) for (kind, text), after in zip(found, printed, strict=True) if kind == "python"]


def run(code: str, names: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(PAGE), "exec"), names)
    return printed.getvalue()


def test_python_of_the_page_runs_and_prints_what_the_page_says(session: SparkSession, srv: Path) -> None:
    blocks = blocks_of(PAGE.read_text())
    assert len(blocks) > 20
    names: dict[str, Any] = {"spark": session}
    for code, expected in blocks:
        printed = run(code.replace("/srv/", f"{srv}/"), names)
        if expected is not None:
            assert printed.strip() == expected.strip(), code


def test_a_block_goes_with_the_text_that_follows_it() -> None:
    page = "```python\n1\n```\n\n```text\none\n```\n\n```python\n2\n```\n\n```sh\nno\n```\n\n```python\n3\n```\n"
    assert blocks_of(page) == [("1\n", "one\n"), ("2\n", None), ("3\n", None)]
