"""Reads a whole buffer by one client, answer by answer, and drops what it gets; or the segment files, with read()."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from bench.load.address import Address
from bench.load.answers import HttpAnswers
from bench.load.plan import read_plan
from bench.load.requests import http_get

_READ_BYTES = 4 * 1024 * 1024


def main() -> None:
    """The plan: see bench.loading."""
    plan = read_plan()
    json.dump(_read_files(plan) if plan["files"] else _read_buffer(plan), sys.stdout)


def _read_buffer(plan: dict[str, Any]) -> dict[str, float]:
    connection, answers = Address(**plan["address"]).connect(), HttpAnswers()
    place, count, size, before = 1, plan["messages"], 0, time.process_time()
    start = time.perf_counter()
    while place <= count:
        target = f"/b/{plan['buffer']}?from={place}&max=100000"
        connection.sendall(http_get(target, plan["accept"], plan["authorization"]))
        data = connection.recv(_READ_BYTES)
        while not answers.complete(data):
            size += len(data)
            data = connection.recv(_READ_BYTES)
            if not data:
                raise ConnectionError("the server closed the connection")
        size += len(data)
        reached = int(answers.header(b"x-hbuf-next"))
        if reached <= place:
            raise SystemExit(f"bench: reading from {place} goes on at {reached}")
        place = reached
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "bytes": size, "cpu_seconds": time.process_time() - before}


def _read_files(plan: dict[str, Any]) -> dict[str, float]:
    size, before, start = 0, time.process_time(), time.perf_counter()
    for name in plan["files"]:
        with open(name, "rb", buffering=0) as file:
            while data := file.read(_READ_BYTES):
                size += len(data)
    return {"seconds": time.perf_counter() - start, "bytes": size, "cpu_seconds": time.process_time() - before}
