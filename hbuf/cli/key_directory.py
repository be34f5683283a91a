"""Where keys are looked up by name."""

from __future__ import annotations

import os
from pathlib import Path

from hbuf.errors import UsageError


def key_directory() -> Path:
    """`HBUF_KEYS`; else `/etc/hbuf/keys` for root, and `hbuf/keys` among the user's own settings for others."""
    chosen = os.environ.get("HBUF_KEYS")
    if chosen:
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/etc/hbuf/keys")
    settings = os.environ.get("XDG_CONFIG_HOME", "")
    # A path that is not absolute counts as not set, as the XDG base directory specification has it.
    base = Path(settings) if os.path.isabs(settings) else Path(os.path.expanduser("~/.config"))
    if not base.is_absolute():
        raise UsageError("there is no home directory to look for keys in", hint="HBUF_KEYS names another place")
    return base / "hbuf" / "keys"
