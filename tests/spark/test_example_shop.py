"""The example project does what its README says: the commands of the page, in a copy of the directory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hbuf import library

ROOT = Path(__file__).parents[2]
SHOP = ROOT / "contrib" / "examples" / "shop"
PAGE = (SHOP / "README.md").read_text()
TIMEOUT_SECONDS = 300  # several Sparks are started, one after the other

pytestmark = pytest.mark.skipif(
    shutil.which("hbuf-pipeline", path=Path(sys.executable).parent) is None, reason="hbuf's programs are not installed"
)


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def run(script: str, directory: Path) -> str:
    done = subprocess.run(
        ["/bin/sh", "-ec", script],
        cwd=directory,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{script}\n{done.stdout}"
    return done.stdout


def test_example_runs_from_messages_to_its_report(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(SHOP, tmp_path / "shop"))
    appended, ran, read, reported = (run(block, copy) for block in blocks(PAGE, "sh"))
    assert appended == ""
    assert "\n1  buffers/orders ------> parsed (stages:parse) --> buffers/parsed\n" in ran
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
    [expected] = blocks(PAGE, "text")
    assert reported.strip() == expected.strip()


def test_the_page_on_spark_shows_the_files_of_the_example() -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    assert blocks(page, "toml") == [(SHOP / "shop.toml").read_text()]
    assert (SHOP / "stages.py").read_text().partition("\n\n")[2] in page
