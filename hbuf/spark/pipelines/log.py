"""What happened to a pipeline, as messages in a buffer of its own: `hbuf-tail` reads it, and nothing needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from hbuf.errors import HbufError
from hbuf.ops.own_log import OwnLog


class PipelineLog:
    """Taken by several threads. A log that cannot be written stops nothing, and is told once."""

    def __init__(self, path: Path, pipeline: str, notice: Callable[[str], None]) -> None:
        self._pipeline = pipeline
        self._notice = notice
        self._one_at_a_time = threading.Lock()
        self._failed = False
        self._log = OwnLog(path)
        self._log.open()

    def append(self, stage: str, event: str, **details: object) -> None:
        named = {"pipeline": self._pipeline, "stage": stage, "event": event}
        with self._one_at_a_time:
            try:
                self._log.append({**named, **details}, named, key=stage)
                self._failed = False
            except HbufError as error:
                if not self._failed:
                    self._notice(f"the log misses what happens: {error.message}")
                self._failed = True

    def close(self) -> None:
        self._log.close()
