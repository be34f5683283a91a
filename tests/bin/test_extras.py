"""What an extra needs is added to an environment that is right, once, and to the same one for all."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from .stub_checkout import Checkout


class Extras:
    """A checkout whose programs run, and what set_up.py does for its extras."""

    def __init__(self, checkout: Checkout) -> None:
        self.checkout = checkout
        self.environment = checkout.root / ".venv"
        checkout.run()
        self.fetched()

    def command(self, extra: str) -> list[str]:
        python = str(self.checkout.root.parent / "tools/python3")
        root = self.checkout.root
        return [os.path.realpath(python), "-E", "-P", f"{root}/bin/set_up.py", str(root), str(self.environment), extra]

    def add(self, extra: str) -> subprocess.CompletedProcess[str]:
        return self.checkout.run(*self.command(extra))

    def fetched(self) -> list[str]:
        """What pip was asked for since the last time."""
        lines = self.checkout.pip_log.read_text().splitlines()
        self.checkout.pip_log.write_text("")
        return [line.partition(" install ")[2] for line in lines if line.startswith("ended")]

    def test_needs(self, *packages: str) -> None:
        pyproject = self.checkout.root / "pyproject.toml"
        lines = [f"test = {list(packages)}" if line.startswith("test") else line for line in text_lines(pyproject)]
        pyproject.write_text("\n".join(lines))


def text_lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.fixture
def extras(needy: Checkout) -> Extras:
    return Extras(needy)


def test_an_extra_is_added_once_and_leaves_what_is_there(extras: Extras) -> None:
    kept = extras.environment / "kept"
    kept.touch()
    first, second = extras.add("spark"), extras.add("spark")
    assert (first.returncode, second.returncode, second.stderr) == (0, 0, "")
    assert first.stderr == (
        f"hbuf: adding what 'spark' needs to {extras.environment} and fetching about 530 MB of packages from PyPI\n"
    )
    assert extras.fetched() == ["something pyspark"]
    assert kept.exists()
    assert extras.checkout.can_run_without_set_up()


def test_an_extra_that_another_has_in_it_fetches_nothing(extras: Extras) -> None:
    extras.test_needs("pytest", "pyspark")
    assert extras.add("test").returncode == 0
    assert extras.fetched() == ["something pytest pyspark"]
    added = extras.add("spark")
    assert (added.returncode, added.stderr, extras.fetched()) == (0, "", [])


def test_two_extras_live_in_one_environment(extras: Extras) -> None:
    for extra in ("spark", "java", "test"):
        assert extras.add(extra).returncode == 0
    extras.fetched()
    for extra in ("test", "spark", "java"):
        assert extras.add(extra).stderr == ""
    assert extras.fetched() == []


def test_an_extra_that_changed_is_made_again_from_nothing(extras: Extras) -> None:
    extras.add("spark")
    extras.add("test")
    dropped = extras.environment / "dropped"
    dropped.touch()
    extras.test_needs("pytest")
    assert "something it was made from has changed" in extras.add("test").stderr
    assert not dropped.exists()
    extras.fetched()
    assert "adding what 'spark' needs" in extras.add("spark").stderr
    assert extras.fetched() == ["something pyspark"]


def test_without_a_network_an_extra_is_one_line_more_and_all_else_goes_on(extras: Extras) -> None:
    extras.checkout.env["PIP_STUB"] = "echo 'connection broken by NewConnectionError'; exit 1"
    failed = extras.add("spark")
    assert failed.returncode == 69
    assert [line.startswith("hbuf: ") for line in failed.stderr.splitlines()] == [True, True]
    assert extras.checkout.can_run_without_set_up()
    extras.checkout.env["PIP_STUB"] = ""
    assert extras.add("spark").returncode == 0


def test_of_two_that_add_an_extra_one_fetches_and_one_waits(extras: Extras) -> None:
    extras.checkout.env["PIP_STUB"] = "sleep 0.5"
    both = [
        subprocess.Popen(extras.command("spark"), env=extras.checkout.env, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=30)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted("waiting for another run" in lines for lines in said) == [False, True]
    assert extras.fetched() == ["something pyspark"]


def test_an_extra_killed_half_way_is_added_again_and_the_programs_run_meanwhile(extras: Extras) -> None:
    extras.checkout.env["PIP_STUB"] = "sleep 60"
    process = subprocess.Popen(extras.command("spark"), env=extras.checkout.env, start_new_session=True)
    deadline = time.monotonic() + 30
    while "started" not in extras.checkout.pip_log.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert extras.checkout.can_run_without_set_up()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    extras.checkout.env["PIP_STUB"] = ""
    assert "adding what 'spark' needs" in extras.add("spark").stderr
    assert shutil.which("python", path=extras.environment / "bin")
