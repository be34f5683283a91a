"""What the daemon writes on stderr: one line for each thing that happens, logfmt or JSON.

Whatever clients send is quoted, so that it can neither break a line nor forge one. A thread writes, so that a slow
reader of stderr does not hold up the event loop; what does not fit into its queue is dropped and counted.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, TextIO

from hbuf.daemon.config import Log
from hbuf.format.times import encode_time

ACCESS = logging.getLogger("hbuf.daemon.access")

_QUEUED_LINES = 20_000
_BATCH_LINES = 500
_GATHER_SECONDS = 0.02
_LAST_SECONDS = 5.0  # for what is still to be written at the end
_BARE = re.compile(r"[!#-<>-\[\]-~]+")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def said(**fields: object) -> dict[str, dict[str, object]]:
    """For `extra=` of a logging call: the fields behind the message."""
    return {"fields": fields}


class Logs:
    """The log of this process, from its start to `close`."""

    def __init__(self, settings: Log, out: TextIO | None = None) -> None:
        self._handler = _Batches(out or sys.stderr)
        self._before = logging.root.handlers[:], logging.root.level
        self.configure(settings)
        logging.root.handlers[:] = [self._handler]
        # Asked for on every record that is made, and not written.
        logging.logThreads = logging.logMultiprocessing = logging.logProcesses = False
        logging._srcfile = None  # so says the manual of logging, under Optimization
        self._handler.thread.start()

    def configure(self, settings: Log) -> None:
        self._handler.setFormatter(Lines(encode_json if settings.format == "json" else encode_logfmt))
        logging.root.setLevel(_LEVELS[settings.level])
        ACCESS.setLevel(logging.NOTSET if settings.access else logging.CRITICAL)
        # What the event loop and the HTTP library say of their own is about connections that broke.
        for name in ("asyncio", "aiohttp", "watchdog"):
            logging.getLogger(name).setLevel(max(logging.WARNING, _LEVELS[settings.level]))

    @property
    def waiting(self) -> int:
        """Lines that are not written yet."""
        return len(self._handler.records)

    def close(self) -> None:
        """All that was said is written."""
        self._handler.end()
        logging.root.handlers[:], level = self._before
        logging.root.setLevel(level)


class _Batches(logging.Handler):
    """Lines are made and written some at a time: a thread that is woken for each costs more than the request."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self.records: deque[logging.LogRecord] = deque()
        self.thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._out = out
        self._dropped = 0
        self._some = threading.Event()
        self._ending = threading.Event()

    def createLock(self) -> None:  # noqa: N802  logging's name
        self.lock = None  # a deque needs none

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.records) >= _QUEUED_LINES:
            self._dropped += 1
            return
        if self._dropped:
            record.__dict__["dropped"], self._dropped = self._dropped, 0
        self.records.append(record)
        if not self._some.is_set():
            self._some.set()

    def end(self) -> None:
        self._ending.set()
        self._some.set()
        self.thread.join(_LAST_SECONDS)

    def _write_all(self) -> None:
        while not self._ending.is_set() or self.records:
            self._some.wait()
            self._ending.wait(_GATHER_SECONDS)
            self._some.clear()
            while self.records:
                count = min(len(self.records), _BATCH_LINES)
                lines = [self.format(self.records.popleft()) for _ in range(count)]
                # Nobody may read it any more: that is no reason to stop serving.
                with contextlib.suppress(OSError, ValueError):
                    self._out.write("\n".join(lines) + "\n")
                    self._out.flush()


class Lines(logging.Formatter):
    """Every record is one line."""

    def __init__(self, encode: Callable[[dict[str, Any]], str]) -> None:
        super().__init__()
        self._encode = encode

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
        return self._encode({name: value for name, value in values.items() if value is not None})


def encode_logfmt(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={_quoted(value)}" for name, value in values.items())


def encode_json(values: dict[str, Any]) -> str:
    return json.dumps(values, default=str)


def _quoted(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text).replace("\x7f", "\\u007f")
