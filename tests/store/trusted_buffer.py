"""A buffer that is signed, encrypted and compressed at once, or some of that, with the messages of SECRETS."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hbuf.format.message import Message
from hbuf.ops.compress import compress
from hbuf.ops.create import create
from hbuf.ops.retire import retire
from hbuf.ops.verify import verify
from hbuf.store.directory import BufferDirectory
from hbuf.store.retention import Plan
from hbuf.store.signing import Signer

from .checking import append_to, read_all
from .encryption_keys import make_identity, public_text
from .erase_scenarios import SECRETS, Secret, check_whole_or_erased, erase_in, store_secrets, with_salts
from .signed_scenarios import KEY, PUBLICS, RECOVERY_KEY, make_key


@dataclass(frozen=True, slots=True)
class Trust:
    """What a buffer is made with."""

    signed: bool = False
    encrypted: bool = False
    compressed: bool = False
    hash: str = "blake3"

    def __str__(self) -> str:
        said = {"signed": self.signed, "encrypted": self.encrypted, "compressed": self.compressed}
        return " ".join([*(name for name, is_so in said.items() if is_so), self.hash])


EVERYTHING = Trust(signed=True, encrypted=True, compressed=True)
TRUSTS = [
    Trust(compressed=True),
    Trust(encrypted=True),
    Trust(signed=True),
    Trust(encrypted=True, compressed=True),
    Trust(signed=True, compressed=True),
    Trust(compressed=True, hash="sha256"),
    EVERYTHING,
    Trust(signed=True, encrypted=True, compressed=True, hash="sha256"),
]


class TrustedBuffer:
    """Three messages a segment: 1 to 3, 4 to 6, and one more in the newest."""

    def __init__(self, where: Path, trust: Trust, **settings: str) -> None:
        self.where = where
        self.trust = trust
        self.path = where / "orders"
        make_key(where, RECOVERY_KEY, "recovery")
        self.key = make_key(where, KEY) if trust.signed else None
        self.identity = make_identity(where, "alice") if trust.encrypted else None
        create(
            str(self.path),
            {"segment_messages": "3", "hash": trust.hash} | settings,
            signer=self.signer,
            recovery_key=PUBLICS[RECOVERY_KEY] if trust.signed else None,
            recipients=[public_text(self.identity)] if self.identity else [],
        )
        store_secrets(self.path, SECRETS, key=self.key)
        self.append(b"in the newest")
        if trust.compressed:
            self.compress()
            assert self.directory.compressed(1).exists()
        self.secrets = with_salts(self.path)

    @property
    def directory(self) -> BufferDirectory:
        return BufferDirectory(self.path)

    @property
    def signer(self) -> Signer | None:
        return Signer(self.key) if self.key else None

    @property
    def first_key(self) -> bytes | None:
        return PUBLICS[KEY] if self.trust.signed else None

    def append(self, *bodies: bytes) -> None:
        append_to(self.path, *bodies, key=self.key)

    def erase(self, *numbers: int) -> int:
        return erase_in(self.path, *numbers, key=self.key)

    def compress(self) -> None:
        assert compress(str(self.path), timeout_seconds=20)

    def retire(self) -> Plan:
        return retire(str(self.path), timeout_seconds=20, signer=self.signer)

    def read(self) -> list[Message]:
        return read_all(self.path, self.identity)

    def check(self, *erased: int, secrets: list[Secret] | None = None) -> None:
        """These are erased, with nothing left in any file; the others are there; and the first key verifies it."""
        check_whole_or_erased(
            self.path,
            self.secrets if secrets is None else secrets,
            erased,
            done=True,
            identity=self.identity,
            signer=self.first_key,
        )

    def check_verifies(self) -> None:
        report = verify(str(self.path), jobs=1, signer=self.first_key)
        assert report.ok, f"{[str(fault) for fault in report.faults]}, not checked: {report.not_checked}"
        assert report.notes == []
