"""What happens in a round, drawn from its seed. The processes' timing is not drawn: it is what it is."""

from __future__ import annotations

import random
from dataclasses import dataclass

# How a writer sends: lines to hbuf-append, the same as a producer that starts again from its first message after a
# kill, the library, atomic units of the library, or the library with a clock that jumps.
WRITER_KINDS = ("lines", "producer", "library", "units", "clock")
LINE_KINDS = ("lines", "producer")
UNIT_MESSAGES = 5

# What happens while writers write.
EVENTS = ("kill", "kill", "kill", "backup", "pause and die", "reindex", "set", "compress", "nothing")
# What is done to the files while nobody writes, as a crash or a power cut would.
TEARS = ("garbage", "zeros", "half a record", "old record", "index behind", "no index", "no tags", "no producers")


@dataclass(frozen=True, slots=True)
class Phase:
    """Writers start, things happen, and writers end: asked to, or killed all at once. Then files are torn."""

    events: tuple[tuple[float, str], ...]  # seconds to wait before it, and what
    killed: bool
    tears: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    settings: dict[str, str]
    writers: tuple[str, ...]  # kinds
    readers: int
    cut: bool  # whether bytes beyond the durable length are lost: nobody may have read them, so there are no readers
    phases: tuple[Phase, ...]
    signed: bool
    encrypted: bool


def draw_plan(seed: int) -> Plan:
    numbers = random.Random(seed)
    cut = numbers.random() < 0.25
    writers = tuple(numbers.choice(WRITER_KINDS) for _ in range(numbers.randint(2, 4)))
    readers = 0 if cut else numbers.randint(0, 2)
    phases = tuple(_draw_phase(numbers, cut) for _ in range(numbers.randint(1, 3)))
    settings = _draw_settings(numbers)
    signed = numbers.random() < 0.3
    encrypted = settings["erasable"] == "true" and numbers.random() < 0.3
    return Plan(seed, settings, writers, readers, cut, phases, signed, encrypted)


def _draw_settings(numbers: random.Random) -> dict[str, str]:
    settings = {
        "hash": numbers.choice(["blake3", "blake3", "sha256"]),
        "erasable": numbers.choice(["true", "true", "false"]),
        "segment_bytes": numbers.choice(["4096", "16384", "65536", "1MiB"]),
    }
    if numbers.random() < 0.3:
        settings["segment_messages"] = str(numbers.randint(1, 50))
    if numbers.random() < 0.2:
        settings["segment_age"] = numbers.choice(["200ms", "1h"])
    if numbers.random() < 0.2:
        settings["compress"] = "true"
    return settings


def _draw_phase(numbers: random.Random, cut: bool) -> Phase:
    events = [event for event in EVENTS if not (cut and event == "backup")]
    drawn = tuple((numbers.uniform(0.02, 0.3), numbers.choice(events)) for _ in range(numbers.randint(1, 4)))
    killed = numbers.random() < 0.6
    tears = tuple(numbers.choice(TEARS) for _ in range(numbers.randint(0, 2)))
    if "no index" in tears:
        # Without an index, damage with a whole record behind it is not cut, and verify names it: as it must be.
        tears = tuple(tear for tear in tears if tear.startswith("no ")) or tears
    return Phase(drawn, killed, ("cut", *tears) if cut else tears)
