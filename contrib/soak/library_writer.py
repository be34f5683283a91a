"""Appends through the library until it is told to stop or is killed.

Usage: library_writer.py BUFFER NAME library|units|clock SEED STOP_FILE [SIGN_KEY]

Prints `SEQ ID` for each message once it is acknowledged, as hbuf-append -v does.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import hbuf
from hbuf.errors import TryLater
from hbuf.store.clock import SystemClock
from hbuf.store.directory import BufferDirectory
from hbuf.store.outgoing import Outgoing
from hbuf.store.signing import Signer
from hbuf.store.writer import Writer
from soak.bodies import body_of
from soak.plan import UNIT_MESSAGES

_TIMEOUT_SECONDS = 60
_HOUR_US = 3_600_000_000
_JUMPS_US = (0, 0, -_HOUR_US, _HOUR_US, -365 * 24 * _HOUR_US, 10 * _HOUR_US, 3 * 24 * _HOUR_US)

# Appends bodies, and returns the numbers and the ids.
Append = Callable[[list[bytes]], list[tuple[int, str]]]


class JumpingClock(SystemClock):
    """A wall clock that somebody sets now and then, wrongly. A jump of more than a day ahead is refused."""

    def __init__(self, numbers: random.Random) -> None:
        self._numbers = numbers
        self._shift_us = numbers.choice(_JUMPS_US)

    def now_us(self) -> int:
        if self._numbers.random() < 0.02:
            self._shift_us = self._numbers.choice(_JUMPS_US)
        return super().now_us() + self._shift_us


def main() -> int:
    path, name, kind, seed, stop, *sign = sys.argv[1:]
    numbers = random.Random(seed)
    append = _appender(path, kind, numbers, Path(sign[0]) if sign else None)
    k = 0
    while not Path(stop).exists():
        size = UNIT_MESSAGES if kind == "units" else numbers.choice([1, 1, 2, 30])
        bodies = [body_of(name, k + i, lines=False) for i in range(size)]
        try:
            receipts = append(bodies)
        except TryLater as error:
            sys.stderr.write(f"{error.message}\n")
            return error.exit_code
        k += size
        # One write, so that a kill leaves all lines or none.
        os.write(1, "".join(f"{seq} {record_id}\n" for seq, record_id in receipts).encode())
        time.sleep(numbers.choice([0, 0, 0.001, 0.02]))
    return 0


def _appender(path: str, kind: str, numbers: random.Random, sign: Path | None) -> Append:
    if kind == "clock":
        clock, signer = JumpingClock(numbers), Signer(sign) if sign else None
        writer = Writer(BufferDirectory(path), timeout_seconds=_TIMEOUT_SECONDS, clock=clock, signer=signer)

        def append_with_clock(bodies: list[bytes]) -> list[tuple[int, str]]:
            done = writer.append(Outgoing(bodies))
            return [(seq, record_id.decode()) for seq, record_id in zip(done.seqs, done.ids, strict=True)]

        return append_with_clock
    buffer = hbuf.open(path, timeout_seconds=_TIMEOUT_SECONDS, sign=sign)

    def append(bodies: list[bytes]) -> list[tuple[int, str]]:
        receipts = buffer.append_many(bodies, atomic=kind == "units")
        return [(receipt.seq, receipt.id) for receipt in receipts]

    return append


if __name__ == "__main__":
    sys.exit(main())
