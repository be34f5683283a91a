"""What happens, as JSON in a buffer of hbuf's own, whose name begins with `_`: `hbuf-tail` reads it."""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path

from hbuf.errors import HbufError
from hbuf.format.fields import encode_fields
from hbuf.format.settings import Settings
from hbuf.format.times import encode_time
from hbuf.store.clock import SystemClock
from hbuf.store.create import create_buffer
from hbuf.store.directory import BufferDirectory
from hbuf.store.outgoing import Outgoing
from hbuf.store.writer import Writer

_LONGEST_TAG = 256
_WAIT_SECONDS = 30


class OwnLog:
    """Taken by several threads, and by several processes. After a failure it opens the buffer again."""

    def __init__(self, path: Path) -> None:
        self._directory = BufferDirectory(path)
        self._one_at_a_time = threading.Lock()
        self._writer: Writer | None = None

    def open(self) -> None:
        """Makes the buffer where it is missing."""
        clock = SystemClock()
        settings = Settings(str(uuid.uuid4()), self._directory.name, encode_time(clock.now_us()))
        # Not ops.create: the leading `_` is for hbuf's own buffers, and this is one.
        create_buffer(self._directory, settings, clock, may_exist=True)

    def append(self, values: Mapping[str, object], tags: Mapping[str, str], key: str | None = None) -> None:
        """On disk when it returns. `tags` become `name=value`, in characters that a tag may have."""
        body = json.dumps(values, ensure_ascii=False, default=str).encode("utf-8", "replace")
        lines = [_safe(f"{name}={value}") for name, value in tags.items()]
        fields = encode_fields(key, lines, [("content-type", "application/json")])
        with self._one_at_a_time:
            try:
                self._open_writer().append(Outgoing([body], fields))
            except HbufError:
                self._close()
                raise

    def close(self) -> None:
        with self._one_at_a_time:
            self._close()

    def _open_writer(self) -> Writer:
        if self._writer is None:
            self.open()
            self._writer = Writer(self._directory, timeout_seconds=_WAIT_SECONDS)
        return self._writer

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(OSError):
                writer.close()


def _safe(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:_LONGEST_TAG]).strip(" ")
