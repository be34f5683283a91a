"""What a verifier says: what it checked, what is right, and each fault with its place."""

from __future__ import annotations

from dataclasses import dataclass, field

from hbuf.format.check import Fault, Keys
from hbuf.format.deletes import Retirement

KINDS = ("bytes", "chain", "signatures", "completeness", "settings", "index")
# What is counted under each kind: segments, messages, signatures, numbers, buffer.json, indexes and tags files.
VERDICTS = ("intact", "erased", "unerased", "retired", "incomplete", "tampered")


@dataclass(frozen=True, slots=True)
class PlacedFault:
    kind: str
    file: str
    at: int
    seq: int | None
    reason: str
    verdict: str

    def __str__(self) -> str:
        number = f": message {self.seq}" if self.seq is not None else ""
        return f"{self.file}: byte {self.at}{number}: {self.reason}"


def _no_verdicts() -> dict[str, dict[str, int]]:
    return {kind: dict.fromkeys(VERDICTS, 0) for kind in KINDS}


@dataclass(slots=True)
class Report:
    """What was checked and what was found. `ok` only if all that it names was checked and is right."""

    path: str
    uuid: str = ""
    segments: int = 0
    bytes_checked: int = 0
    messages: int = 0  # without the records that say what was erased or retired
    first_seq: int = 0
    last_seq: int = 0
    last_id: str = ""
    last_time: str = ""
    faults: list[PlacedFault] = field(default_factory=list)
    verdicts: dict[str, dict[str, int]] = field(default_factory=_no_verdicts)
    not_checked: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    signed: bool = False
    first_key: bytes | None = None  # with which the line of keys begins
    retired: Retirement | None = None  # what the newest DELETE that retires says
    retired_keys: Keys | None = None  # that signed the last of what was retired
    signatures: int = 0  # that were found right
    recoveries: int = 0  # PUTs that the recovery key signed: each starts a new line of keys
    encrypted: int = 0  # messages whose bodies are encrypted

    @property
    def ok(self) -> bool:
        return not any(self.fault_count(kind) for kind in KINDS) and not self.not_checked

    def fault_count(self, kind: str) -> int:
        found = self.verdicts[kind]
        return found["tampered"] + found["incomplete"] + found["unerased"]

    def add(self, file: str, fault: Fault) -> None:
        self.faults.append(PlacedFault(fault.kind, file, fault.at, fault.seq, fault.reason, fault.verdict))
        self.verdicts[fault.kind][fault.verdict] += 1
