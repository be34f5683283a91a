"""How soon an append is acknowledged, and how soon a reader who waits has it: at a steady rate, far from the most."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bench.daemon_place import Place
from bench.loading import Live, live_load
from bench.serving.hbufd import HTTPS, UNIX
from bench.serving.nats import NATS
from bench.serving.redis import PLAIN, TLS
from bench.table import Row

_A_SECOND = 500
_MOMENTS: dict[str, Callable[[Live], float]] = {
    "acknowledged, p50": lambda live: live.acknowledged_p50,
    "acknowledged, p99": lambda live: live.acknowledged_p99,
    "seen, p50": lambda live: live.seen_p50,
    "seen, p99": lambda live: live.seen_p99,
}
_WATCHES = {HTTPS: ("events", "wait"), UNIX: ("events", "wait"), TLS: ("redis",), PLAIN: ("redis",), NATS: ("nats",)}
_BESIDE = {HTTPS: (TLS, NATS), UNIX: (PLAIN, NATS)}
_SAID = {"events": "event stream", "wait": "wait=", "redis": "XREAD BLOCK", "nats": "push consumer"}


def live_rows(place: Place) -> list[Row]:
    """In turns, a part of the messages in each: the median of the turns counts."""
    found: dict[tuple[str, str], list[Live]] = {}
    messages = max(place.live_messages // place.repeats, 1)
    for _ in range(place.repeats):
        for name, watches in _WATCHES.items():
            for watch in watches if name in place.servers else ():
                with place.targets(place.servers[name], 1) as (target,):
                    live = live_load(place.servers[name], watch, target, messages=messages, rate=_A_SECOND)
                found.setdefault((name, watch), []).append(live)
    rows = []
    for ours, others in _BESIDE.items():
        for watch in _WATCHES[ours]:
            for moment, value in _MOMENTS.items():
                for beside in others:
                    (their,) = _WATCHES[beside]
                    what, figure = f"{ours}, {_SAID[watch]}, {moment}", _median(found[ours, watch], value)
                    theirs = _median(found[beside, their], value) if (beside, their) in found else None
                    rows.append(Row("live", what, figure, "ms", f"{beside}, {_SAID[their]}", theirs))
    return rows


def _median(lives: list[Live], value: Callable[[Live], float]) -> float:
    return statistics.median(map(value, lives))
