"""Whoever appends to a buffer of the daemon's: clients over HTTPS, each with what it sent and what it was told."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import subprocess
import threading
from pathlib import Path

from bench.programs import hbuf_program

from soak.bodies import body_of
from soak.daemon_check import Sent
from soak.daemon_plan import UNIT_MESSAGES
from soak.daemon_process import ANSWER_SECONDS, BROKEN, Answer, Daemon

_PAUSE_SECONDS = 0.02
_REFUSED = (423, 429, 503, 507)  # it is sent again, and nothing of it is stored
_HTTP = "application/http; msgtype=request"


class Client(threading.Thread):
    """Sends until it is told to stop; a producer until it is answered, too."""

    def __init__(self, daemon: Daemon, buffer: str, kind: str, name: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._daemon_process = daemon
        self._buffer, self._kind = buffer, kind
        self._is_producer = kind.startswith("producer")
        self._numbers = random.Random(seed)
        unit = 1 if kind in ("producer", "plain") else UNIT_MESSAGES
        self.sent = Sent(name, unit, lines=kind.endswith("lines"), again=self._is_producer)
        self.faults: list[str] = []
        self._ending = threading.Event()
        self._connection: http.client.HTTPSConnection | None = None

    def ask_to_end(self) -> None:
        self._ending.set()

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                first = self.sent.count
                self.sent.count += self.sent.unit
                self._send(first)
                if self._is_producer and self._numbers.random() < 0.05:
                    self._send(first)  # its answer may have been lost
        except Exception as error:
            self.faults.append(f"client {self.sent.name} ended: {error!r}")
        finally:
            self._leave()

    def _send(self, first: int) -> None:
        method, headers, body = self._request(first)
        while True:
            try:
                answer = self._ask(method, headers, body)
            except BROKEN:
                self._leave()
                if not self._is_producer:
                    return
            else:
                if answer is None:
                    pass  # nobody was there: it was not sent at all
                elif answer.status in (200, 201):
                    self._note(first, answer)
                    return
                elif answer.status not in _REFUSED:
                    raise ValueError(f"{answer.status} {answer.body[:500]!r}")
                elif not self._is_producer:
                    self.sent.refused |= set(range(first, first + self.sent.unit))
                    return
            if self._ending.wait(_PAUSE_SECONDS) and not self._is_producer:
                self.sent.refused |= set(range(first, first + self.sent.unit))
                return

    def _ask(self, path: str, headers: dict[str, str], body: bytes) -> Answer | None:
        """None where no connection came to be. A producer goes away now and then without the answer."""
        connection = self._connection
        if connection is None:
            connection = self._daemon_process.connection()
            try:
                connection.connect()
            except BROKEN:
                return None
            self._connection = connection
        connection.request("POST", path, body, headers | self._daemon_process.authorization())
        if self._is_producer and self._numbers.random() < 0.02:
            raise ConnectionAbortedError
        answered = connection.getresponse()
        return Answer(answered.status, answered.headers, answered.read())

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(self, first: int) -> tuple[str, dict[str, str], bytes]:
        """Path, headers and body. A producer's numbers have gaps."""
        sent = self.sent
        bodies = [body_of(sent.name, first + i, lines=sent.lines) for i in range(sent.unit)]
        path, headers = f"/b/{self._buffer}", {"accept": "application/x-ndjson"}
        number = 10 * first
        if self._kind.endswith("batch"):
            own = [_producer(sent.name, number + i) if self._is_producer else {} for i in range(sent.unit)]
            return path, headers | {"content-type": _HTTP}, b"".join(map(_as_request, bodies, own))
        if self._is_producer:
            headers |= _producer(sent.name, number)
        if sent.lines:
            return f"{path}?split=lines", headers, b"".join(body + b"\n" for body in bodies)
        return path, headers | {"content-type": "application/octet-stream"}, bodies[0]

    def _note(self, first: int, answer: Answer) -> None:
        lines = [json.loads(line) for line in answer.body.splitlines()]
        if len(lines) != self.sent.unit:
            self.faults.append(f"client {self.sent.name}: {len(lines)} are answered of {self.sent.unit}")
        if answer.status == 200 and not all(line["duplicate"] for line in lines):
            self.faults.append(f"client {self.sent.name}: 200 for what is new")
        for place, line in enumerate(lines):
            told = (line["seq"], line["id"])
            before = self.sent.receipts.setdefault(first + place, told)
            if before != told:
                self.faults.append(f"client {self.sent.name}: {first + place} is {before}, and then {told}")


class Shell(threading.Thread):
    """hbuf-append on the same directory."""

    def __init__(self, buffer: Path, sign_key: Path | None, name: str, out: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self.sent = Sent(name, 1, lines=True, again=True)
        self.faults: list[str] = []
        self._numbers = random.Random(seed)
        self._ending = threading.Event()
        self._out = out
        signing = ["--sign", str(sign_key)] if sign_key is not None else []
        argv = hbuf_program("hbuf-append", "-v", "--timeout", "60s", *signing, buffer)
        with out.open("wb") as receipts, out.with_suffix(".errors").open("wb") as errors:
            self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=receipts, stderr=errors)

    def ask_to_end(self) -> None:
        self._ending.set()

    def run(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError), pipe:
            while not self._ending.wait(self._numbers.choice([0.001, 0.01, 0.05])):
                for _ in range(self._numbers.choice([1, 1, 20])):
                    pipe.write(body_of(self.sent.name, self.sent.count, lines=True) + b"\n")
                    self.sent.count += 1
                pipe.flush()
        code = self._process.wait(ANSWER_SECONDS)
        if code:
            self.faults.append(f"hbuf-append ended with {code}: {self._out.with_suffix('.errors').read_text()[-500:]}")
        for k, line in enumerate(self._out.read_text().splitlines()):
            seq, record_id = line.split()
            self.sent.receipts[k] = (int(seq), record_id)

    def kill(self) -> None:
        self._process.kill()


def _producer(name: str, number: int) -> dict[str, str]:
    return {"x-hbuf-producer": name, "x-hbuf-producer-seq": str(number)}


def _as_request(body: bytes, fields: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return b"POST / HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n%b\r\n" % (lines.encode(), len(body), body)
