"""The least that Python can do for a chain of durable records: lines from standard input to one file.

Two hashes and one formatted record a line, a write and a sync for each 4 MiB read. No index, no lock, no
checks, no segments. Usage: append_minimum.py FILE
"""

from __future__ import annotations

import base64
import os
import sys

from blake3 import blake3

_READ_BYTES = 4 * 1024 * 1024
_HEAD = (
    b"POST /b/orders HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: %d\r\nx-hbuf-time: 2026-11-18T04:51:00.123456Z\r\n"
    b"content-length: %d\r\n"
)


def main() -> None:
    out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    prev, seq, rest = b"0" * 64, 1, b""
    while data := os.read(0, _READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        records, prev = _records(lines, prev, seq)
        seq += len(lines)
        os.write(out, records)
        os.fdatasync(out)


def _records(lines: list[bytes], prev: bytes, seq: int) -> tuple[bytes, bytes]:
    salts = base64.urlsafe_b64encode(os.urandom(33 * len(lines)))
    records = []
    for i, line in enumerate(lines):
        head = _HEAD % (seq + i, len(line))
        salt = salts[44 * i : 44 * i + 43]
        commit = blake3(b"hbuf1 body %b\n%b" % (salt, line)).hexdigest().encode()
        prev = blake3(b"hbuf1 id\n%b\n%b\n%b" % (prev, commit, head)).hexdigest().encode()
        records.append(b"%bx-hbuf-salt: %b\r\nx-hbuf-id: %b\r\n\r\n%b\r\n" % (head, salt, prev, line))
    return b"".join(records), prev


if __name__ == "__main__":
    main()
