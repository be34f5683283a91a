"""Marker files: `paused` and `closed`. Their presence is the state, their content is for people.

A pause that lasts as long as a command keeps an flock on its own marker, in hbuf-pause and in the command
itself. While either lives the pause holds; when both are dead, or when the marker came out of a backup, nobody
holds that lock and the marker is stale. A marker that was set by hand names no command, and stays.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hbuf.format.times import encode_time
from hbuf.store import fsops


@dataclass(frozen=True, slots=True)
class Marker:
    """What a marker file says. `stale` only for a pause whose command is gone."""

    who: str
    when: str
    why: str
    host: str
    pid: int
    command: str | None
    stale: bool

    def describe(self) -> str:
        reason = f": {self.why}" if self.why else ""
        return f"by {self.who} at {self.when} on {self.host}{reason}"


def read_marker(path: Path) -> Marker | None:
    """The marker at `path`, or None. One that cannot be read counts as set by hand: it holds."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        content = os.read(fd, 65_536)
        try:
            values = json.loads(content)
        except ValueError:
            values = {}
        if not isinstance(values, dict):
            values = {}
        command = values.get("command")
        return Marker(
            str(values.get("who", "unknown")),
            str(values.get("when", "unknown")),
            str(values.get("why", "")),
            str(values.get("host", "unknown")),
            int(values["pid"]) if isinstance(values.get("pid"), int) else 0,
            command if isinstance(command, str) else None,
            stale=isinstance(command, str) and not _is_held(fd),
        )
    finally:
        os.close(fd)


def write_marker(path: Path, why: str, now_us: int, command: str | None = None, *, who: str | None = None) -> int:
    """Sets a marker, durably. Returns its open file, locked when there is a command: close it to let go.

    `who` is the user of this process if not said.
    """
    values: dict[str, Any] = {
        "who": user_name() if who is None else who,
        "when": encode_time(now_us),
        "why": why,
        "host": os.uname().nodename,
        "boot": _boot_id(),
        "pid": os.getpid(),
    }
    if command is not None:
        values["command"] = command
    beside = path.with_name(f".new-{path.name}")
    fd = fsops.create_file(beside)
    try:
        if command is not None:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fsops.write_all_at(fd, json.dumps(values, indent=2).encode() + b"\n", 0)
        fsops.sync_data(fd)
        fsops.rename(beside, path)
        fsops.sync_directory(path.parent)
    except BaseException:
        os.close(fd)
        raise
    return fd


def remove_marker(path: Path) -> None:
    fsops.unlink(path)
    fsops.sync_directory(path.parent)


def is_same_marker(fd: int, path: Path) -> bool:
    """Whether the marker at `path` is still the one that `fd` was opened for."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _is_held(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return True  # a file system that cannot tell: hold rather than write into a backup
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def user_name() -> str:
    """Who runs this program, for people."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def acting_user() -> bytes:
    """user@host, of characters that a line of a record may hold."""
    return re.sub(rb"[^!-~]", b"?", os.fsencode(f"{user_name()}@{os.uname().nodename}"))


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
