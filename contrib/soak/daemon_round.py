"""A round with the daemon: clients, a shell and readers on its buffers, while it is killed and started again.

Then every message that was answered must be there, once and in order, and every buffer must verify.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.programs import hbuf_program

import hbuf
from hbuf.format.message import Message
from hbuf.ops.key import new
from soak.check import check_shown, stored_messages
from soak.daemon_check import check_sent
from soak.daemon_clients import Client, Shell
from soak.daemon_plan import DaemonPlan, Load
from soak.daemon_process import ANSWER_SECONDS, BROKEN, Daemon
from soak.daemon_readers import HttpReader

_LAST = b"last"
_SIZES = (4096, 8192, 131_072)


@dataclass(slots=True)
class DaemonRound:
    plan: DaemonPlan
    folder: Path
    faults: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    changes: int = 0  # of settings, that the daemon said it has made
    _daemon: Daemon = field(init=False)
    _clients: dict[str, list[Client | Shell]] = field(default_factory=dict)  # by buffer
    _readers: dict[str, list[HttpReader]] = field(default_factory=dict)
    _numbers: random.Random = field(init=False)

    def run(self) -> None:
        self._numbers = random.Random(self.plan.seed)
        self._daemon = Daemon(self.folder / "root")
        self._daemon.start()
        try:
            public = new("reader", "encrypt", self.folder / "keys").public
            for load in self.plan.loads:
                self._make(load, public)
            for each in self._everybody():
                each.start()
            for seconds in self.plan.kills:
                self._kill_after(seconds)
            self._finish()
        finally:
            self._daemon.kill()
            for each in self._everybody():
                each.ask_to_end()
                if isinstance(each, Shell):
                    each.kill()
        for load in self.plan.loads:
            self._check(load)
        self._check_trail()

    def _everybody(self) -> list[Client | Shell | HttpReader]:
        return [each for found in (self._clients, self._readers) for many in found.values() for each in many]

    def _make(self, load: Load, public: str) -> None:
        name = load.kind
        values: dict[str, object] = dict(load.settings)
        if load.kind == "signed":
            values["sign"] = True
        elif load.kind == "encrypted":
            values["recipients"] = [public]
        answer = self._daemon.ask("PUT", f"/b/{name}", values)
        if answer.status != 201:
            raise RuntimeError(f"{name} cannot be made: {answer.body!r}")
        clients: list[Client | Shell] = [
            Client(self._daemon, name, kind, f"{kind.replace(' ', '-')}-{i}", self._numbers.getrandbits(32))
            for i, kind in enumerate(load.clients)
        ]
        if load.shell:
            key = self.folder / "root" / "keys" / "default" / f"{name}.key" if load.kind == "signed" else None
            out = self.folder / f"{name}.receipts"
            clients.append(Shell(self._daemon.buffer(name), key, "shell", out, self._numbers.getrandbits(32)))
        self._clients[name] = clients
        self._readers[name] = [HttpReader(self._daemon, name, kind) for kind in load.readers]

    # While it runs

    def _answered(self) -> int:
        return sum(len(each.sent.receipts) for clients in self._clients.values() for each in clients)

    def _kill_after(self, seconds: float) -> None:
        """A daemon that has answered nothing yet has nothing to lose."""
        before, deadline = self._answered(), time.monotonic() + ANSWER_SECONDS
        while self._answered() <= before:
            if time.monotonic() > deadline:
                self.faults.append("nobody is answered")
                return
            time.sleep(0.002)
        end = time.monotonic() + seconds
        self._change_settings()
        time.sleep(max(end - time.monotonic(), 0))
        self._daemon.kill()
        self.counts["kills"] = self.counts.get("kills", 0) + 1
        self._daemon.start()

    def _change_settings(self) -> None:
        name = self._numbers.choice(self.plan.loads).kind
        # Each time another one: what changes nothing is not noted.
        size = self._numbers.choice(_SIZES) + self.counts.get("kills", 0) + 1
        with contextlib.suppress(*BROKEN):
            answer = self._daemon.ask("PATCH", f"/b/{name}/settings", {"segment_bytes": size})
            if answer.status == 200:
                self.changes += 1

    def _finish(self) -> None:
        for each in self._everybody():
            if not isinstance(each, HttpReader):
                each.ask_to_end()
        for each in self._everybody():
            if not isinstance(each, HttpReader):
                each.join(ANSWER_SECONDS)
                if each.is_alive():
                    self.faults.append(f"client {each.sent.name} is not answered")
        for load in self.plan.loads:
            with contextlib.closing(self._daemon.connection()) as connection:
                connection.request("POST", f"/b/{load.kind}", _LAST, self._daemon.authorization())
                seq = int(connection.getresponse().headers["x-hbuf-seq"])
            for reader in self._readers[load.kind]:
                self.faults += reader.wait_for(seq)
                reader.ask_to_end()
        code = self._daemon.end()
        if code:
            self.faults.append(f"hbufd ended with {code}: {self._daemon.log.read_text()[-500:]}")

    # The end

    def _check(self, load: Load) -> None:
        path = self._daemon.buffer(load.kind)
        signer = []
        if load.kind == "signed":
            key = self.folder / "root" / "keys" / "default" / f"{load.kind}.key"
            signer = ["--signer", self._output("hbuf-key", "export", key).strip()]
        self._output("hbuf-verify", *signer, path)
        stored = self._stored(path)
        if not stored or stored[-1].body != _LAST:
            self.faults.append(f"{load.kind}: the last message is not the last one")
        self.counts["messages"] = self.counts.get("messages", 0) + len(stored)
        clients = self._clients[load.kind]
        self.faults += [f"{load.kind}: {fault}" for fault in check_sent(stored[:-1], [each.sent for each in clients])]
        for reader in self._readers[load.kind]:
            reader.join(ANSWER_SECONDS)
            self.faults += check_shown(f"{load.kind}: a reader ({reader.kind})", reader.shown, stored)
        everybody = [*clients, *self._readers[load.kind]]
        self.faults += [f"{load.kind}: {fault}" for each in everybody for fault in each.faults]

    def _stored(self, path: Path) -> list[Message]:
        return stored_messages(hbuf.open(path, identities=[self.folder / "keys" / "reader.key"]))

    def _check_trail(self) -> None:
        """What the daemon said it has done is in the audit trail, which verifies."""
        path = self._daemon.buffer("_audit")
        self._output("hbuf-verify", path)
        noted = [json.loads(message.body) for message in hbuf.open(path).read("first")]
        made = {each.get("buffer") for each in noted if each["what"] == "buffer.create"}
        for load in self.plan.loads:
            if load.kind not in made:
                self.faults.append(f"{load.kind}: the audit trail has not that it was made")
        changes = sum(each["what"] == "buffer.set" for each in noted)
        if changes < self.changes:
            self.faults.append(f"the audit trail has {changes} changes of settings, and {self.changes} were made")

    def _output(self, program: str, *arguments: str | Path) -> str:
        done = subprocess.run(
            hbuf_program(program, *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=False,
        )
        if done.returncode:
            shown = (done.stdout + done.stderr)[-500:]
            self.faults.append(f"{program} {' '.join(map(str, arguments))} ended with {done.returncode}: {shown}")
        return done.stdout
