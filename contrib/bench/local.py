"""contrib/bench/run local: the commands and the library on a directory.

append   a stream of lines, one line at a time, bytes on disk
read     hbuf-tail and hbuf-grep of all messages
verify   hbuf-verify, with one process and with all cores
follow   how soon hbuf-tail -f shows a message
open     opening a short and a long buffer for appending
start    starting each program
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench import appending, following, opening, reading, starting, table, verifying
from bench.material import Material

GROUPS = {
    "append": (appending.stream_rows, appending.single_rows, appending.disk_rows),
    "read": (reading.tail_rows, reading.grep_rows),
    "verify": (verifying.verify_rows,),
    "follow": (following.follow_rows,),
    "open": (opening.open_rows,),
    "start": (starting.start_rows,),
}
FULL_MESSAGES = 5_000_000


def main() -> None:
    options = _options()
    only = options.only or list(GROUPS)
    with tempfile.TemporaryDirectory(prefix="hbuf-bench-", dir=options.dir) as name:
        directory = Path(name)
        open_messages = max(options.messages, FULL_MESSAGES) if options.full else options.messages
        material = Material(directory, options.messages, open_messages, options.repeat, options.seed)
        about = table.machine(directory)
        rows = []
        for group, measures in GROUPS.items():
            if group in only:
                print(f"bench: {group}", file=sys.stderr)
                rows += [row for measure in measures for row in measure(material)]
    sys.stdout.write(table.as_json(about, rows) + "\n" if options.json else table.as_text(about, rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="contrib/bench/run local", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=1_000_000, metavar="N", help="of the large buffer (1000000)")
    parser.add_argument("--full", action="store_true", help=f"measure opening with {FULL_MESSAGES} messages")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each, after one to warm up (3)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the lines' bytes (1)")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where to work; what is made there is removed")
    parser.add_argument("--only", action="append", choices=list(GROUPS), help="measure one group (repeatable)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.messages < 1 or options.repeat < 1:
        parser.error("--messages and --repeat are at least 1")
    return options
