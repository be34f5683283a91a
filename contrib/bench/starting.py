"""Starting each program, beside what Python and typer take by themselves."""

from __future__ import annotations

from bench.material import Material
from bench.measure import in_turns, run_process
from bench.programs import CHECKOUT, IMPORT_TYPER, hbuf_program, program_names, python_code
from bench.table import Row, time_row

_BARE = "python -c pass"


def start_rows(material: Material) -> list[Row]:
    small = material.buffer(1000)
    commands = {f"{name} --help": hbuf_program(name, "--help") for name in program_names()}
    commands["hbuf-tail -n 1 BUF"] = hbuf_program("hbuf-tail", "-n", "1", small)
    commands["bin/hbuf-tail -n 1 BUF"] = [CHECKOUT / "bin/hbuf-tail", "-n", "1", small]
    commands[_BARE], commands[IMPORT_TYPER] = python_code("pass"), python_code("import typer")
    runs = {name: (lambda argv=argv: run_process(argv)) for name, argv in commands.items()}
    found = in_turns(runs, material.short_repeats)
    bare, typer = found.pop(_BARE), found.pop(IMPORT_TYPER)
    launched = found.pop("bin/hbuf-tail -n 1 BUF")
    rows = [time_row("start", IMPORT_TYPER, typer, _BARE, bare)]
    rows += [time_row("start", name, samples, IMPORT_TYPER, typer) for name, samples in found.items()]
    direct = "hbuf-tail -n 1 BUF"
    rows.append(time_row("start", "bin/hbuf-tail -n 1 BUF", launched, direct, found[direct]))
    return rows
