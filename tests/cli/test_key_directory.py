"""Where keys are looked up by name: where HBUF_KEYS says, else among the user's own settings, else those of root."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hbuf.cli.key_directory import key_directory

if TYPE_CHECKING:
    from cli.conftest import Run

VARIABLES = ("HBUF_KEYS", "XDG_CONFIG_HOME", "HOME")
# Root becomes somebody else, when all is imported: the others cannot read what root's tests run.
AS_SOMEBODY = """
import os
from hbuf.cli.key_directory import key_directory
from hbuf.errors import UsageError
if os.geteuid() == 0:
    os.setuid(12345)
try:
    print(key_directory())
except UsageError as error:
    print("refused:", error.message)
"""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HBUF_KEYS": "/keys", "XDG_CONFIG_HOME": "/settings", "HOME": "/home/me"}, "/keys"),
        ({"HBUF_KEYS": "my/keys", "HOME": "/home/me"}, "my/keys"),
        ({"XDG_CONFIG_HOME": "/settings", "HOME": "/home/me"}, "/settings/hbuf/keys"),
        ({"HBUF_KEYS": "", "XDG_CONFIG_HOME": "/settings", "HOME": "/home/me"}, "/settings/hbuf/keys"),
        ({"HOME": "/home/me"}, "/home/me/.config/hbuf/keys"),
        ({"XDG_CONFIG_HOME": "", "HOME": "/home/me"}, "/home/me/.config/hbuf/keys"),
        ({"XDG_CONFIG_HOME": "settings", "HOME": "/home/me"}, "/home/me/.config/hbuf/keys"),
        ({"HOME": "home"}, "refused: there is no home directory to look for keys in"),
    ],
    ids=str,
)
def test_keys_of_a_user_are_where_the_environment_says(environment: dict[str, str], expected: str) -> None:
    others = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", AS_SOMEBODY], env=others | environment, capture_output=True, text=True, timeout=30
    )
    assert (done.stdout, done.stderr) == (f"{expected}\n", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is root")
def test_keys_of_root_are_those_of_the_machine_unless_it_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/settings")
    monkeypatch.setenv("HBUF_KEYS", "")
    assert key_directory() == Path("/etc/hbuf/keys")
    monkeypatch.delenv("HBUF_KEYS")
    assert key_directory() == Path("/etc/hbuf/keys")
    monkeypatch.setenv("HBUF_KEYS", "/keys")
    assert key_directory() == Path("/keys")


@pytest.mark.skipif(os.geteuid() == 0, reason="root has its keys elsewhere")
def test_keys_of_a_user_are_made_among_the_settings(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HBUF_KEYS")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert run("hbuf-key", "new", "audit", "--kind", "sign") == (0, b"", "")
    assert os.listdir("home/.config/hbuf/keys") == ["audit.key"]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    assert run("hbuf-key", "new", "other", "--kind", "sign") == (0, b"", "")
    assert os.listdir("settings/hbuf/keys") == ["other.key"]


def test_relative_key_directory_is_that_of_where_somebody_works(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HBUF_KEYS", "mine")
    assert run("hbuf-key", "new", "audit", "--kind", "sign") == (0, b"", "")
    assert os.listdir("mine") == ["audit.key"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert run("hbuf-key", "list") == (0, b"", "")
