"""A clock that tests set: to any time, and to run or to jump."""

from __future__ import annotations

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
YEAR_US = 365 * DAY_US
# Ahead of the clock of whoever makes the buffer, so that times are the test's own.
NOW_US = 2_500_000_000 * SECOND_US


class SetClock:
    """A wall clock that a test sets, and a steady one that only runs."""

    def __init__(self, now_us: int = NOW_US) -> None:
        self._now_us = now_us
        self._steady_us = 77

    def now_us(self) -> int:
        return self._now_us

    def steady_us(self) -> int:
        return self._steady_us

    def run(self, by_us: int) -> None:
        """Time goes by."""
        self._now_us += by_us
        self._steady_us += by_us

    def jump(self, by_us: int) -> None:
        """Somebody sets the wall clock."""
        self._now_us += by_us
