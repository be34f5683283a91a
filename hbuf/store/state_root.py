"""Where the daemon keeps everything when nobody says another place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hbuf.errors import UsageError


def state_root(environment: Mapping[str, str]) -> Path:
    """`/var/lib/hbuf` for root; for others `$XDG_STATE_HOME/hbuf`, which is `~/.local/state/hbuf` if not set."""
    if os.geteuid() == 0:
        return Path("/var/lib/hbuf")
    state = environment.get("XDG_STATE_HOME", "")
    # A path that is not absolute counts as not set, as the XDG base directory specification has it.
    base = Path(state) if os.path.isabs(state) else Path(os.path.expanduser("~/.local/state"))
    if not base.is_absolute():
        raise UsageError("there is no home directory to keep buffers in", hint="--root names another place")
    return base / "hbuf"
