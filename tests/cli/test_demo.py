"""hbuf demo: every step is real, works anywhere, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.conftest import Run

STEPS = ["hbuf-append", "hbuf-tail", "hbuf-grep", "hbuf-verify", "hbuf-pause", "tar cf", "tar xf", "hbuf-ls"]


def test_demo_shows_each_step_and_leaves_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = run.real("hbuf", "demo", "--no-spark", env={"TMPDIR": str(temporary)})
    assert (done.code, done.err) == (0, "")
    commands = [line for line in done.lines if line.startswith("$ ")]
    for step in STEPS:
        assert [line for line in commands if step in line], step
    assert "order 2: milk" in done.lines
    assert "2:order 2: milk" in done.lines
    verdicts = [line for line in done.lines if "intact: 3 messages" in line.lower()]
    assert ["NOT INTACT" in line for line in verdicts] == [False, True, False]
    assert "(exit code 65)" in done.lines
    assert "did not do what they should" not in done.out.decode()
    assert os.listdir(temporary) == []


def test_demo_works_without_a_network(run: Run) -> None:
    if not shutil.which("unshare") or run.real("unshare", "--net", "--map-root-user", "true").code:
        pytest.skip("this machine lets nobody leave its network")
    done = run.real("unshare", "--net", "--map-root-user", "hbuf", "demo", "--no-spark")
    assert (done.code, done.err) == (0, "")


def test_demo_can_be_kept_and_looked_at(run: Run) -> None:
    done = run.real("hbuf", "demo", "--no-spark", "--keep", "some/tour")
    assert (done.code, done.err) == (0, "")
    assert Path("some/tour/backup.tar").is_file()
    assert run("hbuf-tail", "some/tour/orders") == (0, b"order 1: tea\norder 2: milk\norder 3: sugar\n", "")
    assert run("hbuf-verify", "--quiet", "some/tour/orders").code == 0


def test_demo_works_in_a_directory_with_modules_and_blanks_in_its_names(run: Run) -> None:
    """Neither a module that happens to lie there nor a blank in a path may lead it astray."""
    place = Path("a place")
    place.mkdir()
    for module in ("hbuf.py", "json.py", "typer.py"):
        (place / module).write_text("raise SystemExit('the wrong module')\n")
    done = run.shell("cd 'a place' && TMPDIR=$PWD hbuf demo --no-spark")
    assert (done.code, done.err) == (0, "")
    assert len(list(place.iterdir())) == 3
