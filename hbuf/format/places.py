"""Places: where reading starts or stops. One grammar everywhere: commands, URLs, Spark.

first   last   end   N   -N (the last N)   @TIME (RFC 3339, or @10m, @2h, @3d ago)   consumer:NAME
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from hbuf.errors import UsageError
from hbuf.format.times import encode_time, parse_moment

_NUMBER = re.compile(r"-?[1-9][0-9]{0,18}|-0")


@dataclass(frozen=True, slots=True)
class Place:
    kind: Literal["first", "last", "end", "number", "back", "time", "consumer"]
    number: int = 0  # for number and back
    time_us: int = 0
    name: str = ""  # of a consumer


FIRST = Place("first")
END = Place("end")


def parse_place(text: str, now_us: int) -> Place:
    if text in ("first", "last", "end"):
        return Place(text)  # type: ignore[arg-type]  # the three words are kinds
    if _NUMBER.fullmatch(text):
        number = int(text)
        return Place("back", -number) if text.startswith("-") else Place("number", number)
    if text.startswith("@"):
        return Place("time", time_us=parse_moment(text[1:], now_us))
    if text.startswith("consumer:") and len(text) > len("consumer:"):
        return Place("consumer", name=text.removeprefix("consumer:"))
    raise UsageError(f"'{text}' is not a place", hint="a place is first, last, end, N, -N (the last N), @TIME or @10m")


def encode_place(place: Place) -> str:
    """The text of a place, as `parse_place` takes it at any time."""
    if place.kind == "number":
        return str(place.number)
    if place.kind == "back":
        return f"-{place.number}"
    if place.kind == "time":
        return f"@{encode_time(place.time_us)}"
    return f"consumer:{place.name}" if place.kind == "consumer" else place.kind
