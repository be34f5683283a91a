"""contrib/bench/run trust: what signing, encrypting and compressing cost, beside a plain buffer.

append   a stream of lines into a new buffer of each kind
verify   hbuf-verify of it, with one process
read     hbuf-tail of all its messages
disk     what it takes on disk
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench import table
from bench.material import Material
from bench.measure import Ran, Samples, in_turns, run_process
from bench.options import parse_options
from bench.programs import hbuf_program
from bench.table import Row, rate_row

PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of buffer: how it is made, written and read."""

    name: str
    create: tuple[str, ...] = ()
    signed: bool = False
    identity: bool = False


KINDS = (
    Kind(PLAIN),
    Kind("signed", signed=True),
    Kind("encrypted", ("--encrypt-to", "reader"), identity=True),
    Kind("signed and encrypted", ("--encrypt-to", "reader"), signed=True, identity=True),
    Kind("compressed", ("--set", "compress=true")),
)


def main() -> None:
    options = parse_options("trust", __doc__, messages=500_000, repeat=3)
    with tempfile.TemporaryDirectory(prefix="hbuf-bench-", dir=options.dir) as name:
        directory = Path(name)
        os.environ["HBUF_KEYS"] = str(directory / "keys")
        run_process(hbuf_program("hbuf-key", "new", "reader", "--kind", "encrypt"))
        material = Material(directory, options.messages, options.messages, options.repeat, options.seed)
        about = table.machine(directory)
        rows: list[Row] = []
        for size in (100, 1000):
            print(f"bench: {size} bytes", file=sys.stderr)
            rows += _rows(material, max(options.messages * 100 // size, 1), size)
    sys.stdout.write(table.as_json(about, rows) + "\n" if options.json else table.as_text(about, rows))


def _rows(material: Material, count: int, size: int) -> list[Row]:
    lines = material.lines(count, size)
    appended = in_turns({kind.name: _appender(material, kind, lines) for kind in KINDS}, material.repeats)
    verified = in_turns({kind.name: _verifier(material, kind) for kind in KINDS}, material.repeats)
    read = in_turns({kind.name: _reader(material, kind) for kind in KINDS}, material.repeats)
    rows = []
    for what, found in (("hbuf-append", appended), ("hbuf-verify, 1 process", verified), ("hbuf-tail", read)):
        rows += _beside_plain(f"{count:,} messages of {size} bytes", what, found, count)
    sizes = {kind.name: _bytes_of(_path(material, kind)) / count for kind in KINDS}
    rows += [
        Row(f"{count:,} messages of {size} bytes", f"on disk, {name}", each, "bytes", PLAIN, sizes[PLAIN])
        for name, each in sizes.items()
    ]
    return rows


def _beside_plain(group: str, what: str, found: dict[str, Samples], count: int) -> list[Row]:
    plain = found[PLAIN]
    return [
        rate_row(group, f"{what}, {name}", samples, PLAIN, plain, count, "messages/s")
        for name, samples in found.items()
    ]


def _path(material: Material, kind: Kind) -> Path:
    return material.directory / kind.name.replace(" ", "-")


def _appender(material: Material, kind: Kind, lines: Path) -> Callable[[], Ran]:
    """A fresh buffer and key each time: what is timed is the append."""
    turn = 0

    def append() -> Ran:
        nonlocal turn
        turn += 1
        path = material.fresh(_path(material, kind).name)
        key = f"{path.name}-{lines.stem}-{turn}"
        sign = ("--sign", key) if kind.signed else ()
        if sign:
            run_process(hbuf_program("hbuf-key", "new", key, "--kind", "sign"))
        run_process(hbuf_program("hbuf-create", path, *sign, *kind.create))
        return run_process(hbuf_program("hbuf-append", path, *sign), stdin=lines)

    return append


def _verifier(material: Material, kind: Kind) -> Callable[[], Ran]:
    return lambda: run_process(hbuf_program("hbuf-verify", "--jobs", "1", _path(material, kind)))


def _reader(material: Material, kind: Kind) -> Callable[[], Ran]:
    identity = ("--identity", "reader") if kind.identity else ()
    return lambda: run_process(hbuf_program("hbuf-tail", "--from", "first", *identity, _path(material, kind)))


def _bytes_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
