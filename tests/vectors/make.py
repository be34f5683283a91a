"""Makes the vectors: small segments, good and damaged, and what a verifier must say of each. Run it by hand.

It shares no code with hbuf: it is a second writer, from the text of the format alone. A vector is a few lines of
text (name, what to expect, and for a fault the byte and the number), an empty line, and the segment's bytes. The
damaged ones are sealed over their damage where they can be, so that it is the grammar that has to notice.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from blake3 import blake3

UUID = "6f1c2a52-94a5-4c1f-9d0b-0f6f1d7c8e11"
ZERO_ID = b"0" * 64
SETTINGS = b'{"name": "orders"}\n'


def blake3_hex(data: bytes) -> bytes:
    return blake3(data).hexdigest().encode()


def sha256_hex(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


class Segment:
    """A segment under construction; it knows where each record began."""

    def __init__(
        self, hash_name: str = "blake3", *, salted: bool = True, first: int = 1, prev: bytes = ZERO_ID
    ) -> None:
        self.hex = sha256_hex if hash_name == "sha256" else blake3_hex
        self.data = b""
        self.prev = prev
        self.salted = salted
        self.starts: list[int] = []
        self.ids: list[bytes] = []
        self.salts = 0
        own = (
            f"x-hbuf-format: 1\r\nx-hbuf-hash: {hash_name}\r\nx-hbuf-buffer: {UUID}\r\nx-hbuf-epoch: 1\r\n"
            f"x-hbuf-first: {first}\r\nx-hbuf-prev: {prev.decode()}\r\n"
        )
        head = f"PUT /b/orders HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-time: 2026-11-18T04:51:00.000000Z\r\n{own}"
        head += f"content-length: {len(SETTINGS)}\r\n"
        self.seal(head.encode(), b"content-type: application/json\r\n", SETTINGS)

    def message(
        self,
        seq: int | str,
        body: bytes = b"hello",
        *,
        fields: bytes = b"",
        own: bytes = b"",
        time: str = "2026-11-18T04:51:00.000001Z",
        length: str | None = None,
        salt: bytes | None = None,
        method: str = "POST",
    ) -> Segment:
        head = f"{method} /b/orders HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: {seq}\r\nx-hbuf-time: {time}\r\n".encode()
        head += own + f"content-length: {len(body) if length is None else length}\r\n".encode()
        return self.seal(head, fields, body, salt)

    def seal(self, head: bytes, fields: bytes, body: bytes, salt: bytes | None = None) -> Segment:
        if salt is None:
            salt = base64url(hashlib.sha256(b"salt %d" % self.salts).digest()) if self.salted else b""
        self.salts += 1
        commit = self.hex(b"hbuf1 body " + salt + b"\n" + fields + body)
        self.prev = self.hex(b"hbuf1 id\n" + self.prev + b"\n" + commit + b"\n" + head)
        salt_line = b"x-hbuf-salt: " + salt + b"\r\n" if salt else b""
        self.starts.append(len(self.data))
        self.ids.append(self.prev)
        self.data += head + fields + salt_line + b"x-hbuf-id: " + self.prev + b"\r\n\r\n" + body + b"\r\n"
        return self

    def replace(self, record: int, old: bytes, new: bytes) -> Segment:
        """Changes bytes behind the back of the chain, once, in the record of that place."""
        at = self.data.index(old, self.starts[record])
        self.data = self.data[:at] + new + self.data[at + len(old) :]
        return self

    def erase(self, record: int, fields: bytes, body: bytes) -> Segment:
        """As the format says: gone for salt, filler for fields, zeros for the body; no byte moves."""
        start = self.starts[record]
        salt_at = self.data.index(b"x-hbuf-salt: ", start) + len(b"x-hbuf-salt: ")
        salt = self.data[salt_at : salt_at + 43]
        commit = bytes.fromhex(self.hex(b"hbuf1 body " + salt + b"\n" + fields + body).decode())
        self.replace(record, b"x-hbuf-salt: " + salt, b"x-hbuf-gone: " + base64url(commit))
        self.replace(record, fields, b"x: " + b"-" * (len(fields) - 5) + b"\r\n")
        return self.replace(record, b"\r\n\r\n" + body, b"\r\n\r\n" + bytes(len(body)))


def intact() -> dict[str, Segment]:
    """Segments without a fault."""
    fields = (
        b"x-hbuf-key: user-17\r\nx-hbuf-tag: host=web1\r\nx-hbuf-tag: \r\ncontent-type: text/plain\r\nx-a: \xc3\xa9\r\n"
    )
    fake = Segment().message(1).data
    erased = Segment().message(1).message(2, b"secret", fields=fields)
    erases = (
        b"x-hbuf-erases: 2 " + erased.ids[2] + b" " + b"0" * 64 + b"\r\nx-hbuf-by: ann\r\nx-hbuf-reason: asked to\r\n"
    )
    erased.message(3, b"", own=erases, method="DELETE").erase(2, fields, b"secret")
    unit = Segment().message(1)
    for i in (1, 2, 3):
        unit.message(1 + i, own=b"x-hbuf-batch: %d/3\r\n" % i)
    return {
        "plain": Segment().message(1).message(2).message(3),
        "no-messages": Segment(),
        "fields": Segment().message(1, fields=fields).message(2, fields=b"ce-id: 1\r\n"),
        "empty-body": Segment().message(1, b"").message(2, b""),
        "binary-body": Segment().message(1, bytes(range(256))).message(2, b"\r\n\r\n\x00\r\n"),
        "fake-record-in-body": Segment().message(1, fake).message(2, fake + fake),
        "sha256": Segment("sha256").message(1).message(2, fields=fields),
        "not-erasable": Segment(salted=False).message(1).message(2, fields=fields),
        "later-segment": Segment(first=65537, prev=b"ab" * 32).message(65537).message(65538),
        "whole-unit": unit.message(5),
        "producer": Segment().message(1, own=b"x-hbuf-producer: till-4\r\nx-hbuf-producer-seq: 0\r\n").message(2),
        "unknown-head-line": Segment().message(1, own=b"x-hbuf-colour: red\r\n").message(2),
        "erased": erased.message(4),
    }


def damaged() -> dict[str, tuple[str, int, Segment]]:
    """What to expect, the number of the message that the fault is named at, and the segment."""

    def sealed(**what: object) -> Segment:
        """Message 2 is out of order, and the chain was made over it as it is."""
        bad = what.pop("seq", 2)
        return Segment().message(1).message(bad, **what).message(3)  # type: ignore[arg-type]

    def changed(old: bytes, new: bytes) -> Segment:
        """Message 2 was changed after it was sealed."""
        return Segment().message(1).message(2, b"two", fields=b"x-a: b\r\n").message(3).replace(2, old, new)

    def fields(lines: bytes) -> Segment:
        return sealed(fields=lines)

    cut = Segment().message(1).message(2)
    cut.data = cut.data[:-3]
    cut_head = Segment().message(1).message(2)
    cut_head.data = cut_head.data[: cut_head.starts[2] + 40]
    upper = Segment().message(1).message(2).message(3)
    upper.replace(2, upper.ids[2], upper.ids[2].upper())
    salt = base64url(bytes(32))
    unsalted = Segment().message(1).message(2, salt=salt).replace(2, b"x-hbuf-salt: " + salt + b"\r\n", b"")
    dropped = Segment().message(1).message(2).message(3)
    dropped.data = dropped.data[: dropped.starts[2]] + dropped.data[dropped.starts[3] :]
    return {
        "body-changed": ("chain", 2, changed(b"\r\n\r\ntwo", b"\r\n\r\ntwO")),
        "field-changed": ("chain", 2, changed(b"x-a: b", b"x-a: c")),
        "field-removed": ("chain", 2, changed(b"x-a: b\r\n", b"")),
        "time-changed": ("chain", 2, changed(b"00.000001Z", b"00.000002Z")),
        "salt-removed": ("chain", 2, unsalted),
        "message-removed": ("chain", 3, dropped),
        "time-goes-back": ("chain", 2, sealed(time="2026-11-18T04:50:59.999999Z")),
        "number-twice": ("completeness", 1, Segment().message(1).message(1).message(2)),
        "number-missing": ("completeness", 3, Segment().message(1).message(3).message(4)),
        "unit-not-whole": ("completeness", 2, Segment().message(1, own=b"x-hbuf-batch: 1/2\r\n").message(2)),
        "unit-cut-short": ("completeness", 2, Segment().message(1).message(2, own=b"x-hbuf-batch: 1/2\r\n")),
        "length-flipped": ("bytes", 2, changed(b"content-length: 3", b"content-length: 2")),
        "length-with-zero": ("bytes", 2, sealed(length="05")),
        "length-twice": ("bytes", 2, fields(b"content-length: 5\r\n")),
        "number-zero": ("bytes", 2, sealed(seq=0)),
        "number-with-zero": ("bytes", 2, sealed(seq="02")),
        "connection-header": ("bytes", 2, fields(b"connection: close\r\n")),
        "transfer-encoding": ("bytes", 2, fields(b"transfer-encoding: chunked\r\n")),
        "upper-case-name": ("bytes", 2, fields(b"X-a: b\r\n")),
        "no-blank-after-colon": ("bytes", 2, fields(b"x-a:b\r\n")),
        "trailing-blank": ("bytes", 2, fields(b"x-a: b \r\n")),
        "leading-blank": ("bytes", 2, fields(b"x-a:  b\r\n")),
        "tab": ("bytes", 2, fields(b"x-a: b\tc\r\n")),
        "c1-control": ("bytes", 2, fields(b"x-a: b\xc2\x85c\r\n")),
        "not-utf8": ("bytes", 2, fields(b"x-a: \xe9\r\n")),
        "not-utf8-in-head": ("bytes", 2, sealed(own=b"x-hbuf-colour: \xe9\r\n")),
        "overlong-utf8": ("bytes", 2, fields(b"x-a: \xc0\xaf\r\n")),
        "folded-line": ("bytes", 2, fields(b"x-a: b\r\n c\r\n")),
        "key-after-tag": ("bytes", 2, fields(b"x-hbuf-tag: t\r\nx-hbuf-key: k\r\n")),
        "tag-after-header": ("bytes", 2, fields(b"x-a: b\r\nx-hbuf-tag: t\r\n")),
        "two-keys": ("bytes", 2, fields(b"x-hbuf-key: a\r\nx-hbuf-key: b\r\n")),
        "empty-key": ("bytes", 2, fields(b"x-hbuf-key: \r\n")),
        "reserved-name-in-fields": ("bytes", 2, fields(b"x-hbuf-colour: red\r\n")),
        "key-in-head": ("bytes", 2, sealed(own=b"x-hbuf-key: k\r\n")),
        "head-out-of-order": ("bytes", 2, sealed(own=b"x-hbuf-colour: red\r\nx-hbuf-batch: 1/1\r\n")),
        "producer-without-number": ("bytes", 2, sealed(own=b"x-hbuf-producer: p\r\n")),
        "filler-without-gone": ("bytes", 2, fields(b"x: ---\r\n")),
        "day-that-is-not": ("bytes", 2, sealed(time="2027-02-29T00:00:00.000000Z")),
        "leap-second": ("bytes", 2, sealed(time="2026-12-31T23:59:60.000000Z")),
        "salt-not-canonical": ("bytes", 2, sealed(salt=salt[:-1] + b"B")),
        "upper-case-id": ("bytes", 2, upper),
        "signature-not-base64": ("bytes", 2, changed(b"\r\n\r\ntwo", b"\r\nx-hbuf-sig: %b\r\n\r\ntwo" % (b"+" * 86))),
        "lf-for-crlf": ("bytes", 2, changed(b"host: hbuf\r\n", b"host: hbuf\n")),
        "no-line-behind-body": ("bytes", 2, changed(b"\r\n\r\ntwo\r\n", b"\r\n\r\ntwo")),
        "bytes-between": ("bytes", 2, changed(b"POST", b"\r\nPOST")),
        "cut-in-body": ("bytes", 2, cut),
        "cut-in-head": ("bytes", 2, cut_head),
    }  # fmt: skip


def vectors() -> dict[str, bytes]:
    """Every vector by its file's name."""
    made = {}
    for name, segment in intact().items():
        made[f"good-{name}.vector"] = f"name: {name}\nexpect: intact\n\n".encode() + segment.data
    for name, (kind, seq, segment) in damaged().items():
        # All but one are damaged in their third record, which is message 2.
        place = len(segment.data) if name == "unit-cut-short" else segment.starts[2]
        text = f"name: {name}\nexpect: {kind}\nat: {place}\nseq: {seq}\n\n"
        made[f"bad-{name}.vector"] = text.encode() + segment.data
    return made


def main() -> None:
    directory = Path(__file__).parent
    for old in directory.glob("*.vector"):
        old.unlink()
    for name, data in vectors().items():
        (directory / name).write_bytes(data)


if __name__ == "__main__":
    main()
