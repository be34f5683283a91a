"""What the rules of a buffer say is to be retired now: whole segments, oldest first, and never the newest.

It looks, and changes nothing. A clock that is wrong must not throw data away. What is old by the clock goes by age only
if messages came all the time since: behind a silence that is longer than retention_age, the buffer was idle, or the
clock jumped, and nobody can tell which.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hbuf.errors import Damaged
from hbuf.format.chain import ZERO_ID
from hbuf.format.deletes import Retirement
from hbuf.format.names import parse_rebuildable_file
from hbuf.format.settings import Settings
from hbuf.format.times import encode_duration
from hbuf.store.directory import BufferDirectory
from hbuf.store.sealed import count_messages, last_of, newest_retirement, opening_of, times_of

# The most that the record which says what goes takes: it must not be what makes the next segment go.
_DELETE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Plan:
    """What goes, and why. Nothing where there are no segments."""

    first: int  # number that the buffer begins with
    segments: tuple[int, ...] = ()  # their first numbers, oldest first
    end: int = 0  # the last number that goes
    end_id: bytes = ZERO_ID
    bytes: int = 0
    reason: str = ""  # the rule that reaches furthest; "" where a DELETE says so already, and only that is finished
    held_back: str = ""  # a rule by which more would go, and does not: see above
    orphans: tuple[str, ...] = ()  # indexes and tags files of segments that are gone

    @property
    def messages(self) -> int:
        return self.end - self.first + 1 if self.segments else 0

    @property
    def has_work(self) -> bool:
        return bool(self.segments or self.orphans)


def plan_retirement(directory: BufferDirectory, settings: Settings, now_us: int, *, idle: bool = False) -> Plan:
    """With `idle` a silence is taken for what it seems to be."""
    files = os.listdir(directory.segments)
    firsts = directory.segment_firsts()
    orphans = [file for file in files if (first := parse_rebuildable_file(file)) is not None and first < firsts[0]]
    plan = Plan(firsts[0], orphans=tuple(sorted(orphans)))
    said = newest_retirement(directory, firsts)
    _check_start(directory, firsts, said)
    count, reason = 0, ""
    for asked, rule in _asked(directory, firsts, settings, now_us):
        by_age = rule.startswith("retention_age")
        if by_age and asked and not idle and _was_silent(directory, firsts, asked, settings, now_us):
            plan = replace(plan, held_back=rule)
        elif asked > count:
            count, reason = asked, rule
    if not any(count_messages(directory, first) for first in firsts[:count]):
        count = 0  # only what says that others went: that would go on for ever
    if said is not None and said.end >= firsts[count] - 1:
        # A retirement that was interrupted is finished, whatever the rules say now.
        count, reason = sum(1 for first in firsts if first <= said.end), ""
    if not count:
        return plan
    _check_joins(directory, firsts[: count + 1])
    size = sum(os.stat(directory.segment_file(first)).st_size for first in firsts[:count])
    end, end_id = firsts[count] - 1, opening_of(directory, firsts[count]).prev
    return replace(plan, segments=tuple(firsts[:count]), end=end, end_id=end_id, bytes=size, reason=reason)


def _asked(directory: BufferDirectory, firsts: list[int], settings: Settings, now_us: int) -> Iterator[tuple[int, str]]:
    """How many of the oldest segments each rule asks for, and what it is called."""
    sealed = len(firsts) - 1
    if settings.retention_age is not None:
        limit_us = now_us - int(settings.retention_age * 1_000_000)
        ends = (_last_time_us(directory, firsts, i) for i in range(sealed))
        count = next((i for i, time_us in enumerate(ends) if time_us >= limit_us), sealed)
        yield count, f"retention_age {encode_duration(settings.retention_age)}"
    if settings.retention_bytes is not None:
        sizes = [os.stat(directory.segment_file(first)).st_size for first in firsts]
        rests = (sum(sizes[i:]) + (_DELETE_BYTES if i else 0) for i in range(sealed))
        count = next((i for i, rest in enumerate(rests) if rest <= settings.retention_bytes), sealed)
        yield count, f"retention_bytes {settings.retention_bytes}"
    if settings.retention_messages is not None:
        kept = itertools.accumulate(count_messages(directory, first) for first in reversed(firsts[1:]))
        count = next((sealed - i for i, left in enumerate(kept) if left >= settings.retention_messages), 0)
        yield count, f"retention_messages {settings.retention_messages}"


def _last_time_us(directory: BufferDirectory, firsts: list[int], i: int) -> int:
    """The time of a segment's last message; where none can be read, that of the PUT behind it, which is no earlier."""
    last = last_of(directory, firsts[i])
    return last.time_us if last else opening_of(directory, firsts[i + 1]).time_us


def _was_silent(directory: BufferDirectory, firsts: list[int], count: int, settings: Settings, now_us: int) -> bool:
    """Whether behind the `count` oldest segments, up to now, no message came for longer than those may be kept."""
    most_us = int((settings.retention_age or 0) * 1_000_000)
    at = _last_time_us(directory, firsts, count - 1)
    for first in firsts[count:]:
        with times_of(directory, first) as times:
            if not times:
                continue
            if times[0] - at > most_us or _has_gap(times, 0, len(times) - 1, most_us):
                return True
            at = times[-1]
    return now_us - at > most_us


def _has_gap(times: Sequence[int], low: int, high: int, most_us: int) -> bool:
    """Whether two neighbours lie further apart. Times never go back: a short stretch needs no closer look."""
    if times[high] - times[low] <= most_us:
        return False
    if high - low == 1:
        return True
    middle = (low + high) // 2
    return _has_gap(times, low, middle, most_us) or _has_gap(times, middle, high, most_us)


def _check_start(directory: BufferDirectory, firsts: list[int], said: Retirement | None) -> None:
    """Refuses a buffer whose start is missing without a DELETE that says so: another one would cover that up."""
    hint = "hbuf-verify tells more; nothing was retired"
    if said is None:
        if firsts[0] != 1:
            raise Damaged(f"{directory.shown}: begins with message {firsts[0]}, and nothing says why", hint=hint)
    elif said.end + 1 not in firsts or opening_of(directory, said.end + 1).prev != said.id:
        raise Damaged(
            f"{directory.shown}: what was retired does not end with message {said.end} as the DELETE names it",
            hint=hint,
        )


def _check_joins(directory: BufferDirectory, firsts: list[int]) -> None:
    """Refuses where one of the segments that go does not follow the one before: there is something to find out."""
    for first, following in itertools.pairwise(firsts):
        last = last_of(directory, first)
        if last is None or opening_of(directory, following).prev != last.id:
            raise Damaged(
                f"{directory.segment_shown(following)}: does not follow the segment before",
                hint="hbuf-verify tells more; nothing was retired",
            )
