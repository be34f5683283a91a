"""Where the daemon's root is looked for: root's own place, else among a user's own state."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hbuf.store.state_root import state_root

VARIABLES = ("XDG_STATE_HOME", "HOME")
# Root becomes somebody else, when all is imported: the others cannot read what root's tests run.
AS_SOMEBODY = """
import os
from hbuf.store.state_root import state_root
from hbuf.errors import UsageError
if os.geteuid() == 0:
    os.setuid(12345)
try:
    print(state_root(os.environ))
except UsageError as error:
    print("refused:", error.message)
"""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/me"}, "/state/hbuf"),
        ({"HOME": "/home/me"}, "/home/me/.local/state/hbuf"),
        ({"XDG_STATE_HOME": "", "HOME": "/home/me"}, "/home/me/.local/state/hbuf"),
        ({"XDG_STATE_HOME": "state", "HOME": "/home/me"}, "/home/me/.local/state/hbuf"),
        ({"HOME": "home"}, "refused: there is no home directory to keep buffers in"),
    ],
    ids=str,
)
def test_root_of_a_user_is_where_the_environment_says(environment: dict[str, str], expected: str) -> None:
    others = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", AS_SOMEBODY], env=others | environment, capture_output=True, text=True, timeout=30
    )
    assert (done.stdout, done.stderr) == (f"{expected}\n", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is root")
def test_root_of_root_is_that_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert state_root(os.environ) == Path("/var/lib/hbuf")
