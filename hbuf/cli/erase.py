"""hbuf-erase: erases messages for good, with the chain intact."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from hbuf.cli.key_options import SignKey, signer_of
from hbuf.cli.place import CaCert, Cert, Options, TokenFile, place_of, refuse_for_url
from hbuf.cli.program import Buffer, Timeout, Version, noticer, program, run, seconds
from hbuf.cli.streams import printable
from hbuf.errors import UsageError
from hbuf.format.message import Message
from hbuf.format.times import encode_time
from hbuf.ops.erase import Erasing, apply_list, candidates, erase, list_erased, parse_numbers
from hbuf.store.fsops import os_errors

NAME = "hbuf-erase"


def erase_command(
    buffer: Buffer,
    numbers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SEQ]...", help="Messages by number: 7, or 10-20.", show_default=False),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="All messages with this key.")] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why; it stays in the log for good.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Erase nothing: print what would go.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: one JSON object a line.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="Print what was erased, for --apply.")] = False,
    apply: Annotated[
        str | None,
        typer.Option("--apply", metavar="LIST", help="Erase again, in a restored backup, what LIST names; - is stdin."),
    ] = None,
    sign: SignKey = None,
    timeout: Timeout = "30s",
    cacert: CaCert = None,
    cert: Cert = None,
    token_file: TokenFile = None,
    version: Version = False,
) -> None:
    """Erase messages for good. Number, time and length stay, and who erased it why."""
    if sum((bool(numbers), key is not None, listing, apply is not None)) != 1:
        raise UsageError("choose one of SEQ, --key, --list and --apply")
    if dry_run and (listing or apply is not None):
        raise UsageError("--dry-run goes with SEQ or --key")
    if as_json and not dry_run:
        raise UsageError("--json goes with --dry-run")
    refuse_for_url(buffer, "--sign", sign, "the server signs with its own key")
    place = place_of(NAME, buffer, Options(cacert, cert, token_file))
    if listing:
        sys.stdout.buffer.write(list_erased(place))
        return
    wanted = key if key is not None else parse_numbers(numbers or [])
    if dry_run:
        _print(candidates(place, wanted), as_json)
        return
    if reason is None:
        raise UsageError("a --reason is needed to erase", hint="it stays in the log, so name nobody in it")
    erasing = Erasing(reason, seconds(timeout), signer_of(sign), noticer(f"{NAME}: {buffer}"))
    if apply is not None:
        apply_list(place, _read(apply), erasing)
    else:
        erase(place, wanted, erasing)


def _read(path: str) -> bytes:
    with os_errors(path), open(0 if path == "-" else path, "rb", closefd=path != "-") as file:
        return file.read()


def _print(found: Iterator[Message], as_json: bool) -> None:
    if as_json:
        for message in found:
            time = encode_time(message.time_us)
            sys.stdout.write(json.dumps({"seq": message.seq, "time": time, "key": message.key}) + "\n")
        return
    rows = ((str(message.seq), encode_time(message.time_us), printable(message.key or "-")) for message in found)
    if sys.stdout.isatty():
        _print_table([("SEQ", "TIME", "KEY"), *rows])
    else:
        sys.stdout.writelines("\t".join(row) + "\n" for row in rows)


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")


app = program(NAME, erase_command, "Example: hbuf-erase ./orders --key user-17 --reason 'asked for it, case 311'")


def main() -> None:
    run(app, NAME)
