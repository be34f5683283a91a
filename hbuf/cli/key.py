"""hbuf-key: makes keys, shows them, and hands public keys out and in."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hbuf.cli.key_directory import key_directory
from hbuf.cli.program import Version, program, program_of, run
from hbuf.cli.streams import complain, printable
from hbuf.errors import HbufError, UsageError
from hbuf.format.keys import KINDS
from hbuf.ops.key import KeyListing, export, import_, list_, new, show

NAME = "hbuf-key"
_COLUMNS = ("NAME", "KIND", "FINGERPRINT", "HOLDS", "BUFFER")
_MAX_INPUT_BYTES = 65_536

NewName = Annotated[str, typer.Argument(metavar="NAME", help="What it is called from now on.", show_default=False)]
Key = Annotated[str, typer.Argument(metavar="NAME", help="A key's name, or its file.", show_default=False)]


def key_command(version: Version = False) -> None:
    """Make keys, show them, and hand public keys out and in."""


def new_command(
    name: NewName,
    kind: Annotated[
        str, typer.Option("--kind", metavar="sign|encrypt|recovery", help="What it is for.", show_default=False)
    ],
) -> None:
    """Make a key."""
    if kind not in KINDS:
        raise UsageError(f"--kind: '{kind}' is not sign, encrypt or recovery")
    new(name, kind, key_directory())


def show_command(name: Key) -> None:
    """Show what may be told of a key."""
    listing = show(name, key_directory())
    values = {
        "name": listing.name,
        "file": listing.path,
        "kind": listing.kind,
        "fingerprint": listing.fingerprint,
        "public": listing.public,
        "holds": _holds(listing),
        "buffer": listing.buffer or "-",
    }
    for label, value in values.items():
        sys.stdout.write(f"{label + ':':13}{printable(value)}\n")


def list_command(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> int:
    """List the keys in the key directory."""
    code = 0

    def notice(error: HbufError) -> None:
        nonlocal code
        complain(NAME, error.message, error.hint)
        code = error.exit_code

    found = list_(key_directory(), notice)
    if as_json:
        for listing in found:
            sys.stdout.write(json.dumps(asdict(listing)) + "\n")
        return code
    rows = [_row(listing) for listing in found]
    if sys.stdout.isatty():
        rows.insert(0, _COLUMNS)
        widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
        rows = [tuple(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    for row in rows:
        sys.stdout.write(("  " if sys.stdout.isatty() else "\t").join(row).rstrip() + "\n")
    return code


def export_command(name: Key) -> None:
    """Print the public key, as one line of text."""
    sys.stdout.write(export(name, key_directory()) + "\n")


def import_command(
    name: NewName,
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="A public key or a whole key file; - is stdin.", show_default=False)
    ] = "-",
) -> None:
    """Store a public key, or a whole key file."""
    source = sys.stdin.buffer.read(_MAX_INPUT_BYTES) if file == "-" else Path(file)
    import_(name, source, key_directory())


def _holds(listing: KeyListing) -> str:
    return "secret and public key" if listing.has_secret else "public key only"


def _row(listing: KeyListing) -> tuple[str, ...]:
    holds = "secret" if listing.has_secret else "public"
    return (listing.name, listing.kind, listing.fingerprint, holds, listing.buffer or "-")


app = program_of(
    [
        program("new", new_command, "Example: hbuf-key new audit --kind sign"),
        program("show", show_command, "Example: hbuf-key show audit"),
        program("list", list_command, "Example: hbuf-key list --json"),
        program("export", export_command, "Example: hbuf-key export audit > audit.pub"),
        program("import", import_command, "Example: hbuf-key import audit audit.pub"),
    ],
    key_command,
    "Example: hbuf-key new audit --kind sign",
)


def main() -> None:
    run(app, NAME)
