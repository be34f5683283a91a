"""hbufd: serves buffers over HTTPS."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from hbuf.cli.program import Version, program, run
from hbuf.cli.streams import complain
from hbuf.store.state_root import state_root

NAME = "hbufd"


def _default_root() -> Path:
    return state_root(os.environ)


def hbufd_command(
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings, as TOML.")] = None,
    root: Annotated[
        Path | None, typer.Option("--root", metavar="DIR", help="Where buffers, users and keys are kept.")
    ] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option("--listen", metavar="HOST:PORT", help="Serve HTTPS there, by default 127.0.0.1:4280. Repeatable."),
    ] = None,
    unix: Annotated[
        Path | None, typer.Option("--unix", metavar="PATH", help="Serve plain HTTP on this Unix socket, too.")
    ] = None,
    check_config: Annotated[
        bool, typer.Option("--check-config", help="Say what is wrong with the settings, and exit.")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print all settings as they are in effect, as TOML, and exit.")
    ] = False,
    version: Version = False,
) -> None:
    """Serve buffers over HTTPS. The first start makes certificates and an administrator's token."""
    from hbuf.daemon.config_file import Flags, WrongConfig, encode_config, load_config

    flags = Flags(root, tuple(listen or ()), unix)

    try:
        settings = load_config(config, flags, _default_root)
    except WrongConfig as error:
        if not check_config:
            raise
        for problem in error.problems:
            complain(NAME, problem)
        raise typer.Exit(error.exit_code) from None
    if print_config:
        typer.echo(encode_config(settings), nl=False)
    if check_config or print_config:
        return
    from hbuf.daemon.server import serve

    serve(settings, lambda: load_config(config, flags, _default_root))


app = program(NAME, hbufd_command, "Example: hbufd --root ./srv --listen 127.0.0.1:4280")


def main() -> None:
    run(app, NAME)
