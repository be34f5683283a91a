"""hbuf-append: stores messages from standard input or files."""

from __future__ import annotations

import codecs
import os
import signal
import sys
from typing import Annotated

import typer

from hbuf.cli.program import INTERRUPTED, Buffer, Timeout, Version, noticer, program, run, seconds
from hbuf.errors import HbufError, UsageError
from hbuf.format.fields import check_value, encode_fields
from hbuf.ops.append import HttpParser, JsonParser, LineParser, Parser, Sending, Stop, append_stream
from hbuf.ops.create import create
from hbuf.store.directory import BufferDirectory
from hbuf.store.outgoing import Appended
from hbuf.store.writer import Writer

NAME = "hbuf-append"


def append_command(
    buffer: Buffer,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="Each is one message; - is standard input.", show_default=False),
    ] = None,
    null: Annotated[bool, typer.Option("--null", "-0", help="Messages end with NUL, not newline.")] = False,
    separator: Annotated[
        str | None, typer.Option("--separator", "-D", metavar="SEP", help="Messages end with SEP (\\n, \\t, \\x1e).")
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="Read a stream of HTTP requests.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Read the lines that hbuf-tail --json writes.")] = False,
    key: Annotated[str | None, typer.Option("--key", "-k", metavar="KEY", help="The messages' key.")] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", metavar="T", help="A tag (repeatable).")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="A field, as in curl.")
    ] = None,
    producer: Annotated[
        str | None, typer.Option("--producer", metavar="NAME", help="Who sends, so that sending again is safe.")
    ] = None,
    producer_seq: Annotated[
        int | None, typer.Option("--producer-seq", metavar="N", help="Its number for the first message.")
    ] = None,
    strict_seq: Annotated[bool, typer.Option("--strict-seq", help="Refuse gaps in a producer's numbers.")] = False,
    atomic: Annotated[bool, typer.Option("--atomic", help="All of the input is stored, or nothing.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print SEQ ID of each, once durable.")] = False,
    fsync: Annotated[
        str, typer.Option("--fsync", metavar="always|batch|never", help="When to sync to disk.")
    ] = "batch",
    linger: Annotated[
        str, typer.Option("--linger", metavar="TIME", help="Longest wait for more from a slow pipe.")
    ] = "100ms",
    timeout: Timeout = "30s",
    no_create: Annotated[bool, typer.Option("--no-create", help="Do not make a missing buffer.")] = False,
    version: Version = False,
) -> int:
    """Append messages: a line each from standard input, or each FILE as one."""
    parser = _parser(null, separator, http, as_json)
    if fsync not in ("always", "batch", "never"):
        raise UsageError(f"--fsync: '{fsync}' is not always, batch or never")
    if (producer is None) != (producer_seq is None):
        raise UsageError("--producer and --producer-seq come together")
    if producer_seq is not None and not 0 <= producer_seq < 10**18:
        raise UsageError("--producer-seq is a number from 0 on")
    if files and (http or as_json or atomic):
        raise UsageError("--http, --json and --atomic are for standard input")
    if (http or as_json) and (key is not None or tag or header):
        raise UsageError("--key, --tag and --header do not go with --http or --json")
    fields = encode_fields(key, tag or [], [_header(line) for line in header or []])
    linger_seconds, timeout_seconds = seconds(linger), seconds(timeout)
    if not no_create and not BufferDirectory(buffer).exists():
        create(buffer, may_exist=True)
    stop = _stop_on_signals()
    writer = Writer(
        BufferDirectory(buffer),
        sync=fsync != "never",
        timeout_seconds=timeout_seconds,
        notice=noticer(f"{NAME}: {buffer}"),
    )
    sending = Sending(
        writer,
        fields,
        check_value("producer", producer) if producer is not None else None,
        producer_seq or 0,
        strict_seq,
        one_by_one=fsync == "always",
        timeout_seconds=timeout_seconds,
        receipts=_print_receipts if verbose else lambda appended: None,
    )
    try:
        with writer:
            if files:
                _append_files(files, sending)
            else:
                append_stream(0, parser, sending, linger_seconds=linger_seconds, atomic=atomic, stop=stop)
    except HbufError as error:
        if sending.stored or not files:
            error.message += f"; {sending.stored} messages were stored"
        raise
    return INTERRUPTED if stop.signal == signal.SIGINT else 0


def _parser(null: bool, separator: str | None, http: bool, as_json: bool) -> Parser:
    if sum((null, separator is not None, http, as_json)) > 1:
        raise UsageError("choose one of --null, --separator, --http and --json")
    if http:
        return HttpParser()
    if as_json:
        return JsonParser()
    if null:
        return LineParser(b"\0")
    if separator is None:
        return LineParser(b"\n")
    decoded = decode_separator(separator)
    if not decoded:
        raise UsageError("--separator cannot be empty here")
    return LineParser(decoded)


def decode_separator(text: str) -> bytes:
    """Bytes of a separator, with \\n, \\t, \\0 and \\xHH understood."""
    try:
        decoded, _ = codecs.escape_decode(os.fsencode(text))
    except ValueError:
        raise UsageError(f"'{text}' is not a separator") from None
    return bytes(decoded)


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon:
        raise UsageError(f"'{line}' is not a field", hint="write it like 'content-type: text/plain'")
    return name, value.strip(" \t")


def _append_files(files: list[str], sending: Sending) -> None:
    for file in files:
        try:
            if file == "-":
                body = sys.stdin.buffer.read()
            else:
                with open(file, "rb") as opened:
                    body = opened.read()
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror}") from None
        sending.send([body])


def _print_receipts(appended: Appended) -> None:
    lines = [
        f"{seq} duplicate\n" if place in appended.duplicates else f"{seq} {record_id.decode()}\n"
        for place, (seq, record_id) in enumerate(zip(appended.seqs, appended.ids, strict=True))
    ]
    sys.stdout.write("".join(lines))
    sys.stdout.flush()


def _stop_on_signals() -> Stop:
    """SIGTERM and SIGINT finish the line; what was read is stored."""
    stop = Stop()
    signal.signal(signal.SIGTERM, stop.ask)
    signal.signal(signal.SIGINT, stop.ask)
    return stop


app = program(NAME, append_command, "Example: journalctl -o json | hbuf-append ./journal --tag host=web1")


def main() -> None:
    run(app, NAME)
