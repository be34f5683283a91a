"""hbuf-tail: shows messages, the last ones or from a place on, and follows."""

from __future__ import annotations

import re
import sys
import time
from typing import Annotated

import typer

from hbuf.cli.append import decode_separator
from hbuf.cli.program import Buffer, Version, complain, program, run
from hbuf.errors import UsageError
from hbuf.format.jsonlines import encode_json
from hbuf.format.message import message_of
from hbuf.format.places import parse_place
from hbuf.format.times import parse_moment
from hbuf.ops.tail import Filter, Follower, bodies, note_damage, records, select_chunks
from hbuf.store.directory import BufferDirectory
from hbuf.store.reader import Chunk, Reader

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
    version: Version = False,
) -> int:
    """Show the last messages of a buffer, or those from a place on."""
    if sum((raw, http, as_json)) > 1:
        raise UsageError("choose one of --raw, --http and --json")
    if follow and exit_at_end:
        raise UsageError("--follow and --exit-at-end contradict each other")
    if lines < 0 or (count is not None and count < 0):
        raise UsageError("a count of messages cannot be negative")
    now_us = time.time_ns() // 1000
    wanted = Filter(
        key.encode() if key is not None else None,
        tag.encode() if tag is not None else None,
        _pattern(grep),
        parse_moment(until, now_us) if until is not None else None,
    )
    end_of_each = b"\0" if null else b"\n" if separator is None else decode_separator(separator)
    directory = BufferDirectory(buffer)
    with Reader(directory) as reader:
        start = _start(reader, place, lines, since, now_us)
        printer = _Printer(directory, reader, "http" if http else "json" if as_json else "raw", end_of_each, count)
        _show(reader, start, wanted, printer, follow=follow, poll=poll)
        return _report_damage(reader)


def _start(reader: Reader, place: str | None, lines: int, since: str | None, now_us: int) -> int:
    if place is not None:
        start = reader.resolve(parse_place(place, now_us))
    elif since is not None:
        start = reader.first_seq
    else:
        start = max(reader.end_seq - lines, reader.first_seq)
    if since is not None:
        start = max(start, reader.first_at(parse_moment(since, now_us)))
    return start


def _pattern(grep: str | None) -> re.Pattern[bytes] | None:
    if grep is None:
        return None
    try:
        return re.compile(grep.encode())
    except re.error as error:
        raise UsageError(f"'{grep}' is not a regular expression: {error}") from None


class _Printer:
    """Writes chunks to standard output, whole ones at a time."""

    def __init__(self, directory: BufferDirectory, reader: Reader, form: str, end: bytes, most: int | None) -> None:
        self._directory = directory
        self._reader = reader
        self._form = form
        self._end = end
        self._left = most

    @property
    def done(self) -> bool:
        return self._left is not None and self._left <= 0

    def show(self, chunk: Chunk, places: list[int] | None) -> None:
        if self._left is not None:
            places = (list(range(len(chunk.entries))) if places is None else places)[: self._left]
            self._left -= len(places)
        if self._form == "http":
            out = b"".join(records(chunk, places))
        elif self._form == "json":
            out = b"".join(self._json(chunk, places))
        else:
            found = bodies(chunk, places)
            out = self._end.join([*found, b""]) if found else b""
        sys.stdout.buffer.write(out)

    def _json(self, chunk: Chunk, places: list[int] | None) -> list[bytes]:
        lines = []
        for i in range(len(chunk.entries)) if places is None else places:
            record = chunk.parse(i)
            if record is None:
                note_damage(self._reader, chunk, i)
            else:
                message = message_of(chunk.data, record, self._directory.tenant, self._directory.name)
                lines.append(encode_json(message) + b"\n")
        return lines


def _show(reader: Reader, start: int, wanted: Filter, printer: _Printer, *, follow: bool, poll: bool) -> None:
    follower = Follower(reader, poll=poll) if follow else None
    at, end = start, reader.end_seq
    try:
        while True:
            for chunk, places in select_chunks(reader, at, end, wanted):
                printer.show(chunk, places)
                if printer.done:
                    return
            sys.stdout.buffer.flush()
            if follower is None:
                return
            at = max(at, end)
            end = follower.wait(at)
    finally:
        if follower is not None:
            follower.close()


def _report_damage(reader: Reader) -> int:
    for (first, at), reason in reader.damage.items():
        complain(NAME, f"{reader.directory.segment(first).name}: byte {at}: {reason}")
    return 65 if reader.damage else 0


app = program(NAME, tail_command, "Example: hbuf-tail -f ./orders --key user-17 --json")


def main() -> None:
    run(app, NAME)
