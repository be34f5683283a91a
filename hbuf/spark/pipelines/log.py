"""What happened to a pipeline, as messages in a buffer of its own: `hbuf-tail` reads it, and nothing needs it."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from hbuf import library
from hbuf.errors import HbufError
from hbuf.format.settings import Settings
from hbuf.format.times import encode_time
from hbuf.store.clock import SystemClock
from hbuf.store.create import create_buffer
from hbuf.store.directory import BufferDirectory


class PipelineLog:
    """Taken by several threads. A log that cannot be written stops nothing, and is told once."""

    def __init__(self, path: Path, pipeline: str, notice: Callable[[str], None]) -> None:
        self._pipeline = pipeline
        self._notice = notice
        self._one_at_a_time = threading.Lock()
        self._failed = False
        directory, clock = BufferDirectory(path), SystemClock()
        settings = Settings(str(uuid.uuid4()), directory.name, encode_time(clock.now_us()))
        # Not ops.create: the leading `_` is for hbuf's own buffers, and this is one.
        create_buffer(directory, settings, clock, may_exist=True)
        self._buffer = library.open(path)

    def append(self, stage: str, event: str, **details: object) -> None:
        body = json.dumps({"pipeline": self._pipeline, "stage": stage, "event": event, **details})
        tags = [f"pipeline={self._pipeline}", f"stage={stage}", f"event={event}"]
        with self._one_at_a_time:
            try:
                self._buffer.append(body.encode(), key=stage, tags=tags, headers=[("content-type", "application/json")])
                self._failed = False
            except HbufError as error:
                if not self._failed:
                    self._notice(f"the log misses what happens: {error.message}")
                self._failed = True

    def close(self) -> None:
        self._buffer.close()
