"""Times opening and appending one message, in turns. Usage: open_times.py COUNT FILE BUFFER...

Prints JSON: for the plain FILE and for each BUFFER the seconds of each of COUNT times.
"""

from __future__ import annotations

import json
import os
import sys
import time

import hbuf

_BODY = b"x" * 100


def main() -> None:
    count, file, buffers = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    times: dict[str, list[float]] = {name: [] for name in (file, *buffers)}
    for turn in range(count + 1):
        for name, found in times.items():
            start = time.perf_counter()
            if name == file:
                append_plainly(name)
            else:
                with hbuf.open(name) as buffer:
                    buffer.append(_BODY)
            if turn:  # the first is to warm up
                found.append(time.perf_counter() - start)
    json.dump(times, sys.stdout)


def append_plainly(name: str) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, _BODY)
    os.fdatasync(fd)
    os.close(fd)


if __name__ == "__main__":
    main()
