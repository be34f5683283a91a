"""hbuf-ls: lists buffers."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from hbuf.cli.place import CaCert, Cert, Options, TokenFile, place_of
from hbuf.cli.program import Version, program, run
from hbuf.cli.streams import complain, printable
from hbuf.errors import HbufError
from hbuf.format.times import encode_time
from hbuf.ops.ls import Listing, find_listings, listing_values

NAME = "hbuf-ls"
_COLUMNS = ("NAME", "FIRST", "LAST", "BYTES", "SEGMENTS", "NEWEST", "STATE")


def ls_command(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH]...", help="Buffers, trees of them, or URLs.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    cacert: CaCert = None,
    cert: Cert = None,
    token_file: TokenFile = None,
    version: Version = False,
) -> int:
    """List buffers with their numbers, sizes, times and state."""
    code = 0

    def notice(error: HbufError) -> None:
        nonlocal code
        complain(NAME, error.message, error.hint)
        code = error.exit_code

    found: list[Listing] = []
    for path in paths or ["."]:
        try:
            place = place_of(NAME, path, Options(cacert, cert, token_file), whole_tenant=True)
            found += find_listings(place, notice)
        except HbufError as error:
            notice(error)
    _print(found, as_json)
    return code


def _print(found: list[Listing], as_json: bool) -> None:
    if as_json:
        for listing in found:
            sys.stdout.write(_json(listing) + "\n")
        return
    rows = [_COLUMNS, *map(_row, found)] if sys.stdout.isatty() else list(map(_row, found))
    if sys.stdout.isatty():
        widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
        for row in rows:
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            sys.stdout.write(line.rstrip() + "\n")
    else:
        for row in rows:
            sys.stdout.write("\t".join(row) + "\n")


def _row(listing: Listing) -> tuple[str, ...]:
    newest = encode_time(listing.newest_us)[:19] + "Z" if listing.newest_us is not None else "-"
    return (
        printable(listing.shown),
        str(listing.first),
        str(listing.last),
        str(listing.bytes),
        str(listing.segments),
        newest,
        listing.state + (" (stale pause)" if listing.stale_pause else ""),
    )


def _json(listing: Listing) -> str:
    return json.dumps(listing_values(listing))


app = program(NAME, ls_command, "Example: hbuf-ls /var/lib/hbuf")


def main() -> None:
    run(app, NAME)
