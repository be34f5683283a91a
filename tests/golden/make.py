"""Writes the golden buffers: whole buffers of format 1, whose bytes no later version may write or read otherwise.

    python tests/golden/make.py

Clock, salts and uuid are fixed, so every byte is. `orders` is chained with BLAKE3 and has a bit of everything;
`audit` is chained with SHA-256 and is not erasable, so that it has no salts. Beside each lie the lines that
`hbuf-tail -o first --json` prints of it.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable
from pathlib import Path

from hbuf.format.fields import encode_fields
from hbuf.format.jsonlines import encode_json
from hbuf.format.settings import Settings, set_values
from hbuf.format.times import encode_time
from hbuf.library import Buffer
from hbuf.ops.reindex import reindex
from hbuf.store.create import create_buffer
from hbuf.store.directory import BufferDirectory
from hbuf.store.outgoing import Outgoing
from hbuf.store.writer import Writer

HERE = Path(__file__).parent
START_US = 1_795_000_000_000_000  # 2026-11-18T11:06:40Z

ORDERS_UUID = "6f1c2a9e-3b47-4d58-9c60-7a8b9cadbecf"
AUDIT_UUID = "0b5e7d14-9a2c-4f36-8e01-c3d2b1a09f8e"

FAKE_RECORD = (
    b"POST /b/orders HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: 99\r\nx-hbuf-time: 2026-11-18T11:06:40.000000Z\r\n"
    b"content-length: 0\r\nx-hbuf-id: " + b"0" * 64 + b"\r\n\r\n\r\n"
)


class FixedClock:
    """Stands still until it is told the next time."""

    def __init__(self) -> None:
        self.time_us = START_US

    def now_us(self) -> int:
        return self.time_us

    def steady_us(self) -> int:
        return self.time_us - START_US

    def advance(self, seconds: float) -> None:
        self.time_us += int(seconds * 1_000_000)


def counted_salts() -> Callable[[int], bytes]:
    """Salts of 1, 2, 3, … as 32 bytes, in the order in which records are written."""
    drawn = 0

    def draw(count: int) -> bytes:
        nonlocal drawn
        salts = [base64.urlsafe_b64encode((drawn + i).to_bytes(32, "big"))[:43] for i in range(1, count + 1)]
        drawn += count
        return b"".join(salt + b"." for salt in salts)

    return draw


class Golden:
    """A buffer that is written batch by batch, a second and a half apart."""

    def __init__(self, path: Path, uuid: str, **settings: str) -> None:
        self.clock = FixedClock()
        self.directory = BufferDirectory(path)
        chosen = set_values(Settings(uuid, path.name, encode_time(START_US)), settings)
        salts = counted_salts()
        create_buffer(self.directory, chosen, self.clock, salts=salts)
        self.writer = Writer(self.directory, clock=self.clock, salts=salts)

    def append(self, outgoing: Outgoing) -> None:
        self.clock.advance(1.5)
        self.writer.append(outgoing)


def write_orders(path: Path) -> None:
    """Two segments; segment_messages decides where the second begins, not how long a record is guessed to be."""
    orders = Golden(path, ORDERS_UUID, segment_messages="6")
    text = encode_fields(
        "kund-ü", ["host=web1", "shop=Łódź", ""], [("content-type", "text/plain; charset=utf-8"), ("x-note", "")]
    )
    orders.append(Outgoing(["smörgås, kaffe ☕\nsecond line".encode()], text))
    orders.append(Outgoing([b"", b'{"total": 42}'], encode_fields("user-17", ["host=web1"], [])))
    binary = bytes(range(256)) + b"\r\n\r\n" + FAKE_RECORD + b"\x00\xff"
    orders.append(Outgoing([binary], encode_fields(None, [], [("content-type", "application/octet-stream")])))
    orders.append(Outgoing([b"from a till", b"from it again"], producers=[(b"till-3", 7), (b"till-3", 8)]))
    unit = [(b"till-3", 9), (b"till-3", 9), None]
    orders.append(Outgoing([b"debit 10", b"credit 10", b"note: paid"], text, unit, unit=True))
    orders.clock.advance(-3600)  # the clock goes back; times do not
    orders.append(Outgoing([b"last"], encode_fields("user-17", [], [("traceparent", "00-01-02-03")])))
    orders.writer.close()


def write_audit(path: Path) -> None:
    audit = Golden(path, AUDIT_UUID, hash="sha256", erasable="false", segment_messages="2")
    audit.append(Outgoing([b"login root", b"logout root", b"login \xff"], encode_fields("root", ["pam"], [])))
    audit.writer.close()


BUFFERS = {"orders": write_orders, "audit": write_audit}


def write(name: str, folder: Path) -> Path:
    """Makes a golden buffer in `folder`, as writers leave it."""
    path = folder / name
    BUFFERS[name](path)
    return path


def finish(path: Path) -> None:
    """Makes what a writer writes only now and then: the producers file, as of the end."""
    reindex(str(path), timeout_seconds=0)


def json_lines(path: Path) -> bytes:
    with Buffer(path) as buffer:
        return b"".join(encode_json(message) + b"\n" for message in buffer.read())


def main() -> None:
    for name in BUFFERS:
        shutil.rmtree(HERE / name, ignore_errors=True)
        path = write(name, HERE)
        finish(path)
        (HERE / f"{name}.jsonl").write_bytes(json_lines(path))


if __name__ == "__main__":
    main()
