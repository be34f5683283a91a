"""hbuf-grep: searches the messages of buffers."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import typer

from hbuf.cli.key_options import IdentityKeys, identities_of
from hbuf.cli.place import CaCert, Cert, Options, TokenFile, place_of
from hbuf.cli.printing import Closed, Form, Printer, complain_of_damage, say_retired
from hbuf.cli.program import BuffersOrUrls, Version, program, run
from hbuf.cli.streams import complain
from hbuf.errors import Damaged, HbufError, UsageError
from hbuf.format.places import Place, parse_place
from hbuf.ops.filter import Filter, compile_pattern
from hbuf.ops.reading import open_reader
from hbuf.ops.tail import select_chunks
from hbuf.store.data_keys import Identity
from hbuf.store.opener import Opener
from hbuf.store.view import Chunk

NAME = "hbuf-grep"

Only = Literal["names", "count"] | None  # what is written instead of messages


def grep_command(
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="A regular expression.", show_default=False)],
    buffers: BuffersOrUrls,
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
    identity: IdentityKeys = None,
    cacert: CaCert = None,
    cert: Cert = None,
    token_file: TokenFile = None,
    version: Version = False,
) -> int:
    """Print messages whose body or fields match PATTERN."""
    if http and as_json:
        raise UsageError("choose one of --http and --json")
    wanted = Filter(
        os.fsencode(key) if key is not None else None,
        os.fsencode(tag) if tag is not None else None,
        compile_pattern(pattern, ignore_case=ignore_case, fixed=fixed),
        in_fields=True,
        invert=invert,
    )
    form: Form = "http" if http else "json" if as_json else "body"
    only: Only = "names" if list_only else "count" if count else None
    end, identities = b"\0" if null else b"\n", identities_of(identity)
    options = Options(cacert, cert, token_file)
    search = _Search(wanted, parse_place(place, time.time_ns() // 1000), form, end, only, number, identities, options)
    found_any, failed = False, 0
    for buffer in buffers:
        try:
            found_any = search.run(buffer, named=len(buffers) > 1) or found_any
        except HbufError as error:
            complain(NAME, error.message, error.hint)
            failed = failed or error.exit_code
    sys.stdout.flush()
    closed = search.closed.finish()
    if search.damaged:
        return Damaged.exit_code
    return failed or closed or (0 if found_any else 1)


@dataclass(slots=True)
class _Search:
    """What is looked for, and what is written of it."""

    wanted: Filter
    place: Place
    form: Form
    end: bytes
    only: Only
    number: bool
    identities: list[Identity]
    options: Options
    damaged: bool = False
    closed: Closed = field(default_factory=lambda: Closed(NAME))

    def run(self, buffer: str, *, named: bool) -> bool:
        """Writes the matches of one buffer. Returns whether there was one."""
        out = sys.stdout.buffer
        prefix = os.fsencode(buffer) + b":" if named and (self.form == "body" or self.only) else b""
        found = 0
        with open_reader(place_of(NAME, buffer, self.options)) as reader:
            printer = Printer(reader, self.form, self.end)
            opens = self.identities or (self.form == "body" and self.only is None)
            opener = Opener(reader, self.identities, self.closed.notice) if opens else None
            start, end = reader.resolve(self.place), reader.end_seq
            for chunk, places in select_chunks(reader, start, end, self.wanted, opener):
                found += len(places)
                if self.only is None:
                    out.writelines(self._lines(prefix, chunk, places, printer))
                elif self.only == "names" and found:
                    break
            say_retired(NAME, reader)
            self.damaged = complain_of_damage(NAME, reader) or self.damaged
        if self.only == "count":
            out.write(prefix + b"%d\n" % found)
        elif self.only == "names" and found:
            out.write(os.fsencode(buffer) + b"\n")
        return found > 0

    def _lines(self, prefix: bytes, chunk: Chunk, places: Sequence[int], printer: Printer) -> Iterator[bytes]:
        numbered = self.number and self.form == "body"
        for i, line in zip(places, printer.encode(chunk, places), strict=True):
            yield b"%b%d:%b" % (prefix, chunk.first + i, line) if numbered else prefix + line


app = program(NAME, grep_command, "Example: hbuf-grep -i 'timeout|refused' ./orders ./payments")


def main() -> None:
    run(app, NAME)
