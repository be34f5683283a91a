"""contrib/soak/run: rounds, one after the other, until the time is over or one fails.

Each round has a seed of its own, and `--seed SEED --rounds 1` runs that round again. Writers (hbuf-append, producers
that send again, the library, atomic units, clocks that jump) and readers work on one buffer, which may be signed and
encrypted, while they are killed, files are torn, and the buffer is paused, backed up, restored and compressed. Then the
buffer must verify, and must hold every acknowledged message once, in order.

With --spark, a stream reads buffers that are appended to, and writes to another, while its driver, its Java process and
its Python workers are killed. Then the output must have each message once, in the stated order.

With --daemon, clients of hbufd, hbuf-append and readers work on its buffers while it is killed and started again. Then
every message that was answered must be there once, in order, and all buffers must verify.
"""

from __future__ import annotations

import argparse
import math
import random
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

from hbuf.errors import UsageError
from hbuf.format.times import parse_duration_seconds
from soak.daemon_plan import draw_daemon_plan
from soak.daemon_round import DaemonRound
from soak.plan import draw_plan
from soak.processes import Place
from soak.round import Round
from soak.spark_plan import draw_spark_plan
from soak.spark_round import SparkRound

_SECONDS = 60
_SPARK_ROUNDS = 20


def main() -> int:
    options = _options()
    seeds = random.Random(options.seed)
    seed, number = options.seed, 0
    run, kind = run_round, ""
    if options.spark:
        run, kind = run_spark_round, "--spark "
    elif options.daemon:
        run, kind = run_daemon_round, "--daemon "
    end = time.monotonic() + options.duration
    while (options.rounds is None or number < options.rounds) and (number == 0 or time.monotonic() < end):
        if not run(seed, number, options.dir):
            print(f"soak: FAILED; again: contrib/soak/run {kind}--seed {seed} --rounds 1")
            return 1
        seed, number = seeds.getrandbits(32), number + 1
    print(f"soak: {number} rounds from seed {options.seed}: ok")
    return 0


def run_round(seed: int, number: int, directory: Path | None) -> bool:
    plan = draw_plan(seed)
    place = Place(_make_root(directory), plan.signed, plan.encrypted)
    settings = " ".join(f"{name}={value}" for name, value in plan.settings.items())
    settings += " signed" * plan.signed + " encrypted" * plan.encrypted
    return _run(Round(plan, place), number, place.root, f"{' '.join(plan.writers)}; {settings}")


def run_spark_round(seed: int, number: int, directory: Path | None) -> bool:
    plan, root = draw_spark_plan(seed), _make_root(directory)
    kills = " ".join(f"{kill.victim}{' in a commit' * kill.in_commit}" for kill in plan.kills)
    what = f"{len(plan.inputs)} inputs, {plan.partitions} partitions; kills {kills}"
    return _run(SparkRound(plan, root), number, root, what)


def run_daemon_round(seed: int, number: int, directory: Path | None) -> bool:
    plan, root = draw_daemon_plan(seed), _make_root(directory)
    what = "; ".join(f"{load.kind}: {', '.join(load.clients)}{', shell' * load.shell}" for load in plan.loads)
    return _run(DaemonRound(plan, root), number, root, what)


def _run(one: Round | SparkRound | DaemonRound, number: int, root: Path, what: str) -> bool:
    """Runs a round, and says how it went. The files of one that failed are kept."""
    seed = one.plan.seed
    try:
        one.run()
    except BaseException:
        print(f"soak: round {number}, seed {seed}: ended by an exception; its files are in {root}")
        raise
    counts = ", ".join(f"{count} {what}" for what, count in sorted(one.counts.items()))
    print(f"soak: round {number}, seed {seed}: {what}; {counts}", flush=True)
    for fault in one.faults:
        print(f"soak: {fault}")
    if one.faults:
        print(f"soak: its files are in {root}")
        return False
    shutil.rmtree(root)
    return True


def _make_root(directory: Path | None) -> Path:
    return Path(tempfile.mkdtemp(prefix="hbuf-soak-", dir=directory)).resolve()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="contrib/soak/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, metavar="SEED", help="of the first round (drawn if not said)")
    parser.add_argument("--duration", type=_duration, metavar="TIME", help="30s, 10m, 2h (60s; with Spark, 20 rounds)")
    parser.add_argument("--rounds", type=int, metavar="N", help="stop after N rounds")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--spark", action="store_true", help="a stream through Spark, from buffers to a buffer")
    kinds.add_argument("--daemon", action="store_true", help="hbufd, killed under load")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where to work")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = secrets.randbits(32)
    if options.spark and options.rounds is None and options.duration is None:
        options.rounds = _SPARK_ROUNDS
    if options.duration is None:
        options.duration = math.inf if options.spark else _SECONDS
    return options


def _duration(text: str) -> float:
    try:
        return parse_duration_seconds(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(error.message) from None


if __name__ == "__main__":
    sys.exit(main())
