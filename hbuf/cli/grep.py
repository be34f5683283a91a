"""hbuf-grep: searches the messages of buffers."""

from __future__ import annotations

import os
import sys
import time
from typing import Annotated

import typer

from hbuf.cli.printing import Form, Printer, complain_of_damage
from hbuf.cli.program import Buffers, Version, program, run
from hbuf.errors import UsageError
from hbuf.format.places import parse_place
from hbuf.ops.filter import Filter, compile_pattern
from hbuf.ops.tail import select_chunks
from hbuf.store.directory import BufferDirectory
from hbuf.store.reader import Reader

NAME = "hbuf-grep"


def grep_command(
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="A regular expression.", show_default=False)],
    buffers: Buffers,
    count: Annotated[bool, typer.Option("--count", "-c", help="Print only how many match.")] = False,
    invert: Annotated[bool, typer.Option("--invert-match", "-v", help="Those that do not match.")] = False,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Upper and lower case are equal.")] = False,
    list_only: Annotated[bool, typer.Option("--list", "-l", help="Print only names of buffers with a match.")] = False,
    fixed: Annotated[bool, typer.Option("--fixed-strings", "-F", help="PATTERN is plain text.")] = False,
    number: Annotated[bool, typer.Option("--number", "-n", help="Put the message's number before it.")] = False,
    place: Annotated[str, typer.Option("--from", "-o", metavar="PLACE", help="Search from PLACE on.")] = "first",
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only messages with this key.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="T", help="Only messages with this tag.")] = None,
    http: Annotated[bool, typer.Option("--http", help="Print records as they are stored.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    null: Annotated[bool, typer.Option("--null", "-0", help="End each with NUL, not newline.")] = False,
    version: Version = False,
) -> int:
    """Print messages whose body or fields match PATTERN."""
    if http and as_json:
        raise UsageError("choose one of --http and --json")
    wanted = Filter(
        key.encode() if key is not None else None,
        tag.encode() if tag is not None else None,
        compile_pattern(pattern, ignore_case=ignore_case, fixed=fixed),
        in_fields=True,
        invert=invert,
    )
    parsed_place = parse_place(place, time.time_ns() // 1000)
    form: Form = "http" if http else "json" if as_json else "body"
    found_any = damaged = False
    out = sys.stdout.buffer
    for buffer in buffers:
        prefix = os.fsencode(buffer) + b":" if len(buffers) > 1 and form == "body" else b""
        with Reader(BufferDirectory(buffer)) as reader:
            printer = Printer(reader, form, b"\0" if null else b"\n")
            found = 0
            for chunk, places in select_chunks(reader, reader.resolve(parsed_place), reader.end_seq, wanted):
                found += len(places)
                if list_only and found:
                    break
                if not count and not list_only:
                    lines = printer.encode(chunk, places)
                    numbers = [b"%d:" % (chunk.first + i) if number and form == "body" else b"" for i in places]
                    out.writelines(prefix + seq + line for seq, line in zip(numbers, lines, strict=True))
            damaged = complain_of_damage(NAME, reader) or damaged
        if list_only and found:
            out.write(os.fsencode(buffer) + b"\n")
        elif count:
            out.write(prefix + b"%d\n" % found)
        found_any = found_any or found > 0
    out.flush()
    return 65 if damaged else 0 if found_any else 1


app = program(NAME, grep_command, "Example: hbuf-grep -i 'timeout|refused' ./orders ./payments")


def main() -> None:
    run(app, NAME)
