"""contrib/soak/run: rounds, one after the other, until the time is over or one fails.

Each round has a seed of its own, and `--seed SEED --rounds 1` runs that round again. Writers (hbuf-append, producers
that send again, the library, atomic units, clocks that jump) and readers work on one buffer, which may be signed and
encrypted, while they are killed, files are torn, and the buffer is paused, backed up, restored and compressed. Then the
buffer must verify, and must hold every acknowledged message once, in order.
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

from hbuf.errors import UsageError
from hbuf.format.times import parse_duration_seconds
from soak.plan import Plan, draw_plan
from soak.processes import Place
from soak.round import Round


def main() -> int:
    options = _options()
    seeds = random.Random(options.seed)
    seed, number = options.seed, 0
    end = time.monotonic() + options.duration
    while (options.rounds is None or number < options.rounds) and (number == 0 or time.monotonic() < end):
        if not run_round(draw_plan(seed), number, options.dir):
            print(f"soak: FAILED; again: contrib/soak/run --seed {seed} --rounds 1")
            return 1
        seed, number = seeds.getrandbits(32), number + 1
    print(f"soak: {number} rounds from seed {options.seed}: ok")
    return 0


def run_round(plan: Plan, number: int, directory: Path | None) -> bool:
    """Runs a round, and says how it went. The files of one that failed are kept."""
    place = Place(Path(tempfile.mkdtemp(prefix="hbuf-soak-", dir=directory)), plan.signed, plan.encrypted)
    one = Round(plan, place)
    try:
        one.run()
    except BaseException:
        print(f"soak: round {number}, seed {plan.seed}: ended by an exception; its files are in {place.root}")
        raise
    counts = ", ".join(f"{count} {what}" for what, count in sorted(one.counts.items()))
    settings = " ".join(f"{name}={value}" for name, value in plan.settings.items())
    settings += " signed" * plan.signed + " encrypted" * plan.encrypted
    print(f"soak: round {number}, seed {plan.seed}: {' '.join(plan.writers)}; {settings}; {counts}", flush=True)
    for fault in one.faults:
        print(f"soak: {fault}")
    if one.faults:
        print(f"soak: its files are in {place.root}")
        return False
    shutil.rmtree(place.root)
    return True


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="contrib/soak/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, metavar="SEED", help="of the first round (drawn if not said)")
    parser.add_argument("--duration", type=_duration, default=60, metavar="TIME", help="30s, 10m, 2h (60s)")
    parser.add_argument("--rounds", type=int, metavar="N", help="stop after N rounds")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where to work")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = secrets.randbits(32)
    return options


def _duration(text: str) -> float:
    try:
        return parse_duration_seconds(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(error.message) from None


if __name__ == "__main__":
    sys.exit(main())
