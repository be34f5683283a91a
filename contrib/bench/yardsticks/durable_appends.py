"""Appends as fast as the disk lets it, each batch with a sync: what no server on this disk can do better alone.

Usage: durable_appends.py hbuf|file PATH BATCH SECONDS MOST. Prints JSON: how many messages, in how many seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import hbuf


def main() -> None:
    kind, path, batch, seconds, most = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
    bodies = [os.urandom(50).hex().encode() for _ in range(batch)]
    append = _to_buffer(path, bodies) if kind == "hbuf" else _to_file(path, bodies)
    append()
    count, start = 0, time.perf_counter()
    while count < most and time.perf_counter() - start < seconds:
        append()
        count += batch
    json.dump({"messages": count, "seconds": time.perf_counter() - start}, sys.stdout)


def _to_buffer(path: str, bodies: list[bytes]) -> Callable[[], object]:
    buffer = hbuf.open(path, create=True)
    return lambda: buffer.append_many(bodies) if len(bodies) > 1 else buffer.append(bodies[0])


def _to_file(path: str, bodies: list[bytes]) -> Callable[[], object]:
    fd, data = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), b"".join(body + b"\n" for body in bodies)

    def append() -> None:
        os.write(fd, data)
        os.fdatasync(fd)

    return append


if __name__ == "__main__":
    main()
