"""Starting a load in a process of its own, and what it measured."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.load.address import Address
from bench.programs import CHECKOUT, python_code

BODY_BYTES = 100
# What a load may take beyond its own time: starting, connecting, the answers that are still to come.
_PATIENCE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Server:
    """One that a load can talk to, in one of its ways."""

    name: str
    kind: str  # http, redis or nats
    address: Address
    pid: int
    authorization: str = ""

    def plan(self) -> dict[str, object]:
        return {"kind": self.kind, "address": self.address.as_plan(), "authorization": self.authorization}


@dataclass(frozen=True, slots=True)
class Appended:
    messages: int
    seconds: float
    cpu_seconds: float  # of the load itself
    p50: float  # milliseconds, of an answer
    p99: float


@dataclass(frozen=True, slots=True)
class Read:
    seconds: float
    bytes: int
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Live:
    """Milliseconds from before an append."""

    acknowledged_p50: float
    acknowledged_p99: float
    seen_p50: float
    seen_p99: float


def append_load(
    server: Server, targets: Sequence[str], *, clients: int, batch: int, seconds: float, most: int
) -> Appended:
    """Clients that append batches to the targets in turn, until the time is over or `most` messages are sent."""
    plan = {"targets": targets, "clients": clients, "batch": batch, "bytes": BODY_BYTES}
    return Appended(**_run("appends", server.plan() | plan | {"seconds": seconds, "most": most}, seconds))


def read_load(server: Server, buffer: str, messages: int, accept: str) -> Read:
    """All messages, from the first on."""
    plan = {"files": [], "buffer": buffer, "messages": messages, "accept": accept}
    return Read(**_run("reads", server.plan() | plan, _PATIENCE_SECONDS))


def read_files(files: Sequence[Path]) -> Read:
    return Read(**_run("reads", {"files": [str(file) for file in files]}, _PATIENCE_SECONDS))


def live_load(server: Server, watch: str, target: str, *, messages: int, rate: float) -> Live:
    """`watch`: events, wait, redis or nats."""
    plan = {"watch": watch, "target": target, "batch": 1, "messages": messages, "rate": rate}
    return Live(**_run("live", server.plan() | plan, messages / rate))


def _run(name: str, plan: dict[str, object], seconds: float) -> dict[str, Any]:
    code = f"import sys; sys.path.insert(0, sys.argv[1])\nfrom bench.load.{name} import main\nmain()"
    argv = [*python_code(code), CHECKOUT / "contrib"]
    try:
        done = subprocess.run(
            argv, input=json.dumps(plan).encode(), stdout=subprocess.PIPE, timeout=seconds + _PATIENCE_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise SystemExit(f"bench: the load {name} hangs: {_described(plan)}") from None
    if done.returncode:
        raise SystemExit(f"bench: the load {name} failed: {_described(plan)}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _described(plan: dict[str, object]) -> str:
    return ", ".join(
        f"{name} {plan[name]}" for name in ("kind", "address", "clients", "batch", "watch") if name in plan
    )
