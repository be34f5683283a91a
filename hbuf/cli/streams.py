"""Standard input, output and error as a program finds and leaves them. What is said to people is written here."""

from __future__ import annotations

import errno
import os
import sys
from typing import TextIO


def open_standard_streams() -> None:
    """A stream that the caller closed is empty. Left alone, its number would go to the next file that is opened."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, "r", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def finish(name: str, code: int, last_words: str = "") -> int:
    """Writes what is still to be written. A pipe that nobody reads any more is quiet success."""
    try:
        sys.stdout.write(last_words)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_stdout()
    except OSError as error:
        drop_stdout()
        complain(name, f"standard output: {os.strerror(error.errno or errno.EIO)}")
        return code or 74
    return code


def drop_stdout() -> None:
    """Nobody reads it: what is written from now on, and what is left to be written, goes nowhere."""
    _drop(sys.stdout)


def _drop(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def complain(name: str, line: str, hint: str | None = None) -> None:
    """One line on standard error, and one for a way out. Where nobody can be told, the exit code has to do."""
    try:
        sys.stderr.write(printable(f"{name}: {line}") + "\n")
        if hint:
            sys.stderr.write(printable(f"hint: {hint}") + "\n")
        sys.stderr.flush()
    except OSError:
        _drop(sys.stderr)


def printable(text: str) -> str:
    """`text` on one line, without what a terminal would obey: a file's name may hold anything."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
