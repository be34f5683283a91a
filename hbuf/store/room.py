"""How much fits into a segment, and what a message takes there."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence

from hbuf.errors import TooLarge
from hbuf.format.settings import Settings
from hbuf.store.outgoing import Outgoing
from hbuf.store.tail import Tail

MAX_UNIT_BYTES = 1024**3


def sizes_of(outgoing: Outgoing, settings: Settings, lines_bytes: int, data_key_bytes: int) -> list[int]:
    """The bytes that each message takes at most. Raises TooLarge where a limit is passed.

    `lines_bytes` is for the lines that all have, `data_key_bytes` for a PUT that may come before the first.
    """
    largest = max(map(len, outgoing.bodies), default=0)
    if largest > settings.most_body_bytes:
        raise TooLarge(
            f"a message has {largest} bytes; the limit is {settings.most_body_bytes}",
            hint="the setting max_message_bytes can be raised with hbuf-set",
        )
    sizes = outgoing.most_bytes_each(lines_bytes)
    sizes[0] += data_key_bytes
    if outgoing.unit and sum(sizes) > MAX_UNIT_BYTES:
        raise TooLarge(f"an atomic unit has more than {MAX_UNIT_BYTES} bytes")
    return sizes


def has_room(tail: Tail, size: int, *, ahead_count: int = 0, ahead_bytes: int = 0) -> bool:
    """Whether `size` bytes fit behind what is there, and behind what is to be written before them."""
    settings = tail.opening.settings
    if settings.segment_messages is not None and tail.count + ahead_count >= settings.segment_messages:
        return False
    return tail.length + ahead_bytes + size <= settings.segment_bytes


def is_of_age(tail: Tail, now_us: int) -> bool:
    age = tail.opening.settings.segment_age
    return age is not None and now_us - tail.opening.time_us > age * 1_000_000


def how_many_fit(tail: Tail, sizes: Sequence[int]) -> int:
    """How many messages of these sizes fit into the segment; the first always does."""
    settings = tail.opening.settings
    end = len(sizes)
    if settings.segment_messages is not None:
        end = min(end, settings.segment_messages - tail.count)
    room = settings.segment_bytes - tail.length
    return max(bisect.bisect_right(list(itertools.accumulate(sizes[:end])), room), 1)
