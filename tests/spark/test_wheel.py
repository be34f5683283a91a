"""The built wheel, installed: Spark finds `format("hbuf")` in it by itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hbuf

REPOSITORY = Path(__file__).parents[2]
BASE_PYTHON = os.path.realpath(sys.executable)
PARTS = ("hbuf", "pyspark_hbuf", "man", "pyproject.toml", "README.md", "LICENSE")

JOB = """\
import sys

import hbuf
import pyspark_hbuf
from hbuf.spark.session import local_session

for module in (hbuf, pyspark_hbuf):
    assert module.__file__.startswith(sys.argv[2]), module.__file__
spark = local_session("the wheel")
for row in spark.read.format("hbuf").load(sys.argv[1]).orderBy("seq").collect():
    print(row.buffer, row.seq, bytes(row.body).decode())
"""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Built from a copy: a build leaves files behind."""
    if subprocess.run([BASE_PYTHON, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("this Python has no pip")
    copy = tmp_path / "checkout"
    copy.mkdir()
    for part in PARTS:
        source = REPOSITORY / part
        if source.is_dir():
            shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    pip("wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(copy))
    [built] = tmp_path.glob("hbuf-*.whl")
    return built


def pip(*arguments: str) -> None:
    command = [BASE_PYTHON, "-E", "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    if "connection broken" in done.stderr.lower():
        pytest.skip("the tools that build a wheel cannot be fetched")
    assert done.returncode == 0, done.stderr


def test_spark_finds_hbuf_in_the_installed_wheel_without_registration(wheel: Path, tmp_path: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"pyspark_hbuf/__init__.py", "hbuf/spark/log4j2.properties", "hbuf/py.typed"} <= set(names)
    target = tmp_path / "installed"
    pip("install", "--no-deps", "--target", str(target), str(wheel))
    with hbuf.create(tmp_path / "orders") as buffer:
        buffer.append_many([b"tea", b"milk"])
    job = tmp_path / "job.py"
    job.write_text(JOB)
    done = subprocess.run(
        [sys.executable, job, tmp_path / "orders", target],
        env=os.environ | {"PYTHONPATH": str(target)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "orders 1 tea\norders 2 milk\n", "")
