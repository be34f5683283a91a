"""Writers and readers as processes of their own, and what they leave behind to be checked."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.programs import hbuf_program

import hbuf
from hbuf.ops.key import new
from soak.bodies import body_of
from soak.check import Receipts, Shown, Writing
from soak.plan import LINE_KINDS, UNIT_MESSAGES

_END_SECONDS = 120
_CONTRIB = Path(__file__).resolve().parents[1]
_LIBRARY_WRITER = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from soak.library_writer import main; sys.exit(main())"
)
_TRY_LATER = 75


@dataclass(slots=True)
class Place:
    """Where a round keeps its files."""

    root: Path
    signed: bool = False
    encrypted: bool = False

    @property
    def sign_key(self) -> Path | None:
        return self.root / "keys" / "sign.key" if self.signed else None

    @property
    def identities(self) -> list[Path]:
        return [self.root / "keys" / "reader.key"] if self.encrypted else []

    def make_keys(self) -> str:
        """Returns the public key of whoever reads."""
        new("sign", "sign", self.root / "keys")
        return new("reader", "encrypt", self.root / "keys").public

    def open(self, path: Path | None = None) -> hbuf.Buffer:
        """The buffer, or a copy of it, with its keys."""
        return hbuf.open(
            path or self.buffer, timeout_seconds=_END_SECONDS, sign=self.sign_key, identities=self.identities
        )

    def signing(self) -> list[str]:
        """What a command that writes is given besides."""
        return ["--sign", str(self.sign_key)] if self.signed else []

    @property
    def buffer(self) -> Path:
        return self.root / "orders"

    def file(self, name: str) -> Path:
        folder = self.root / "evidence"
        folder.mkdir(exist_ok=True)
        return folder / name


@dataclass(slots=True)
class WriterProcess:
    """One life of a writer. A producer that is killed lives again under its name, and sends all of it again."""

    place: Place
    kind: str
    name: str
    life: int
    seed: int
    process: subprocess.Popen[bytes] = field(init=False)
    _stop: threading.Event = field(default_factory=threading.Event)
    _killed: bool = False

    def start(self) -> None:
        with self._file("receipts").open("wb") as out, self._file("errors").open("wb") as errors:
            if self.kind in LINE_KINDS:
                producer = ["--producer", self.name, "--producer-seq", "0"] if self.kind == "producer" else []
                words = ["-v", "--timeout", "60s", *producer, *self.place.signing()]
                argv = hbuf_program("hbuf-append", *words, self.place.buffer)
                self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=out, stderr=errors)
                threading.Thread(target=self._feed, daemon=True).start()
            else:
                words = [str(_CONTRIB), str(self.place.buffer), self.name, self.kind, str(self.seed)]
                argv = [sys.executable, "-P", "-c", _LIBRARY_WRITER, *words, str(self._file("stop"))]
                argv += [str(self.place.sign_key)] if self.place.signed else []
                self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)

    def kill(self) -> None:
        self._killed = self.process.poll() is None  # else it ended by itself, and wait() says how
        self.process.kill()
        self.process.wait()
        self._stop.set()

    def ask_to_end(self) -> None:
        self._stop.set()
        self._file("stop").touch()

    def wait(self) -> list[str]:
        """What is wrong with how it ended."""
        try:
            code = self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return [f"writer {self.name} did not end"]
        finally:
            self._stop.set()
        if self._killed or code in (0, _TRY_LATER):
            return []
        return [f"writer {self.name} ended with {code}: {self._file('errors').read_text()[-500:]}"]

    def receipts(self) -> Receipts:
        """Number and id of each acknowledged message, by its place among those sent in this life."""
        whole, _, _ = self._file("receipts").read_text().rpartition("\n")
        lines = [line.split() for line in whole.splitlines()]
        return {k: (int(line[0]), line[1]) for k, line in enumerate(lines) if line[1] != "duplicate"}

    def _file(self, what: str) -> Path:
        return self.place.file(f"{self.name}.{self.life}.{what}")

    def _feed(self) -> None:
        """Sends lines, in bursts, until it is told to stop or nobody reads."""
        numbers = random.Random(self.seed)
        pipe = self.process.stdin
        if pipe is None:
            return
        k = 0
        with contextlib.suppress(BrokenPipeError), pipe:
            while not self._stop.is_set():
                for _ in range(numbers.choice([1, 3, 100])):
                    pipe.write(body_of(self.name, k, lines=True) + b"\n")
                    k += 1
                pipe.flush()
                self._stop.wait(numbers.choice([0.001, 0.01, 0.1]))


class ReaderProcess:
    """hbuf-tail -f from the first message on."""

    def __init__(self, place: Place, name: str) -> None:
        self._out = place.file(f"{name}.shown")
        identities = [word for path in place.identities for word in ("--identity", str(path))]
        argv = hbuf_program("hbuf-tail", "-f", "-o", "first", "--json", *identities, place.buffer)
        with self._out.open("wb") as out, place.file(f"{name}.errors").open("wb") as errors:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)

    def wait_for(self, seq: int) -> list[str]:
        """Waits until it has shown message `seq`. What is wrong if it does not."""
        deadline = time.monotonic() + _END_SECONDS
        while (shown := self.shown())[-1:] == [] or shown[-1][0] < seq:
            if time.monotonic() > deadline or self._process.poll() is not None:
                return [f"a reader shows {shown[-1][0] if shown else 0} messages of {seq}"]
            time.sleep(0.02)
        return []

    def end(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def shown(self) -> Shown:
        whole, _, _ = self._out.read_bytes().rpartition(b"\n")
        messages = [json.loads(line) for line in whole.splitlines()]
        return [(message["seq"], message["id"]) for message in messages]


def writings(lives: list[WriterProcess]) -> list[Writing]:
    """What was sent and acknowledged, writer by writer."""
    found: dict[str, Writing] = {}
    for life in lives:
        unit = UNIT_MESSAGES if life.kind == "units" else 1
        writing = found.setdefault(life.name, Writing(life.name, unit, lines=life.kind in LINE_KINDS))
        writing.receipts.append(life.receipts())
    return list(found.values())
