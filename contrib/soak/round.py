"""One round: a buffer, writers and readers on it, what disturbs them, and in the end the check of everything."""

from __future__ import annotations

import random
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.programs import hbuf_program

import hbuf
from soak.check import Shown, check_buffer, check_messages, check_shown, last_acknowledged, stored_messages
from soak.plan import Phase, Plan
from soak.processes import Place, ReaderProcess, WriterProcess, writings
from soak.tears import tear

_END_SECONDS = 120


@dataclass(slots=True)
class Round:
    plan: Plan
    place: Place
    lives: list[WriterProcess] = field(default_factory=list)  # of writers that ended, and of those at work
    working: list[WriterProcess] = field(default_factory=list)
    reading: list[ReaderProcess] = field(default_factory=list)
    shown: dict[str, Shown] = field(default_factory=dict)  # by whom
    faults: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    numbers: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = random.Random(self.plan.seed)

    def run(self) -> None:
        public = self.place.make_keys()
        recipients = [public] if self.plan.encrypted else []
        hbuf.create(self.place.buffer, sign=self.place.sign_key, encrypt_to=recipients, **self.plan.settings).close()
        try:
            for number, phase in enumerate(self.plan.phases):
                self._run_phase(number, phase)
            self._check()
        finally:
            for process in self.working:
                process.kill()
            for reader in self.reading:
                reader.end()

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # Phases

    def _run_phase(self, number: int, phase: Phase) -> None:
        self.reading = [ReaderProcess(self.place, f"reader-{number}-{i}") for i in range(self.plan.readers)]
        for i, kind in enumerate(self.plan.writers):
            # A producer goes on under its name; any other is somebody new.
            self._start(kind, f"{kind}-{i}" if kind == "producer" else f"{kind}-{i}-{number}")
        self._wait_for_a_receipt()
        for seconds, event in phase.events:
            time.sleep(seconds)
            self._disturb(event)
        self._end_writers(phase.killed)
        self._end_readers(number)
        for what in phase.tears:
            tear(what, self.place.buffer, self.numbers)
            self._count("tear")

    def _start(self, kind: str, name: str) -> None:
        life = sum(1 for each in self.lives if each.name == name)
        process = WriterProcess(self.place, kind, name, life, self.numbers.getrandbits(32))
        process.start()
        self.lives.append(process)
        self.working.append(process)

    def _wait_for_a_receipt(self) -> None:
        """Disturbing processes that have not started yet shows little. (A writer whose clock jumped may have ended.)"""
        before = last_acknowledged(writings([life for life in self.lives if life not in self.working]))
        deadline = time.monotonic() + _END_SECONDS
        while last_acknowledged(writings(self.working)) <= before:
            if all(each.process.poll() is not None for each in self.working):
                return
            if time.monotonic() > deadline:
                self.faults.append("no writer gets a receipt")
                return
            time.sleep(0.01)

    def _end_writers(self, killed: bool) -> None:
        for process in self.working:
            if killed:
                process.kill()
                self._count("kill")
            else:
                process.ask_to_end()
        for process in self.working:
            self.faults += process.wait()
        self.working = []

    def _end_readers(self, number: int) -> None:
        for i, reader in enumerate(self.reading):
            reader.end()
            self.shown[f"reader {number}-{i}"] = reader.shown()
        self.reading = []

    # Events

    def _disturb(self, event: str) -> None:
        if event == "kill":
            self._kill_a_writer()
        elif event == "backup":
            self._back_up()
        elif event == "pause and die":
            self._pause_and_die()
        elif event == "reindex":
            self._command("hbuf-reindex", "--timeout", "60s", self.place.buffer)
        elif event == "set":
            size = self.numbers.choice(["4096", "8192", "128KiB"])
            words = ["--timeout", "60s", *self.place.signing()]
            self._command("hbuf-set", *words, self.place.buffer, f"segment_bytes={size}")
        elif event == "compress":
            self._command("hbuf-compress", "--timeout", "60s", self.place.buffer)
        self._count(event)

    def _kill_a_writer(self) -> None:
        victim = self.working.pop(self.numbers.randrange(len(self.working)))
        victim.kill()
        self.faults += victim.wait()
        name = victim.name if victim.kind == "producer" else f"{victim.name}-again"
        self._start(victim.kind, name)

    def _command(self, program: str, *arguments: str | Path) -> bool:
        done = subprocess.run(
            hbuf_program(program, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_END_SECONDS,
            check=False,
        )
        if done.returncode:
            self.faults.append(f"{program} ended with {done.returncode}: {done.stdout.decode()[-500:]}")
        return done.returncode == 0

    def _pause_and_die(self) -> None:
        """hbuf-pause is killed; its command goes on for a moment, and then the pause must not hold."""
        process = subprocess.Popen(hbuf_program("hbuf-pause", self.place.buffer, "--", "sleep", "0.2"))
        time.sleep(self.numbers.uniform(0.05, 0.3))
        process.kill()
        process.wait()

    def _back_up(self) -> None:
        """A backup has at least what was acknowledged before it; restored, it takes messages and verifies."""
        number = self.counts.get("backup", 0)
        before = last_acknowledged(writings(self.lives))
        archive, restored = self.place.root / f"backup-{number}.tar", self.place.root / f"restored-{number}"
        restored.mkdir()
        tar = ["tar", "-C", self.place.root, "-cf", archive, self.place.buffer.name]
        if not self._command("hbuf-pause", "--timeout", "60s", self.place.buffer, "--", *map(str, tar)):
            return
        subprocess.run(["tar", "-C", restored, "-xf", archive], check=True)
        copy = restored / self.place.buffer.name
        if not self.plan.signed:  # its key goes on with the buffer, and does not come back with a backup
            with self.place.open(copy) as buffer:
                buffer.append(b"after the restore")
        self.faults += [f"backup {number}: {fault}" for fault in check_buffer(copy)]
        messages = stored_messages(self.place.open(copy))
        messages = messages if self.plan.signed else messages[:-1]
        if len(messages) < before:
            self.faults.append(f"backup {number}: has {len(messages)} messages, {before} were acknowledged before it")
        self.shown[f"backup {number}"] = [(message.seq, message.id) for message in messages]

    # The end

    def _check(self) -> None:
        """A last message makes a writer put right what is torn; then everything must be there, for everybody."""
        path = self.place.buffer
        with self.place.open() as buffer:
            receipt = buffer.append(b"last")
        reader = ReaderProcess(self.place, "reader-last")
        self.reading = [reader]
        self.faults += reader.wait_for(receipt.seq)
        self._end_readers(len(self.plan.phases))
        self.faults += check_buffer(path)
        stored = stored_messages(self.place.open())
        if not stored or (stored[-1].seq, stored[-1].id, stored[-1].body) != (receipt.seq, receipt.id, b"last"):
            self.faults.append("the last message is not the last one")
        self.counts["messages"] = len(stored)
        for who, shown in self.shown.items():
            self.faults += check_shown(who, shown, stored)
        self.faults += check_messages(stored[:-1], writings(self.lives))
