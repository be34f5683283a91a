"""What docs/spark.md tells a user to do works as it is printed, block after block, and prints what the page says.

The page's `/srv` is a temporary directory here, and `spark` is the session of these tests. Blocks that are marked `py`,
or not at all, are not run: they start a session of their own, or need what tests do not install.
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
from hbuf.errors import UsageError
from hbuf.ops import key
from hbuf.ops.compress import compress
from hbuf.spark.options import TYPES, parse_read_options

from .pages import ROOT, blocks_of, needs_programs, run_shell

PAGE = (ROOT / "docs" / "spark.md").read_text()
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


def run_python(code: str, names: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs/spark.md", "exec"), names)
    return printed.getvalue()


@needs_programs
def test_blocks_of_the_page_run_and_print_what_the_page_says(session: SparkSession, srv: Path) -> None:
    blocks = blocks_of(PAGE, "python", "sh", "text")
    assert len(blocks) > 40
    names: dict[str, Any] = {"spark": session}
    printed = ""
    for kind, text in blocks:
        code = text.replace("/srv/", f"{srv}/")
        if kind == "text":
            assert printed.strip() == text.strip()
        else:
            printed = run_python(code, names) if kind == "python" else run_shell(code, srv)


def test_text_reads_compressed_segments_as_the_page_says(spark: SparkSession, tmp_path: Path) -> None:
    with library.create(tmp_path / "orders", segment_messages="2") as orders:
        for number in range(5):
            orders.append(b"order %d" % number)
    compress(str(tmp_path / "orders"), timeout_seconds=30)
    assert list((tmp_path / "orders").glob("segments/*.http.zst"))
    lines = spark.read.text(f"{tmp_path}/orders/segments/*.http*", lineSep="\r\n")
    assert lines.where("value like 'POST /b/% HTTP/1.1'").count() == 5


def names_below(heading: str) -> set[str]:
    """The names in the first column of the first table of a section."""
    table = PAGE[PAGE.index(f"\n{heading}\n") :].split("| --- |", 1)[1].split("\n\n", 1)[0]
    return set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def test_tables_of_reading_name_every_column_and_option() -> None:
    assert names_below("### Columns") == TYPES.keys() - {"_corrupt_record"}
    with pytest.raises(UsageError) as raised:
        parse_read_options({"no-such-option": ""})
    known = set((raised.value.hint or "").removeprefix("there are ").split(", "))
    # With a list of paths, Spark itself makes another option of them.
    assert {name.lower() for name in names_below("### Options")} == known - {"paths"}
