"""What an attacker does with records: takes them apart, changes them, chains them anew, signs with what was stolen."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from nacl.signing import SigningKey

from hbuf.format.chain import ZERO_ID, Hasher, commitment, hasher_named, record_id
from hbuf.format.deletes import Erasure
from hbuf.format.note import encode_signature, head_text, put_text
from hbuf.format.scan import scan
from hbuf.ops.reindex import reindex

Sign = Callable[[bytes], bytes]  # of a text: the signature as a record has it


def signs_with(secret: bytes) -> Sign:
    return lambda text: encode_signature(SigningKey(secret).sign(text).signature)


@dataclass
class Part:
    """One record, in parts."""

    head: bytes
    fields: bytes
    salted: bytes | None  # b"salt" or b"gone"
    salt: bytes
    id: bytes
    sig: bytes | None
    body: bytes

    @property
    def seq(self) -> int:
        found = re.search(rb"x-hbuf-seq: (\d+)\r\n", self.head)
        return int(found[1]) if found else 0

    @property
    def is_put(self) -> bool:
        return self.head.startswith(b"PUT ")

    @property
    def is_full_put(self) -> bool:
        return b"x-hbuf-format: " in self.head

    def value(self, name: bytes) -> bytes:
        found = re.search(rb"^" + name + rb": (.*)\r$", self.head, re.MULTILINE)
        assert found, name
        return found[1]

    def set(self, name: bytes, value: bytes) -> None:
        changed = re.sub(rb"(?m)^" + name + rb": .*\r$", name + b": " + value + b"\r", self.head)
        assert changed != self.head, f"{name!r} already says that"
        self.head = changed

    def set_body(self, body: bytes) -> None:
        self.body = body
        self.head = re.sub(rb"content-length: \d+", b"content-length: %d" % len(body), self.head)

    def commitment(self, hasher: Hasher) -> bytes:
        if self.salted == b"gone":
            return base64.urlsafe_b64decode(self.salt + b"=").hex().encode()
        return commitment(hasher, self.salt, self.fields, self.body)

    def make_gone(self, hasher: Hasher) -> Erasure:
        """Makes it look erased. Returns what a DELETE would have to say of it."""
        commit = self.commitment(hasher)
        self.salted, self.salt = b"gone", base64.urlsafe_b64encode(bytes.fromhex(commit.decode())).rstrip(b"=")
        if self.fields:
            self.fields = b"x: " + b"-" * (len(self.fields) - 5) + b"\r\n"
        self.body = bytes(len(self.body))
        return Erasure(self.seq, self.id, commit)

    def encode(self) -> bytes:
        salt_line = b"x-hbuf-%b: %b\r\n" % (self.salted, self.salt) if self.salted else b""
        sig_line = b"x-hbuf-sig: %b\r\n" % self.sig if self.sig else b""
        lines = self.head + self.fields + salt_line + b"x-hbuf-id: %b\r\n" % self.id + sig_line
        return lines + b"\r\n" + self.body + b"\r\n"


@dataclass
class Forged:
    """All segments of a buffer, taken apart. `write` puts them back, with indexes that fit, as an attacker would."""

    path: Path
    segments: dict[int, list[Part]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for file in sorted(self.path.glob("segments/*.http")):
            data = file.read_bytes()
            found = scan(data)
            assert found.unreadable is None, file
            self.segments[int(file.stem)] = [
                Part(
                    data[record.start : record.head_end],
                    data[record.head_end : record.fields_end],
                    record.salted,
                    record.salt,
                    record.id,
                    record.sig,
                    data[record.body_start : record.body_end],
                )
                for record in found.records
            ]

    def parts(self) -> Iterator[Part]:
        for segment in self.segments.values():
            yield from segment

    def message(self, seq: int) -> Part:
        return next(part for part in self.parts() if part.seq == seq)

    def segment_of(self, seq: int) -> list[Part]:
        return self.segments[max(first for first in self.segments if first <= seq)]

    @property
    def last(self) -> Part:
        return self.segments[max(self.segments)][-1]

    @property
    def first_put(self) -> Part:
        return self.segments[min(self.segments)][0]

    @property
    def uuid(self) -> str:
        return self.first_put.value(b"x-hbuf-buffer").decode()

    @property
    def hasher(self) -> Hasher:
        return hasher_named(self.first_put.value(b"x-hbuf-hash").decode())

    def append(self, body: bytes, *, own: bytes = b"", method: bytes = b"POST") -> Part:
        """A record behind the last one, not chained yet."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() + 60)).encode()
        seq = max(part.seq for part in self.parts()) + 1
        head = b"%b /b/%b HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: %d\r\nx-hbuf-time: %b\r\n%bcontent-length: %d\r\n" % (
            method, self.path.name.encode(), seq, now, own, len(body),
        )  # fmt: skip
        part = Part(head, b"", b"salt", b"A" * 43, b"0" * 64, None, body)
        self.segments[max(self.segments)].append(part)
        return part

    def chain(self, sign: Sign | None = None) -> None:
        """Computes every id anew. With `sign` every signature too."""
        prev = ZERO_ID if 1 in self.segments else self.first_put.value(b"x-hbuf-prev")
        hasher, uuid = self.hasher, self.uuid
        for part in self.parts():
            if part.is_full_put and part.value(b"x-hbuf-prev") != prev:
                part.set(b"x-hbuf-prev", prev)
            part.id = prev = record_id(hasher, prev, part.commitment(hasher), part.head)
            if sign is not None and part.sig is not None:
                number = int(part.value(b"x-hbuf-first")) if part.is_put else part.seq
                part.sig = sign((put_text if part.is_put else head_text)(uuid, number, part.id))

    def write(self, *, indexed: bool = True) -> None:
        """Puts all of it back. `indexed`: with indexes made anew, so that they give nothing away."""
        for file in self.path.glob("segments/*"):
            file.unlink()
        for first, parts in self.segments.items():
            file = self.path / "segments" / f"{first:020}.http"
            file.write_bytes(b"".join(part.encode() for part in parts))
        if indexed:
            reindex(str(self.path), timeout_seconds=10)


def copied(part: Part) -> Part:
    return replace(part)
