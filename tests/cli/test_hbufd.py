"""hbufd as a command: what it makes of its settings. How it serves is in tests/daemon."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.conftest import Run


@pytest.fixture(autouse=True)
def _without_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HBUF_CONFIG", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_settings_in_effect_are_printed_and_read_back_as_the_same(run: Run) -> None:
    printed = run("hbufd", "--print-config", "--root", "srv", "--listen", "[::1]:1", "--listen", ":2", "--unix", "s")
    assert (printed.code, printed.err) == (0, "")
    values = tomllib.loads(printed.out.decode())
    assert values["root"] == str(Path("srv").absolute())
    assert values["listen"] == ["[::1]:1", "*:2"]
    assert values["unix"] == str(Path("s").absolute())
    assert values["limits"]["message_bytes"] == "64MiB"
    Path("printed.toml").write_bytes(printed.out)
    assert run("hbufd", "--print-config", "--config", "printed.toml") == printed
    assert not Path("srv").exists()


def test_settings_that_are_right_are_silent(run: Run) -> None:
    Path("hbufd.toml").write_text('root = "srv"\n[limits]\nconnections = 7\n')
    assert run("hbufd", "--check-config", "--config", "hbufd.toml") == (0, b"", "")
    assert run("hbufd", "--check-config") == (0, b"", "")


def test_every_problem_of_the_settings_is_a_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("hbufd.toml").write_text("rot = 1\n[limits]\nconnections = 0\n[log]\nformat = 'xml'\n")
    checked = run("hbufd", "--check-config", "--config", "hbufd.toml")
    assert (checked.code, checked.out) == (2, b"")
    assert [line.split(": ")[1] for line in checked.err.splitlines()] == ["rot", "limits.connections", "log.format"]
    started = run("hbufd", "--config", "hbufd.toml")
    assert (started.code, started.out) == (2, b"")
    assert started.err.splitlines() == [
        "hbufd: rot: there is no such setting (and 2 more)",
        "hint: hbufd --check-config tells all",
    ]


@pytest.mark.parametrize("listen", ["here", "127.0.0.1", "127.0.0.1:99999", ""])
def test_address_that_is_none_is_2(run: Run, listen: str) -> None:
    done = run("hbufd", "--root", "srv", "--listen", listen)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("hbufd: --listen: ")
    assert not Path("srv").exists()


def test_root_that_is_a_file_is_one_line(run: Run) -> None:
    Path("srv").write_text("mine")
    done = run("hbufd", "--root", "srv", "--listen", "127.0.0.1:0")
    assert done.code == 73
    assert len(done.err.splitlines()) == 1
    assert Path("srv").read_text() == "mine"
