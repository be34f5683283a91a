"""hbuf-tail: shows messages, the last ones or from a place on, and follows."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from hbuf.cli.key_options import IdentityKeys, identities_of
from hbuf.cli.place import CaCert, Cert, Options, TokenFile, place_of
from hbuf.cli.printing import Closed, Form, Printer, complain_of_damage, say_retired
from hbuf.cli.program import Buffer, Version, program, run
from hbuf.cli.separators import decode_separator
from hbuf.cli.streams import complain
from hbuf.errors import Damaged, UsageError
from hbuf.format.places import parse_place
from hbuf.format.times import parse_moment
from hbuf.ops.filter import Filter, compile_pattern
from hbuf.ops.reading import Readable, open_reader
from hbuf.ops.tail import follower_of, select_chunks
from hbuf.store.opener import Opener
from hbuf.store.view import Chunk

NAME = "hbuf-tail"


def tail_command(
    buffer: Buffer,
    lines: Annotated[int, typer.Option("--lines", "-n", metavar="N", help="The last N messages.")] = 10,
    place: Annotated[
        str | None,
        typer.Option("--from", "-o", metavar="PLACE", help="From PLACE on: first, last, end, N, -N, @TIME, @10m."),
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-c", metavar="COUNT", help="At most COUNT messages.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as messages come.")] = False,
    poll: Annotated[bool, typer.Option("--poll", help="Look now and then: for network file systems.")] = False,
    exit_at_end: Annotated[bool, typer.Option("--exit-at-end", "-e", help="Stop at the end as it is now.")] = False,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Not earlier than TIME.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Earlier than TIME.")] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only messages with this key.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="T", help="Only messages with this tag.")] = None,
    grep: Annotated[
        str | None, typer.Option("--grep", "-g", metavar="REGEX", help="Only messages whose body matches.")
    ] = None,
    null: Annotated[bool, typer.Option("--null", "-0", help="End each with NUL, not newline.")] = False,
    separator: Annotated[
        str | None, typer.Option("--separator", "-D", metavar="SEP", help="End each with SEP; '' for nothing.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Bodies; the default.")] = False,
    http: Annotated[bool, typer.Option("--http", help="Records as they are stored.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    identity: IdentityKeys = None,
    cacert: CaCert = None,
    cert: Cert = None,
    token_file: TokenFile = None,
    version: Version = False,
) -> int:
    """Show the last messages of a buffer, or those from a place on."""
    if sum((raw, http, as_json)) > 1:
        raise UsageError("choose one of --raw, --http and --json")
    if (null and separator is not None) or ((null or separator is not None) and (http or as_json)):
        raise UsageError("--null and --separator are for bodies, and one of them is enough")
    if follow and exit_at_end:
        raise UsageError("--follow and --exit-at-end contradict each other")
    if lines < 0 or (count is not None and count < 0):
        raise UsageError("a count of messages cannot be negative")
    now_us = time.time_ns() // 1000
    wanted = Filter(
        os.fsencode(key) if key is not None else None,
        os.fsencode(tag) if tag is not None else None,
        compile_pattern(grep) if grep is not None else None,
    )
    end_of_each = b"\0" if null else b"\n" if separator is None else decode_separator(separator)
    with open_reader(place_of(NAME, buffer, Options(cacert, cert, token_file))) as reader:
        until_us = parse_moment(until, now_us) if until is not None else None
        start = _start(reader, place, lines, since, until_us, now_us)
        form: Form = "http" if http else "json" if as_json else "body"
        identities, closed = identities_of(identity), Closed(NAME)
        opener = Opener(reader, identities, closed.notice) if identities or form == "body" else None
        source = _Source(reader, wanted, opener, until_us)
        printer = Printer(reader, form, end_of_each)
        _show(source, start, printer, count, follow=follow, poll=poll)
        if printer.first_erased == start and place == str(start):
            complain(NAME, f"{buffer}: message {start} is erased")
        say_retired(NAME, reader)
        code = closed.finish()
        return Damaged.exit_code if complain_of_damage(NAME, reader) else code


@dataclass(frozen=True, slots=True)
class _Source:
    """What is read, and how far."""

    reader: Readable
    wanted: Filter
    opener: Opener | None
    until_us: int | None

    def end(self) -> int:
        return _end(self.reader, self.until_us)

    def chunks(self, start: int, end: int) -> Iterator[tuple[Chunk, Sequence[int]]]:
        return select_chunks(self.reader, start, end, self.wanted, self.opener)


def _end(reader: Readable, until_us: int | None) -> int:
    return reader.end_seq if until_us is None else min(reader.first_at(until_us), reader.end_seq)


def _start(
    reader: Readable, place: str | None, lines: int, since: str | None, until_us: int | None, now_us: int
) -> int:
    if place is not None:
        start = reader.resolve(parse_place(place, now_us))
    elif since is not None:
        start = reader.first_seq
    else:
        start = reader.back(lines, _end(reader, until_us))
    if since is not None:
        start = max(start, reader.first_at(parse_moment(since, now_us)))
    return start


def _show(source: _Source, start: int, printer: Printer, most: int | None, *, follow: bool, poll: bool) -> None:
    reader = source.reader
    follower = follower_of(reader, source.wanted, poll=poll) if follow else None
    out = sys.stdout.buffer
    at, end = start, source.end()
    left = sys.maxsize if most is None else most
    try:
        while left:
            for chunk, places in source.chunks(at, end):
                lines = printer.encode(chunk, places[:left])
                out.write(b"".join(lines))
                left -= len(lines)
                if not left:
                    return
            out.flush()
            say_retired(NAME, reader)
            if follower is None or end < reader.end_seq:
                return
            at = max(at, end)
            follower.wait(at)
            end = source.end()
    finally:
        if follower is not None:
            follower.close()


app = program(NAME, tail_command, "Example: hbuf-tail -f ./orders --key user-17 --json")


def main() -> None:
    run(app, NAME)
