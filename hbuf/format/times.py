"""Times as records write them: UTC, microseconds, 27 characters, so that they compare as text.

Inside hbuf a time is an integer, microseconds since 1970. It must not know what time it is now.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from hbuf.errors import UsageError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# 9999-12-31T23:59:59.999999Z: the last time that has 27 characters.
LAST_TIME_US = 253_402_300_799_999_999

_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)(us|ms|s|m|h|d|w)?")
_UNIT_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def encode_time(time_us: int) -> str:
    return datetime_of(time_us).isoformat(timespec="microseconds")[:26] + "Z"


def parse_time(text: str) -> int:
    """Microseconds of a time as records write it. Raises ValueError for a day that no calendar has."""
    return microseconds_of(datetime.fromisoformat(text))


def datetime_of(time_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time_us)


def microseconds_of(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def parse_duration_seconds(text: str) -> float:
    """`100ms`, `30s`, `10m`, `2h`, `3d`, `1w`, or a bare number of seconds."""
    found = _DURATION.fullmatch(text)
    if not found:
        raise UsageError(f"'{text}' is not a length of time", hint="write it like 100ms, 30s, 10m, 2h or 3d")
    return float(found[1]) * _UNIT_SECONDS[found[2] or "s"]


def encode_duration(seconds: float) -> str:
    """A length of time as people write it: `30d`, `36h`, `90s`."""
    for unit in ("d", "h", "m", "s"):
        count = seconds / _UNIT_SECONDS[unit]
        if count == int(count):
            return f"{int(count)}{unit}"
    return f"{seconds:.12g}s"


def parse_moment(text: str, now_us: int) -> int:
    """A time that a person gave: RFC 3339, a date alone (midnight UTC), or a duration ago (`10m`)."""
    duration = _DURATION.fullmatch(text)
    if duration and duration[2]:
        return now_us - int(parse_duration_seconds(text) * 1_000_000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"'{text}' is not a time", hint="write it like 2026-11-18T04:51:00Z, 2026-11-18, 10m or 3d"
        ) from None
    return microseconds_of(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
