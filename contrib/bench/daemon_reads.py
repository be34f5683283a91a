"""Reading all of a buffer from the daemon by one client, beside reading its segment files."""

from __future__ import annotations

from functools import partial

from bench.daemon_place import Place
from bench.loading import Read, append_load, read_files, read_load
from bench.measure import Ran, in_turns
from bench.serving.hbufd import HTTPS, UNIX, segment_files
from bench.table import Row, rate_row

_FILES = "read() of its files"
_FORMS = ("application/http", "application/x-ndjson", "application/octet-stream")
_BATCH = 1000
_FILL_SECONDS = 600


def read_rows(place: Place) -> list[Row]:
    """The files are in the cache: what is compared is what the daemon makes of them."""
    server = place.servers[UNIX]
    with place.targets(server, 1) as (buffer,):
        filled = append_load(server, [buffer], clients=1, batch=_BATCH, seconds=_FILL_SECONDS, most=place.messages)
    files = segment_files(place.directory, buffer)
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    runs = {
        f"{name}, {form.partition('/')[2]}": partial(read_load, place.servers[name], buffer, filled.messages, form)
        for name in (HTTPS, UNIX)
        for form in _FORMS
    }
    reads = {name: (lambda read=read: _timed(read())) for name, read in runs.items()}
    found = in_turns(
        reads | {_FILES: lambda: _timed(read_files(files))}, place.repeats, quick=[_FILES], warm_ups=place.warm_ups
    )
    group = f"read {filled.messages:,} messages, {megabytes:,.0f} MB"
    return [
        rate_row(group, name, found[name], _FILES, found[_FILES], amount, unit)
        for name in runs
        for amount, unit in ((filled.messages, "messages/s"), (megabytes, "MB/s of segments"))
    ]


def _timed(read: Read) -> Ran:
    return Ran(read.seconds)
