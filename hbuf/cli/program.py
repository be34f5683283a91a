"""What every program shares: how it runs, how errors are shown, and what its exit code is."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, NoReturn

import typer

from hbuf.cli.streams import complain, drop_stdout, finish, open_standard_streams
from hbuf.errors import Damaged, HbufError, StorageFailed
from hbuf.format.times import parse_duration_seconds

# typer brings its own click under one name or another: its exceptions are found through what it exports.
_ClickUsageError: type[Exception] = typer.BadParameter.__mro__[1]
_ClickException: type[Exception] = typer.BadParameter.__mro__[2]

INTERRUPTED = 130


def program(name: str, function: Callable[..., Any], epilog: str) -> typer.Typer:
    """A typer app of one command. `epilog` is its example."""
    app = typer.Typer(
        name=name,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help"], "max_content_width": 100},
    )
    app.command(name=name, epilog=epilog)(_quiet_on_closed_pipe(function))
    return app


def program_of(subcommands: Sequence[typer.Typer], overview: Callable[..., Any], epilog: str) -> typer.Typer:
    """One program of several, each of which is a `program` by itself."""
    app, *others = subcommands
    for other in others:
        app.registered_commands += other.registered_commands
    app.callback(epilog=epilog)(overview)
    return app


class _PipeClosed(Exception):
    """Nobody reads what is written any more. typer would make an exit code of its own of the system's error."""


def _quiet_on_closed_pipe(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run_function(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except BrokenPipeError:
            raise _PipeClosed from None

    return run_function


def run(app: typer.Typer, name: str) -> NoReturn:
    """Runs a program and exits: one line for an error, quiet when a pipe is closed, never a traceback."""
    open_standard_streams()
    try:
        code = _run(app, name)
    except (BrokenPipeError, _PipeClosed):
        code = 0
    sys.exit(finish(name, code))


def _run(app: typer.Typer, name: str) -> int:
    try:
        code = app(prog_name=name, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except HbufError as error:
        complain(name, error.message, error.hint)
        return error.exit_code
    except typer.Exit as done:
        return done.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except _ClickUsageError as error:
        complain(name, _one_line(error), f"{name} --help")
        return 2
    except _ClickException as error:
        complain(name, _one_line(error))
        return 2
    except (BrokenPipeError, _PipeClosed):
        raise
    except SystemExit:
        raise _PipeClosed from None  # typer exits by itself only where it could not write its own help
    except Exception as error:
        if os.environ.get("HBUF_DEBUG"):
            raise
        if isinstance(error, OSError):
            # What fails in a buffer comes as an HbufError; what is left is what a program writes.
            drop_stdout()
            complain(name, f"{error.filename or 'standard output'}: {error.strerror or error}")
            return StorageFailed.exit_code
        complain(name, f"{type(error).__name__}: {error}")
        return 70


def noticer(name: str) -> Callable[[str], None]:
    """For what an op has to say beside its result."""
    return lambda line: complain(name, line)


def each_buffer(name: str, buffers: Iterable[str], work: Callable[[str], int]) -> int:
    """Does `work`, which returns an exit code, for every buffer: one that fails is told, and the others go on.

    Returns the first code that is not 0, unless one of them is damaged, which is the worst.
    """
    worst = 0
    for buffer in buffers:
        try:
            code = work(buffer)
        except HbufError as error:
            complain(name, error.message, error.hint)
            code = error.exit_code
        worst = code if code == Damaged.exit_code else worst or code
    return worst


def _one_line(error: Exception) -> str:
    message = getattr(error, "format_message", lambda: str(error))()
    return " ".join(str(message).split())


def _show_version(wanted: bool) -> None:
    if wanted:
        from hbuf.version import VERSION

        typer.echo(f"hbuf {VERSION}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
]
Timeout = Annotated[
    str, typer.Option("--timeout", metavar="TIME", help="How long to wait for a paused or locked buffer.")
]
Buffer = Annotated[str, typer.Argument(metavar="BUF", help="A buffer: directory, or URL.", show_default=False)]
Buffers = Annotated[list[str], typer.Argument(metavar="BUF...", help="Buffers' directories.", show_default=False)]
BuffersOrUrls = Annotated[
    list[str], typer.Argument(metavar="BUF...", help="Buffers: directories, or URLs.", show_default=False)
]


def seconds(text: str) -> float:
    return parse_duration_seconds(text)


def assignments(values: list[str]) -> dict[str, str]:
    """NAME=VALUE pairs."""
    pairs = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals:
            raise typer.BadParameter(f"'{value}' is not NAME=VALUE")
        pairs[name] = text
    return pairs
