"""What the daemon writes on stderr: one line for each thing that happens, logfmt or JSON.

Whatever clients send is quoted, so that it can neither break a line nor forge one. A thread makes the lines and writes
them, many at a time, so that neither a slow reader of stderr nor the lines themselves hold up the event loop. What does
not fit into its queue is dropped and counted.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
import threading
import time
import traceback
from collections import deque
from typing import Any, TextIO

from hbuf.daemon.config import Log
from hbuf.format.times import encode_time

LOG = logging.getLogger("hbuf.daemon")

_QUEUED_LINES = 20_000
_GATHER_SECONDS = 0.05  # between two writes: what is said meanwhile is written at once
_BARE = re.compile(r"[!#-<>-\[\]-~]+")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def said(**fields: object) -> dict[str, dict[str, object]]:
    """For `extra=` of a logging call: the fields behind the message."""
    return {"fields": fields}


class Logs(logging.Handler):
    """The log of this process, from its start to `close`."""

    def __init__(self, settings: Log, out: TextIO | None = None) -> None:
        super().__init__()
        self._out = out or sys.stderr
        self._queue: deque[logging.LogRecord] = deque()
        self._dropped = 0
        self._wake = threading.Event()
        self._ended = False
        self._before = logging.root.handlers[:], logging.root.level
        self.configure(settings)
        logging.root.handlers[:] = [self]
        # Asked for on every record that is made, and not written.
        logging.logThreads = logging.logMultiprocessing = logging.logProcesses = False
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def configure(self, settings: Log) -> None:
        self.setFormatter(JsonLines() if settings.format == "json" else LogfmtLines())
        logging.root.setLevel(_LEVELS[settings.level])
        logging.getLogger("hbuf.daemon.access").setLevel(logging.NOTSET if settings.access else logging.WARNING)
        # What the event loop and the HTTP library say of their own is about connections that broke.
        for name in ("asyncio", "aiohttp", "watchdog"):
            logging.getLogger(name).setLevel(max(logging.WARNING, _LEVELS[settings.level]))

    def handle(self, record: logging.LogRecord) -> bool:
        """Without the lock that a handler takes: a deque needs none."""
        if len(self._queue) >= _QUEUED_LINES:
            self._dropped += 1
            return False
        if self._dropped:
            record.__dict__["dropped"], self._dropped = self._dropped, 0
        self._queue.append(record)
        if not self._wake.is_set():
            self._wake.set()
        return True

    def close(self) -> None:
        """All that was said is written."""
        if self._ended:
            return
        self._ended = True
        self._wake.set()
        self._thread.join()
        logging.root.handlers[:], level = self._before
        logging.root.setLevel(level)
        super().close()

    def _write_all(self) -> None:
        while not self._ended:
            self._wake.wait()
            self._wake.clear()
            self._write_queued()
            if not self._ended:
                time.sleep(_GATHER_SECONDS)
        self._write_queued()

    def _write_queued(self) -> None:
        lines = []
        while self._queue:
            lines.append(self.format(self._queue.popleft()) + "\n")
        if lines:
            # Where nobody reads what is said, nobody can be told so.
            with contextlib.suppress(OSError, ValueError):
                self._out.write("".join(lines))
                self._out.flush()


class _Lines(logging.Formatter):
    """Every record is one line."""

    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, Any] = {
            "time": encode_time(int(record.created * 1_000_000)),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        values |= record.__dict__.get("fields", {})
        if record.exc_info and record.exc_info[0]:
            values["trace"] = "".join(traceback.format_exception(*record.exc_info))
        if "dropped" in record.__dict__:
            values["dropped_before"] = record.__dict__["dropped"]
        return self.line({name: value for name, value in values.items() if value is not None})

    def line(self, values: dict[str, Any]) -> str:
        raise NotImplementedError


class LogfmtLines(_Lines):
    def line(self, values: dict[str, Any]) -> str:
        return " ".join(f"{name}={_quoted(value)}" for name, value in values.items())


class JsonLines(_Lines):
    def line(self, values: dict[str, Any]) -> str:
        return json.dumps(values, default=str)


def _quoted(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text).replace("\x7f", "\\u007f")
