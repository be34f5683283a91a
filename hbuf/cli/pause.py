"""hbuf-pause: nothing in a buffer's directory changes, for as long as a command runs or until it is resumed."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from typing import Annotated

import typer

from hbuf.cli.program import Buffers, Timeout, Version, noticer, program, run, seconds
from hbuf.cli.streams import complain
from hbuf.errors import HbufError
from hbuf.ops.pause import Hold, pause, resume

NAME = "hbuf-pause"
_COMMAND: list[str] = []


def pause_command(
    buffers: Buffers,
    resume_them: Annotated[bool, typer.Option("--resume", help="End the pause, whoever set it.")] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; shown to who has to wait.")] = "",
    timeout: Timeout = "30s",
    version: Version = False,
) -> int:
    """Pause buffers while COMMAND runs (BUF... -- COMMAND), or until --resume."""
    wait_seconds = seconds(timeout)
    if resume_them:
        for buffer in buffers:
            resume(buffer, timeout_seconds=wait_seconds)
        return 0
    if not _COMMAND:
        for buffer in buffers:
            hold = pause(buffer, reason=reason, timeout_seconds=wait_seconds, notice=noticer(f"{NAME}: {buffer}"))
            if hold:
                os.close(hold.fd)
        return 0
    return _pause_while(buffers, reason, wait_seconds)


def _pause_while(buffers: list[str], reason: str, wait_seconds: float) -> int:
    holds: list[Hold] = []
    command = shlex.join(_COMMAND)
    released = True
    try:
        for buffer in buffers:
            notice = noticer(f"{NAME}: {buffer}")
            hold = pause(buffer, reason=reason, timeout_seconds=wait_seconds, command=command, notice=notice)
            if hold:
                holds.append(hold)
        code = _run_command([hold.fd for hold in holds])
    finally:
        for hold in holds:
            released = _release(hold) and released
    return code if code or released else 75


def _run_command(fds: list[int]) -> int:
    """The command has the pauses' files open too: they hold as long as it lives, even if we are killed."""
    try:
        process = subprocess.Popen(_COMMAND, pass_fds=fds)
    except OSError as error:
        complain(NAME, f"{_COMMAND[0]}: {error.strerror}")
        return 127 if isinstance(error, FileNotFoundError) else 126
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, frame: process.send_signal(received))
    while True:
        try:
            code = process.wait()
            return code if code >= 0 else 128 - code
        except KeyboardInterrupt:
            continue  # the command got it too, and decides


def _release(hold: Hold) -> bool:
    try:
        held = hold.release()
    except HbufError as error:
        complain(NAME, error.message)
        return False
    if not held:
        complain(NAME, f"{hold.directory.shown}: was resumed by somebody else while the command ran")
    return held


app = program(NAME, pause_command, "Example: hbuf-pause ./orders -- tar cf orders.tar ./orders")


def main() -> None:
    _COMMAND.clear()
    if "--" in sys.argv:
        at = sys.argv.index("--")
        _COMMAND[:] = sys.argv[at + 1 :]
        if not _COMMAND:
            complain(NAME, "there is no command behind --")
            sys.exit(2)
        del sys.argv[at:]
    run(app, NAME)
