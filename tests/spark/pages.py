"""Pages whose blocks are run: what is in them, and a shell that has this Python's programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent
TIMEOUT_SECONDS = 300  # commands may start a Spark each, one after the other

needs_programs = pytest.mark.skipif(
    shutil.which("hbuf-pipeline", path=PROGRAMS) is None, reason="hbuf's programs are not installed: run bin/test"
)


def blocks_of(page: str, *kinds: str) -> list[tuple[str, str]]:
    """The blocks of these kinds, each with its kind, in their order."""
    return re.findall(rf"^```({'|'.join(kinds)})\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def run_shell(script: str, directory: Path) -> str:
    """Runs lines as a user would, and stops at the first that fails. Returns what was printed."""
    done = subprocess.run(
        ["/bin/sh", "-ec", script],
        cwd=directory,
        env={**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{script}\n{done.stdout}"
    return done.stdout
