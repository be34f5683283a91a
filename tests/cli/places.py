"""The same test of a command with a directory and with a URL.

A test that is marked `over_https` runs twice. The second time it stands in the directory where a daemon keeps the
buffers of a tenant of this test alone: what it makes there and looks at are the daemon's buffers, and commands are
given their URLs instead of their names. What they say of a URL is compared as if they had said it of the name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import hbuf

_TAKE_URLS = {
    f"hbuf-{verb}"
    for verb in ("create", "set", "append", "tail", "grep", "verify", "pause", "close", "ls", "head", "erase")
}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
# Names of buffers that are not there (yet).
_NOT_THERE = {"missing", "new-one"}


class Places:
    """How arguments are turned into URLs, and back in what is said. Without `base` they are left alone."""

    def __init__(self, base: str | None = None) -> None:
        self._base = base

    def command(self, command: Sequence[str]) -> list[str]:
        if self._base is None or command[0] not in _TAKE_URLS:
            return list(command)
        makes = command[0] == "hbuf-append" and "orders" in command and "--no-create" not in command
        if makes and not Path("orders").exists():
            hbuf.create("orders").close()  # over HTTPS nothing is made by itself
        if command[0] == "hbuf-create" and _NAME.fullmatch(command[1]):
            return [command[0], f"{self._base}/{command[1]}", *command[2:]]
        behind = command.index("--") if "--" in command and command[0] == "hbuf-pause" else len(command)
        return [self._place(part) if i < behind else part for i, part in enumerate(command)]

    def _place(self, argument: str) -> str:
        if not _NAME.fullmatch(argument):
            return argument
        is_buffer = Path(argument, "segments").is_dir() or argument in _NOT_THERE
        return f"{self._base}/{argument}" if is_buffer else argument

    def text(self, said: str) -> str:
        return said if self._base is None else said.replace(f"{self._base}/", "")

    def data(self, said: bytes) -> bytes:
        return said if self._base is None else said.replace(f"{self._base}/".encode(), b"")
