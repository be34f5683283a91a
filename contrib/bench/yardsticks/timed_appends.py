"""Appends numbered messages, and prints when. Usage: timed_appends.py hbuf|file PATH COUNT PAUSE_SECONDS

For each, after it: its number, and the nanoseconds of the monotonic clock (one for all processes) just before the
append and when it returned.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import hbuf


def main() -> None:
    kind, path, count, pause_seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    append = _to_buffer(path) if kind == "hbuf" else _to_file(path)
    for number in range(count):
        time.sleep(pause_seconds)
        before = time.monotonic_ns()
        append(b"%d" % number)
        print(number, before, time.monotonic_ns(), flush=True)


def _to_buffer(path: str) -> Callable[[bytes], object]:
    return hbuf.open(path, create=True).append


def _to_file(path: str) -> Callable[[bytes], object]:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def append(body: bytes) -> None:
        os.write(fd, body + b"\n")
        os.fdatasync(fd)

    return append


if __name__ == "__main__":
    main()
