"""What is wrong with a pipeline, all of it at once: who writes one wants to hear of every fault, not of the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hbuf.errors import UsageError


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault, told in one line."""

    stage: str | None  # None: it concerns the file
    text: str
    exit_code: int = UsageError.exit_code

    def __str__(self) -> str:
        return f"stage {self.stage}: {self.text}" if self.stage is not None else self.text


class BadPipeline(UsageError):
    """A pipeline that cannot run."""

    def __init__(self, shown: str, problems: Sequence[Problem]) -> None:
        super().__init__(f"{shown}: {problems[0]}")
        self.shown = shown
        self.problems = tuple(problems)
        # A file that is wrong counts more than an input that is missing.
        codes = [problem.exit_code for problem in problems]
        self.exit_code = UsageError.exit_code if UsageError.exit_code in codes else codes[0]
