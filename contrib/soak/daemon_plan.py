"""What happens in a round with the daemon, drawn from its seed. What a kill interrupts is not drawn."""

from __future__ import annotations

import random
from dataclasses import dataclass

# How a client sends. A producer sends again until it is answered; the others send once, and go on with the next.
# With `batch` (application/http) and `lines`, several messages are one request.
CLIENT_KINDS = ("producer", "producer batch", "producer lines", "plain", "batch")
READER_KINDS = ("polls", "events")
BUFFER_KINDS = ("plain", "signed", "encrypted")
UNIT_MESSAGES = 5


@dataclass(frozen=True, slots=True)
class Load:
    """What is done to one buffer."""

    kind: str
    settings: dict[str, str]
    clients: tuple[str, ...]
    shell: bool  # whether hbuf-append writes to the same directory at the same time
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DaemonPlan:
    seed: int
    loads: tuple[Load, ...]
    kills: tuple[float, ...]  # seconds that the daemon has from its first answer on


def draw_daemon_plan(seed: int, *, kills: int | None = None) -> DaemonPlan:
    numbers = random.Random(seed)
    loads = tuple(_draw_load(numbers, kind) for kind in BUFFER_KINDS)
    count = numbers.randint(2, 5)
    return DaemonPlan(seed, loads, tuple(numbers.uniform(0, 0.6) for _ in range(kills or count)))


def _draw_load(numbers: random.Random, kind: str) -> Load:
    clients = ["producer", numbers.choice(("producer batch", "producer lines")), numbers.choice(("plain", "batch"))]
    settings = {"segment_bytes": numbers.choice(["4096", "65536", "1MiB"])}
    if numbers.random() < 0.3:
        settings["segment_messages"] = str(numbers.randint(2, 50))
    if numbers.random() < 0.2:
        settings["compress"] = "true"
    readers = (READER_KINDS[numbers.randrange(2)],) if kind != "plain" else READER_KINDS
    return Load(kind, settings, tuple(clients), numbers.random() < 0.5 or kind == "plain", readers)
