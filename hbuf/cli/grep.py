"""hbuf-grep: searches the messages of buffers."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from hbuf.cli.program import Buffers, Version, complain, program, run
from hbuf.errors import UsageError
from hbuf.format.jsonlines import encode_json
from hbuf.format.message import message_of
from hbuf.format.places import parse_place
from hbuf.ops.grep import compile_pattern, matches
from hbuf.ops.tail import Filter
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
    compiled = compile_pattern(pattern, ignore_case=ignore_case, fixed=fixed)
    wanted = Filter(key.encode() if key is not None else None, tag.encode() if tag is not None else None)
    parsed_place = parse_place(place, time.time_ns() // 1000)
    found_any = damaged = False
    out = sys.stdout.buffer
    for buffer in buffers:
        prefix = f"{buffer}:".encode() if len(buffers) > 1 and not (http or as_json) else b""
        directory = BufferDirectory(buffer)
        found = 0
        with Reader(directory) as reader:
            for chunk, i, record in matches(reader, reader.resolve(parsed_place), compiled, wanted, invert=invert):
                found += 1
                if list_only:
                    break
                if count:
                    continue
                if http:
                    out.write(chunk.data[record.start : record.end])
                elif as_json:
                    out.write(encode_json(message_of(chunk.data, record, directory.tenant, directory.name)) + b"\n")
                else:
                    numbered = b"%d:" % (chunk.first + i) if number else b""
                    body = chunk.data[record.section_end : record.end - 2]
                    out.write(prefix + numbered + body + (b"\0" if null else b"\n"))
            for (first, at), reason in reader.damage.items():
                complain(NAME, f"{buffer}: {directory.segment(first).name}: byte {at}: {reason}")
                damaged = True
        if list_only and found:
            out.write(buffer.encode() + b"\n")
        elif count:
            out.write(prefix + b"%d\n" % found)
        found_any = found_any or found > 0
    out.flush()
    return 65 if damaged else 0 if found_any else 1


app = program(NAME, grep_command, "Example: hbuf-grep -i 'timeout|refused' ./orders ./payments")


def main() -> None:
    run(app, NAME)
