"""Whoever reads a buffer of the daemon's from the first message on, over its restarts, and what it was shown."""

from __future__ import annotations

import contextlib
import json
import threading
import time

from soak.check import Shown
from soak.daemon_process import ANSWER_SECONDS, BROKEN, Daemon

_PAUSE_SECONDS = 0.02
_JSON = {"accept": "application/x-ndjson"}
_EVENTS = {"accept": "text/event-stream"}


class HttpReader(threading.Thread):
    """Polls with `wait`, or follows an event stream. Each number that is not the next one is a fault."""

    def __init__(self, daemon: Daemon, buffer: str, kind: str) -> None:
        super().__init__(daemon=True)
        self.kind = kind
        self.shown: Shown = []
        self.faults: list[str] = []
        self._daemon_process, self._path = daemon, f"/b/{buffer}"
        self._ending = threading.Event()

    def ask_to_end(self) -> None:
        """It ends when the daemon does."""
        self._ending.set()

    def wait_for(self, seq: int) -> list[str]:
        """Until it was shown a message. What is wrong if it is not."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while not self.shown or self.shown[-1][0] < seq:
            if time.monotonic() > deadline or not self.is_alive():
                return [f"a reader ({self.kind}) was shown {len(self.shown)} messages of {seq}"]
            time.sleep(0.01)
        return []

    def run(self) -> None:
        read = self._follow if self.kind == "events" else self._poll
        while not self._ending.is_set():
            try:
                read()
            except BROKEN:
                self._ending.wait(_PAUSE_SECONDS)
            except Exception as error:
                self.faults.append(f"a reader ({self.kind}) ended: {error!r}")
                return

    def _poll(self) -> None:
        headers = _JSON | self._daemon_process.authorization()
        with contextlib.closing(self._daemon_process.connection()) as connection:
            while not self._ending.is_set():
                place = self.shown[-1][0] + 1 if self.shown else 1
                connection.request("GET", f"{self._path}?from={place}&wait=1", headers=headers)
                answer = connection.getresponse()
                lines = answer.read().splitlines()
                if answer.status != 200:
                    raise ValueError(f"{answer.status} {lines}")
                for line in lines:
                    self._note(line)

    def _follow(self) -> None:
        headers = _EVENTS | self._daemon_process.authorization()
        if self.shown:
            headers["last-event-id"] = str(self.shown[-1][0])
        with contextlib.closing(self._daemon_process.connection()) as connection:
            connection.request("GET", self._path, headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise ValueError(f"{answer.status} {answer.read()!r}")
            data = b""
            for line in answer:
                if line.startswith(b"data: "):
                    data = line[6:]
                elif line == b"\n" and data:  # half an event is none
                    self._note(data)
                    data = b""

    def _note(self, line: bytes) -> None:
        message = json.loads(line)
        expected = self.shown[-1][0] + 1 if self.shown else 1
        if message["seq"] != expected:
            self.faults.append(f"a reader ({self.kind}) was shown {message['seq']} where {expected} comes next")
        self.shown.append((message["seq"], message["id"]))
