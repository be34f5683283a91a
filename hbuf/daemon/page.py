"""The status page for people: plain HTML without scripts. All that comes from elsewhere is escaped."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence

from hbuf.format.times import encode_time
from hbuf.ops.ls import Listing

_STYLE = """
:root { color-scheme: light dark; font-family: system-ui, sans-serif; }
body { margin: 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .4rem .6rem; text-align: left; border-bottom: 1px solid #8886; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.paused, .closed { color: #b60; } .damaged { color: #c00; font-weight: bold; }
@media (max-width: 40rem) {
  thead { display: none; }
  tr { display: block; margin-bottom: 1rem; border-bottom: 2px solid #8886; }
  td, td.n { display: flex; justify-content: space-between; gap: 1rem; text-align: right; border: 0; }
  td::before { content: attr(data-label); text-align: left; opacity: .7; }
}
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HTML_HEADERS = [
    (
        "content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'; sandbox",
    ),
    ("referrer-policy", "no-referrer"),
]
_COLUMNS = ("buffer", "first", "last", "bytes", "segments", "newest", "state")
_NUMBERS = ("first", "last", "bytes", "segments")


def as_html(tenant: str, user: str, found: Sequence[Listing]) -> bytes:
    head = "".join(f"<th{_class(name)}>{name}</th>" for name in _COLUMNS)
    rows = "".join(f"<tr>{_html_cells(listing)}</tr>\n" for listing in found)
    shown_tenant, shown_user = html.escape(tenant), html.escape(user)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>hbuf: {shown_tenant}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{shown_tenant}</h1>\n<p>{len(found)} buffers, as {shown_user} may see them</p>\n"
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</body>\n</html>\n"
    ).encode("utf-8", "replace")


def _html_cells(listing: Listing) -> str:
    cells = zip(_COLUMNS, _row(listing), strict=True)
    return "".join(f'<td{_class(name, listing)} data-label="{name}">{html.escape(value)}</td>' for name, value in cells)


def _class(name: str, listing: Listing | None = None) -> str:
    if name in _NUMBERS:
        return ' class="n"'
    return f' class="{html.escape(listing.state)}"' if listing is not None and name == "state" else ""


def as_text(tenant: str, found: Sequence[Listing]) -> bytes:
    rows = [_COLUMNS, *map(_row, found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([f"tenant {tenant}", *lines, ""]).encode("utf-8", "replace")


def _row(listing: Listing) -> tuple[str, ...]:
    newest = encode_time(listing.newest_us)[:19] + "Z" if listing.newest_us is not None else "-"
    return (
        listing.name,
        str(listing.first),
        str(listing.last),
        str(listing.bytes),
        str(listing.segments),
        newest,
        listing.state,
    )
