"""The two clocks that a writer compares, and random salts. Arguments everywhere else, so that bytes can be exact."""

from __future__ import annotations

import base64
import os
import time
from typing import Protocol


class Clock(Protocol):
    def now_us(self) -> int: ...
    def steady_us(self) -> int: ...


class SystemClock:
    """Wall time, and a clock that nobody sets. The second counts while the machine sleeps, where it can."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def steady_us(self) -> int:
        return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


def draw_salts(count: int) -> bytes:
    """Salts of 32 random bytes in base64url, 43 characters each, 44 apart: one call for a whole batch.

    33 bytes make 44 characters; with the 33rd byte zero, the first 43 are those of the 32 alone.
    """
    drawn = bytearray(os.urandom(33 * count))
    drawn[32::33] = bytes(count)
    return base64.urlsafe_b64encode(drawn)
