"""The buffer that an argument names: a directory, or a URL with what is needed to get in there."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

import typer

from hbuf.cli.streams import complain
from hbuf.errors import UsageError
from hbuf.remote.access import Options as Options
from hbuf.remote.buffer import RemoteBuffer
from hbuf.remote.location import is_url, parse_location

CaCert = Annotated[str | None, typer.Option("--cacert", metavar="FILE", help="URL: the CA to trust.")]
Cert = Annotated[str | None, typer.Option("--cert", metavar="FILE", help="URL: our certificate, and its key.")]
TokenFile = Annotated[str | None, typer.Option("--token-file", metavar="FILE", help="URL: the file of our token.")]
Place = str | RemoteBuffer


def place_of(program: str, argument: str, options: Options, *, whole_tenant: bool = False) -> Place:
    """A directory as it is given, or the buffer that a URL names. With `whole_tenant` the URL may name all buffers."""
    if not is_url(argument):
        return argument
    from hbuf.remote.client_settings import access_for

    location = parse_location(argument, whole_tenant=whole_tenant)
    return RemoteBuffer(location, access_for(location, options, os.environ), _noticer(program, argument))


def refuse_for_url(argument: str, option: str, given: object, hint: str | None = None) -> None:
    """For options that only a directory can serve."""
    if given and is_url(argument):
        raise UsageError(f"{option} is for a directory, and {argument} is a URL", hint=hint)


def _noticer(program: str, argument: str) -> Callable[[str], None]:
    return lambda line: complain(program, f"{argument}: {line}")
