"""hbuf-append: stores messages from standard input or files."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from hbuf.cli.key_options import EncryptTo, SignKey, recipients_of, signer_of
from hbuf.cli.place import CaCert, Cert, Options, TokenFile, place_of, refuse_for_url
from hbuf.cli.program import INTERRUPTED, Buffer, Timeout, Version, noticer, program, run, seconds
from hbuf.cli.separators import decode_separator
from hbuf.cli.streams import counted, drop_stdout
from hbuf.errors import BadInput, HbufError, ProducerGap, UsageError
from hbuf.format.fields import encode_fields, encode_producer
from hbuf.ops.append import Appender, Sending, Stop, append_files, append_stream
from hbuf.ops.create import create
from hbuf.ops.inputs import HttpParser, JsonParser, LineParser, Parser
from hbuf.ops.set import read_settings
from hbuf.remote.buffer import RemoteBuffer
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
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
    sign: SignKey = None,
    encrypt_to: EncryptTo = None,
    cacert: CaCert = None,
    cert: Cert = None,
    token_file: TokenFile = None,
    no_create: Annotated[bool, typer.Option("--no-create", help="Do not make a missing buffer.")] = False,
    version: Version = False,
) -> int:
    """Append messages: a line each from standard input, or each FILE as one."""
    separated_by = _separator(null, separator, http, as_json)
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
    producer_name = encode_producer(producer) if producer is not None else None
    fields = encode_fields(key, tag or [], [_header(line) for line in header or []])
    linger_seconds, timeout_seconds = seconds(linger), seconds(timeout)
    refuse_for_url(buffer, "--sign", sign, "the server signs with its own key")
    refuse_for_url(buffer, "--fsync never", fsync == "never", "a server answers when it is durable")
    place = place_of(NAME, buffer, Options(cacert, cert, token_file))
    recipients = recipients_of(encrypt_to)
    signer = signer_of(sign)
    for file in files or []:
        with os_errors(file):
            os.stat(0 if file == "-" else file)
    if not no_create and isinstance(place, str) and not BufferDirectory(place).exists():
        create(place, may_exist=True, signer=signer, recipients=recipients)
    settings = read_settings(place)
    if not set(recipients) <= set(settings.recipients):
        hint = "hbuf-set --encrypt-to adds a recipient, for what comes after"
        raise UsageError(f"{buffer}: is not encrypted to the key that --encrypt-to names", hint=hint)
    limit_bytes = settings.most_body_bytes
    writer: Appender
    if isinstance(place, RemoteBuffer):
        writer = _remote_writer(place, timeout_seconds, receipts=verbose)
    else:
        writer = Writer(
            BufferDirectory(place),
            sync=fsync != "never",
            timeout_seconds=timeout_seconds,
            notice=noticer(f"{NAME}: {buffer}"),
            signer=signer,
        )
    sending = Sending(
        writer,
        fields,
        producer_name,
        producer_seq or 0,
        strict_seq,
        one_by_one=fsync == "always",
        timeout_seconds=timeout_seconds,
        receipts=_print_receipts if verbose else lambda appended: None,
    )
    try:
        with writer, _stop_on_signals(timeout_seconds) as stop:
            if files:
                append_files(files, sending, limit_bytes)
            else:
                new_parser = _parser_maker(separated_by, http, limit_bytes)
                append_stream(0, new_parser, sending, linger_seconds=linger_seconds, atomic=atomic, stop=stop)
            return INTERRUPTED if stop.signal == signal.SIGINT else 0
    except HbufError as error:
        if isinstance(error, BadInput | ProducerGap) and not error.message.startswith(f"{buffer}: "):
            error.message = f"{buffer}: {error.message}"
        if sending.stored or not files:
            error.message += f"; {counted(sending.stored, 'message was', 'messages were')} stored"
        raise


def _remote_writer(buffer: RemoteBuffer, timeout_seconds: float, *, receipts: bool) -> Appender:
    from hbuf.remote.writer import RemoteWriter

    return RemoteWriter(buffer.connect(timeout_seconds), receipts=receipts)


def _separator(null: bool, separator: str | None, http: bool, as_json: bool) -> bytes | None:
    """What ends a message; None where the input is not cut by a separator."""
    if sum((null, separator is not None, http, as_json)) > 1:
        raise UsageError("choose one of --null, --separator, --http and --json")
    if http or as_json:
        return None
    decoded = b"\0" if null else b"\n" if separator is None else decode_separator(separator)
    if not decoded:
        raise UsageError("--separator cannot be empty here")
    return decoded


def _parser_maker(separator: bytes | None, http: bool, limit_bytes: int) -> Callable[[], Parser]:
    if separator is not None:
        return lambda: LineParser(separator, limit_bytes)
    return lambda: HttpParser(limit_bytes) if http else JsonParser(limit_bytes)


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon:
        raise UsageError(f"'{line}' is not a field", hint="write it like 'content-type: text/plain'")
    return name, value.strip(" \t")


def _print_receipts(appended: Appended) -> None:
    lines = [
        f"{seq or '-'} duplicate\n" if place in appended.duplicates else f"{seq} {record_id.decode()}\n"
        for place, (seq, record_id) in enumerate(zip(appended.seqs, appended.ids, strict=True))
    ]
    try:
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
    except BrokenPipeError:
        drop_stdout()  # nobody reads the receipts; the messages are stored all the same


@contextlib.contextmanager
def _stop_on_signals(patience_seconds: float) -> Iterator[Stop]:
    """SIGTERM and SIGINT finish the line; what was read is stored."""
    stop = Stop(patience_seconds)
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.close()


app = program(NAME, append_command, "Example: journalctl -o json | hbuf-append ./journal --tag host=web1")


def main() -> None:
    run(app, NAME)
