"""The buffers that a server has, and what it says of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hbuf.errors import NotAllowed, NotFound
from hbuf.remote import verbs
from hbuf.remote.buffer import RemoteBuffer


def find_remote(place: RemoteBuffer) -> Iterator[tuple[str, dict[str, Any]]]:
    """The URL and the status of a buffer, or of all of a tenant that may be seen, by name."""
    if place.location.buffer is not None:
        yield place.shown, verbs.status(place)
        return
    for name in verbs.buffer_names(place):
        buffer = replace(place, location=place.location.of(name))
        try:
            yield buffer.shown, verbs.status(buffer)
        except (NotFound, NotAllowed):
            continue  # it went, or our role did, since it was listed
