"""The buffers that are attacked: small, of every kind, each with all that a buffer can have."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import zstandard

from hbuf.format.fields import encode_fields
from hbuf.format.keys import Kind, PublicKey, encode_public
from hbuf.format.seekable import encode_table
from hbuf.ops.create import create
from hbuf.ops.erase import Erasing, erase
from hbuf.ops.head import head
from hbuf.ops.key import new
from hbuf.ops.report import Report
from hbuf.ops.retire import retire
from hbuf.ops.verify import Expected, expected_head, parse_expected, verify
from hbuf.store.data_keys import Identity
from hbuf.store.directory import BufferDirectory
from hbuf.store.keyring import load_key, load_public
from hbuf.store.outgoing import Outgoing
from hbuf.store.reader import Reader
from hbuf.store.signing import Signer
from hbuf.store.writer import Writer

PLAIN, SIGNED, ENCRYPTED, COMPRESSED = "plain", "signed", "encrypted", "compressed"
KINDS = (PLAIN, SIGNED, ENCRYPTED, COMPRESSED)
UNSIGNED = (PLAIN, ENCRYPTED, COMPRESSED)
FIELDS = encode_fields("user-17", ["host=web1"], [("content-type", "text/plain")])
_FRAME_BYTES = 1024
LAST = 9  # messages 1 to 9, in segments of three; 4 to 6 are one unit
ERASED = 8  # in an aged one, where segments 1 and 4 are retired; 10 and 11 say so


@dataclass(frozen=True)
class Target:
    """A buffer, its keys, and the head that an auditor keeps elsewhere."""

    root: Path
    kind: str

    @property
    def path(self) -> Path:
        return self.root / "buffer"

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def is_signed(self) -> bool:
        return self.kind == SIGNED

    @property
    def secret(self) -> bytes:
        """What a thief finds in the key file."""
        return load_key(self.keys / "sign.key").secret

    def segment(self, first: int) -> Path:
        return self.path / "segments" / f"{first:020}.http"

    @property
    def compressed_segments(self) -> list[Path]:
        return sorted(self.path.glob("segments/*.zst"))

    @property
    def signer(self) -> Signer | None:
        return Signer(self.keys / "sign.key") if self.is_signed else None

    def writer(self) -> Writer:
        return Writer(BufferDirectory(self.path), signer=self.signer)

    def append(self, *bodies: bytes, unit: bool = False) -> None:
        with self.writer() as writer:
            writer.append(Outgoing(bodies, FIELDS, unit=unit))

    def identity(self) -> Identity:
        return Identity(self.keys / "reader.key")

    def verify(self) -> Report:
        """As an auditor does, who has the first public key and a head."""
        signer = load_public("sign", self.keys).data if self.is_signed else None
        return verify(str(self.path), head=self.kept_head(), signer=signer, jobs=1)

    def finish(self) -> None:
        """What an attacker does last, so that the buffer is again what it was said to be."""
        if self.kind == COMPRESSED:
            for file in sorted(self.path.glob("segments/*.http"))[:-1]:
                file.with_name(file.name + ".zst").write_bytes(compressed(file.read_bytes()))
                file.unlink()

    def kept_head(self) -> Expected:
        note = self.root / "head.note"
        return expected_head(str(note)) if self.is_signed else parse_expected(note.read_text())

    def keep_head(self) -> None:
        (self.root / "head.note").write_text(head(str(self.path)) if self.is_signed else self._seq_and_id())

    def _seq_and_id(self) -> str:
        with Reader(BufferDirectory(self.path)) as reader:
            [record] = [chunk.parse(0) for chunk in reader.chunks(LAST, LAST + 1)]
        assert record
        return f"{LAST}:{record.id.decode()}"


def make_target(root: Path, kind: str) -> Target:
    target = Target(root, kind)
    kinds: dict[str, Kind] = {"sign": "sign", "stranger": "sign", "reader": "encrypt"}
    for name, of_kind in kinds.items():
        new(name, of_kind, target.keys)
    reader = encode_public(PublicKey("encrypt", load_public("reader", target.keys).data))
    create(
        str(target.path),
        {"segment_messages": "3", "retention_messages": "3"},
        signer=target.signer,
        recipients=[reader] if kind == ENCRYPTED else [],
    )
    shutil.copytree(target.path, root / "older")
    target.append(b"one", b"two", b"three")
    target.append(b"four", b"five", b"six", unit=True)
    shutil.copytree(target.path, root / "old")
    shutil.copy(target.keys / "sign.key", root / "old.key")
    target.append(b"seven", b"eight", b"nine")
    target.keep_head()
    return target


def make_aged(root: Path, kind: str) -> Target:
    """One in which a message was erased, and segments were retired. What was before the erase is in `unerased`."""
    target = make_target(root, kind)
    shutil.copytree(target.path, root / "unerased")
    erase(str(target.path), [range(ERASED, ERASED + 1)], Erasing("asked for", signer=target.signer))
    assert retire(str(target.path), timeout_seconds=10, signer=target.signer).end == 6
    target.keep_head()
    return target


def compressed(data: bytes) -> bytes:
    """What hbuf-compress makes of a segment, were it not damaged."""
    frames = [(encode_frame(data[at : at + _FRAME_BYTES]), len(data[at : at + _FRAME_BYTES])) for at in _starts(data)]
    return b"".join(frame for frame, _ in frames) + encode_table([(len(frame), length) for frame, length in frames])


def encode_frame(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True, write_content_size=True).compress(content)


def _starts(data: bytes) -> range:
    return range(0, len(data), _FRAME_BYTES)


Attack = Callable[[Target], None]
