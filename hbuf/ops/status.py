"""What there is to say of one buffer: its numbers and state, who paused or closed it, what a producer sent last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hbuf.format.chain import ZERO_ID
from hbuf.format.fields import encode_producer
from hbuf.ops.ls import list_buffer, listing_values
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
from hbuf.store.markers import Marker, read_marker
from hbuf.store.reader import Reader
from hbuf.store.seal import producers_until
from hbuf.store.tail import newest_opening


@dataclass(frozen=True, slots=True)
class QuickStatus:
    uuid: str
    state: str  # open, paused, closed
    last_id: str | None  # of the last numbered record; None where that is damaged


def quick_status(reader: Reader) -> QuickStatus:
    """What can be said without looking at any segment but the newest."""
    directory = reader.directory
    with os_errors(directory.shown):
        state = "open"
        pause = read_marker(directory.paused)
        if pause is not None and not pause.stale:
            state = "paused"
        elif read_marker(directory.closed) is not None:
            state = "closed"
        return QuickStatus(newest_opening(directory).settings.uuid, state, last_id(reader))


def last_id(reader: Reader) -> str | None:
    """The id of the last numbered record, zeros where there is none yet, None where it is damaged."""
    last = reader.end_seq - 1
    if last < 1:
        return ZERO_ID.decode()
    for chunk in reader.chunks(last, last + 1):
        record = chunk.parse(0)
        return record.id.decode() if record is not None else None
    opening = newest_opening(reader.directory)  # a new segment without a message: it names what it follows
    return opening.prev.decode() if opening.first == last + 1 else None


def status(reader: Reader, producer: str | None = None) -> dict[str, Any]:
    """What `hbuf-ls --json` prints and more, but not where the buffer lies."""
    directory = reader.directory
    with os_errors(directory.shown):
        values = listing_values(list_buffer(directory))
        del values["path"]
        opening = newest_opening(directory)
        settings = opening.settings
        pause = read_marker(directory.paused)
        values |= {
            "uuid": settings.uuid,
            "id": last_id(reader),
            "signed": opening.keys.sign is not None,
            "encrypted": bool(settings.recipients),
            "erasable": settings.erasable,
            "paused": marker_values(None if pause is None or pause.stale else pause),
            "closed": marker_values(read_marker(directory.closed)),
        }
        if producer is not None:
            values["producer"] = _last_of(directory, encode_producer(producer), reader.end_seq - 1)
    return values


def marker_values(marker: Marker | None) -> dict[str, str] | None:
    if marker is None:
        return None
    return {"who": marker.who, "when": marker.when, "why": marker.why, "host": marker.host}


def _last_of(directory: BufferDirectory, name: bytes, last: int) -> dict[str, int | None]:
    known = producers_until(directory, last).last.get(name)
    return {"seq": None, "message": None} if known is None else {"seq": known[0], "message": known[1] or None}
