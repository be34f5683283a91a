"""What is measured on: files of lines, and buffers of them. Each is made once and shared by the groups."""

from __future__ import annotations

import random
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.measure import run_process
from bench.programs import hbuf_program

NEEDLE = "needle-in-the-hay"
# One line in so many has the needle.
NEEDLE_EVERY = 1000
_LINES_AT_ONCE = 10_000


@dataclass(slots=True)
class Material:
    directory: Path
    messages: int  # of the large buffer, with bodies of 100 bytes
    open_messages: int  # of it, when opening is measured
    repeats: int
    seed: int

    @property
    def short_repeats(self) -> int:
        """Runs of what takes milliseconds: more of them, for it is noisier."""
        return 3 * self.repeats - 2

    def lines(self, count: int, size: int) -> Path:
        """A file of `count` lines of `size` bytes, the newline not counted."""
        path = self.directory / f"{count}-lines-of-{size}"
        if not path.exists():
            numbers = random.Random(self.seed)
            with path.open("w") as file:
                for start in range(0, count, _LINES_AT_ONCE):
                    end = min(start + _LINES_AT_ONCE, count)
                    file.writelines(_line(numbers, i, size) for i in range(start, end))
        return path

    def large_buffer(self) -> Path:
        """The buffer of `messages` messages. Measuring the append makes it; else it is made here."""
        path = self.directory / "large"
        if not path.exists():
            run_process(hbuf_program("hbuf-append", path), stdin=self.lines(self.messages, 100))
        return path

    def grow_large_buffer(self) -> Path:
        """The large buffer, with at least `open_messages` messages."""
        path, count = self.large_buffer(), self.messages
        while count < self.open_messages:
            more = min(self.messages, self.open_messages - count)
            run_process(hbuf_program("hbuf-append", path), stdin=self.lines(more, 100))
            count += more
        self.messages = count
        return path

    def buffer(self, count: int) -> Path:
        """Another buffer, of `count` messages of 100 bytes."""
        path = self.directory / f"buffer-of-{count}"
        if not path.exists():
            run_process(hbuf_program("hbuf-append", path), stdin=self.lines(count, 100))
        return path

    def fresh(self, name: str) -> Path:
        """A path with nothing at it, and nothing left to write from what was there."""
        path = self.directory / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        subprocess.run(["sync", "-f", self.directory], check=True)
        return path


def segment_files(buffer: Path) -> list[Path]:
    return sorted((buffer / "segments").glob("*.http"))


def _line(numbers: random.Random, i: int, size: int) -> str:
    text = numbers.randbytes(size // 2 + 1).hex()
    return (NEEDLE + text if i % NEEDLE_EVERY == 0 else text)[:size] + "\n"
