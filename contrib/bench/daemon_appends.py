"""Appending to the daemon: alone and at once, in batches, signed, and to many buffers."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Mapping
from functools import partial

from bench.daemon_place import Measured, Place
from bench.measure import Ran, in_turns
from bench.serving.ceiling import AIOHTTP, CEILING
from bench.serving.hbufd import HTTPS, UNIX
from bench.serving.nats import NATS
from bench.serving.process import open_files, resident_megabytes
from bench.serving.redis import PLAIN, TLS
from bench.table import Row, rate_row

LIBRARY, FILE = "hbuf.append, no server", "write + fdatasync"
_ALONE = {LIBRARY: "hbuf", FILE: "file"}
# Clients, and messages a request.
_SHAPES = ((1, 1), (32, 1), (1, 1000), (4, 1000))
_CLIENTS = 32
# Each way to the daemon, and what stands beside it: Redis with TLS beside HTTPS.
BESIDE = {
    HTTPS: (f"{CEILING}, HTTPS", f"{AIOHTTP}, HTTPS", TLS, NATS, LIBRARY, FILE),
    UNIX: (f"{CEILING}, Unix", f"{AIOHTTP}, Unix", PLAIN, NATS, LIBRARY, FILE),
}


class _Runs:
    """Runs of several servers in turns, and what was measured besides the time."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._measured: dict[str, list[Measured]] = {}
        self._runs: dict[str, Callable[[], Ran]] = {}

    def add(self, name: str, run: Callable[[], Measured]) -> None:
        self._measured[name] = []

        def timed() -> Ran:
            measured = run()
            self._measured[name].append(measured)
            return measured.ran

        self._runs[name] = timed

    def add_alone(self, name: str, batch: int) -> None:
        self._runs[name] = partial(self._place.append_alone, _ALONE[name], batch)

    def rows(self, group: str, besides: Mapping[str, tuple[str, ...]]) -> list[Row]:
        found = in_turns(self._runs, self._place.repeats, warm_ups=self._place.warm_ups)
        return [
            rate_row(group, ours, found[ours], beside, found.get(beside), 1, "messages/s")
            for ours, others in besides.items()
            for beside in others
        ]

    def median(self, name: str, value: Callable[[Measured], float]) -> float | None:
        """Without the run that warmed up; None of what is not installed."""
        return (
            statistics.median(map(value, self._measured[name][self._place.warm_ups :]))
            if name in self._measured
            else None
        )


def append_rows(place: Place) -> list[Row]:
    return [row for clients, batch in _SHAPES for row in _append_rows(place, clients, batch)]


def _append_rows(place: Place, clients: int, batch: int) -> list[Row]:
    runs = _Runs(place)
    for server in place.servers.values():
        runs.add(server.name, partial(place.append, server, clients=clients, batch=batch))
    for name in _ALONE:
        runs.add_alone(name, batch)
    messages = "one message a request" if batch == 1 else f"{batch:,} messages a request"
    group = f"append, {messages}, {clients} client{'s' * (clients > 1)}"
    rows = runs.rows(group, BESIDE)
    for ours, others in BESIDE.items():
        for what, unit, value in (
            ("p50 of an answer", "ms", lambda one: one.appended.p50),
            ("p99 of an answer", "ms", lambda one: one.appended.p99),
            ("CPU of the server, a message", "µs", lambda one: one.server_microseconds),
        ):
            rows += [_row(runs, group, ours, what, unit, beside, value) for beside in others[1:4]]
    return rows


def _row(
    runs: _Runs, group: str, ours: str, what: str, unit: str, beside: str, value: Callable[[Measured], float]
) -> Row:
    return Row(group, f"{ours}, {what}", runs.median(ours, value) or 0.0, unit, beside, runs.median(beside, value))


def signed_rows(place: Place) -> list[Row]:
    runs, besides = _Runs(place), {}
    for name in (HTTPS, UNIX):
        plain, signed = f"{name}, plain", f"{name}, signed"
        runs.add(plain, partial(place.append, place.servers[name], clients=_CLIENTS, batch=1))
        runs.add(signed, partial(place.append, place.servers[name], clients=_CLIENTS, batch=1, sign=True))
        besides[signed] = (plain,)
    return runs.rows(f"append to a signed buffer, {_CLIENTS} clients", besides)


def buffers_rows(place: Place) -> list[Row]:
    """Appending to each in turn; the daemon's memory and open files, before and after it got them."""
    group = f"append to {place.buffers:,} buffers, {_CLIENTS} clients"
    pid = place.servers[HTTPS].pid
    memory, files = resident_megabytes(pid), open_files(pid)
    runs, besides = _Runs(place), {}
    with contextlib.ExitStack() as made:
        for ours, theirs in ((HTTPS, TLS), (UNIX, PLAIN)):
            besides[ours] = (f"{ours}, 1 buffer", theirs)
            runs.add(besides[ours][0], partial(place.append, place.servers[ours], clients=_CLIENTS))
        # Both ways to a server are to the same buffers.
        for ways in ((HTTPS, UNIX), (TLS, PLAIN)):
            if ways[0] in place.servers:
                targets = made.enter_context(place.targets(place.servers[ways[0]], place.buffers))
                for name in ways:
                    runs.add(name, partial(place.append_to, place.servers[name], targets, clients=_CLIENTS))
        rows = runs.rows(group, besides)
        redis = resident_megabytes(place.servers[TLS].pid) if TLS in place.servers else None
    return [
        *rows,
        Row(group, "hbufd, memory", resident_megabytes(pid), "MB", "before them", memory),
        Row(group, "hbufd, memory", resident_megabytes(pid), "MB", "Redis, with all that it keeps", redis),
        Row(group, "hbufd, open files", open_files(pid), "files", "before them", files),
    ]
