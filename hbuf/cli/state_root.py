"""Where the daemon keeps everything, unless it is told another place."""

from __future__ import annotations

import os
from pathlib import Path


def state_root() -> Path:
    """`/var/lib/hbuf` for root, and `hbuf` in `XDG_STATE_HOME` for others."""
    if os.geteuid() == 0:
        return Path("/var/lib/hbuf")
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if os.path.isabs(state) else Path(os.path.expanduser("~/.local/state"))
    return base / "hbuf"
