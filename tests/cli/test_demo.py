"""hbuf demo: every step is real, works anywhere, and leaves nothing behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.conftest import Run

STEPS = ["hbuf-append", "hbuf-tail", "hbuf-grep", "hbuf-verify", "hbuf-pause", "tar cf", "tar xf", "hbuf-ls"]
STEPS += ["hbufd", "hbuf-append https://", "hbuf-tail https://", "hbuf-verify https://"]


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
    assert [line for line in done.lines if line.startswith("https://") and "/b/teas: intact: 2 messages" in line]
    assert "(exit code 65)" in done.lines
    assert "did not do what they should" not in done.out.decode()
    assert os.listdir(temporary) == []


def test_demo_works_without_a_network(run: Run) -> None:
    if not shutil.which("unshare") or run.real("unshare", "--net", "--map-root-user", "true").code:
        pytest.skip("this machine lets nobody leave its network")
    done = run.real("unshare", "--net", "--map-root-user", "hbuf", "demo", "--no-spark")
    assert (done.code, done.err) == (0, "")
    assert "cannot reach each other over a network" in done.out.decode(), "there is no loopback either"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_demo_asks_the_daemon_with_curl_and_shows_no_secret(run: Run) -> None:
    done = run.real("hbuf", "demo", "--no-spark", "--keep", "tour")
    assert (done.code, done.err) == (0, "")
    asked = [line for line in done.lines if line.startswith("$ curl")]
    assert len(asked) == 4
    assert all("-H @srv/admin.header" in line for line in asked)
    assert [line for line in done.lines if '"body":"order 4: green tea"' in line and '"seq":1' in line]
    assert [line for line in done.lines if '"state": "open"' in line]
    assert Path("tour/srv/admin.token").read_text().strip() not in done.out.decode()


def test_daemon_of_the_demo_has_ended_and_starts_again_in_a_directory_that_was_kept(run: Run) -> None:
    for total in (2, 4):
        done = run.real("hbuf", "demo", "--no-spark", "--keep", "tour")
        assert done.code == 0
        assert f"/b/teas: intact: {total} messages" in done.out.decode()
        with open("tour/srv/hbufd.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_demo_without_curl_says_so_and_goes_on_with_commands(run: Run, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "cat", "grep", "head", "tar"):
        (programs / name).symlink_to(shutil.which(name) or name)
    program = "import sys; from hbuf.cli.dispatch import main; main()"
    done = run.real(sys.executable, "-c", program, "demo", "--no-spark", env={"PATH": str(programs)})
    assert (done.code, done.err) == (0, "")
    text = done.out.decode()
    assert text.count("curl is not installed here") == 1
    assert len([line for line in done.lines if line.startswith("$ curl")]) == 4
    assert '"state": "open"' not in text
    assert "/b/teas: intact: 1 message," in text


def test_daemon_of_the_demo_that_does_not_start_is_told_of(run: Run) -> None:
    Path("tour/srv").mkdir(parents=True)
    Path("tour/srv/ca.pem").write_text("no certificate")
    Path("tour/srv/ca.key").write_text("no key")
    done = run.real("hbuf", "demo", "--no-spark", "--keep", "tour")
    assert done.code == 1
    assert "$ cat hbufd.log" in done.lines
    assert "ca.pem" in done.out.decode().partition("$ cat hbufd.log")[2]


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
