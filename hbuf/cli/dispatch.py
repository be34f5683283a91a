"""hbuf: runs `hbuf VERB …` as `hbuf-VERB …`, as git does."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

from hbuf.cli.streams import complain, finish, open_standard_streams

VERBS = {
    "append": "store messages from standard input or files",
    "close": "close a buffer for writing, or open it again",
    "compress": "compress sealed segments",
    "create": "make a buffer",
    "demo": "a tour of the main job, in a temporary directory",
    "erase": "erase messages for good, with the chain intact",
    "export": "write buffers as Parquet or JSON lines",
    "grep": "search messages",
    "import": "store messages from Parquet or JSON lines",
    "key": "make keys, and hand public keys out and in",
    "head": "print the newest head of a signed buffer",
    "ls": "list buffers",
    "pause": "hold a buffer still for a backup",
    "pipeline": "run stages from buffers to buffers, on Spark",
    "reindex": "make indexes and tags files anew",
    "retire": "remove the oldest segments, as the settings say",
    "set": "show and change settings",
    "tail": "show messages, and follow",
    "user": "make users of the daemon, and what they show it",
    "verify": "prove that nothing was changed",
}

_MODULES = {"import": "import_messages"}  # a module cannot have the name of a keyword


def main() -> NoReturn:
    open_standard_streams()
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("--help", "help"):
        sys.exit(finish("hbuf", 0 if arguments else 2, _help()))
    verb, rest = arguments[0], arguments[1:]
    if verb == "--version":
        from hbuf.version import VERSION

        sys.exit(finish("hbuf", 0, f"hbuf {VERSION}\n"))
    if verb in VERBS:
        sys.argv = [f"hbuf-{verb}", *rest]
        importlib.import_module(f"hbuf.cli.{_MODULES.get(verb, verb)}").main()
        sys.exit(0)
    try:
        os.execvp(f"hbuf-{verb}", [f"hbuf-{verb}", *rest])
    except OSError:
        complain("hbuf", f"there is no '{verb}'", "hbuf --help")
        sys.exit(2)


def _help() -> str:
    verbs = "".join(f"  {verb:9} {what}\n" for verb, what in VERBS.items())
    return (
        "Usage: hbuf VERB [ARGUMENT]...\n\nMessages in plain files: durable, readable, provable.\n\n"
        f"{verbs}\nhbuf VERB --help tells more of each.\n\nExample: echo hello | hbuf append ./greetings\n"
    )
