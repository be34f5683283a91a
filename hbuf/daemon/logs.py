"""What the daemon writes on stderr: one line for each thing that happens, logfmt or JSON.

Whatever clients send is quoted, so that it can neither break a line nor forge one. A thread writes, so that a slow
reader of stderr does not hold up the event loop; what does not fit into its queue is dropped and counted.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import queue
import re
import sys
import traceback
from typing import Any, TextIO

from hbuf.daemon.config import Log
from hbuf.format.times import encode_time

ACCESS = logging.getLogger("hbuf.daemon.access")

_QUEUED_LINES = 20_000
_BARE = re.compile(r"[!#-<>-\[\]-~]+")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def said(**fields: object) -> dict[str, dict[str, object]]:
    """For `extra=` of a logging call: the fields behind the message."""
    return {"fields": fields}


class Logs:
    """The log of this process, from its start to `close`."""

    def __init__(self, settings: Log, out: TextIO | None = None) -> None:
        self._writing = logging.StreamHandler(out or sys.stderr)
        self._lines: queue.Queue[Any] = queue.Queue(_QUEUED_LINES)
        self._handler = _Enqueuing(self._lines)
        self._listener = logging.handlers.QueueListener(self._lines, self._writing)
        self._before = logging.root.handlers[:], logging.root.level
        self.configure(settings)
        logging.root.handlers[:] = [self._handler]
        # Asked for on every record that is made, and not written.
        logging.logThreads = logging.logMultiprocessing = logging.logProcesses = False
        self._listener.start()

    def configure(self, settings: Log) -> None:
        self._writing.setFormatter(JsonLines() if settings.format == "json" else LogfmtLines())
        logging.root.setLevel(_LEVELS[settings.level])
        ACCESS.setLevel(logging.NOTSET if settings.access else logging.CRITICAL)
        # What the event loop and the HTTP library say of their own is about connections that broke.
        for name in ("asyncio", "aiohttp", "watchdog"):
            logging.getLogger(name).setLevel(max(logging.WARNING, _LEVELS[settings.level]))

    @property
    def waiting(self) -> int:
        """Lines that are not written yet."""
        return self._lines.qsize()

    def close(self) -> None:
        """All that was said is written."""
        self._listener.stop()
        logging.root.handlers[:], level = self._before
        logging.root.setLevel(level)


class _Enqueuing(logging.handlers.QueueHandler):
    def __init__(self, lines: queue.Queue[Any]) -> None:
        super().__init__(lines)
        self._dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record  # The thread that writes makes the line, too.

    def enqueue(self, record: logging.LogRecord) -> None:
        if self._dropped:
            record.__dict__["dropped"] = self._dropped
        try:
            self.queue.put_nowait(record)
            self._dropped = 0
        except queue.Full:
            self._dropped += 1


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
