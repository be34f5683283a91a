"""contrib/hbuf-audit.sh against the Python verifier: both accept the same buffers and refuse the same damage.

Where `b3sum` is not installed, a shim on the blake3 package stands in for it on PATH (and the test prints so): the
script is tested all the same, the real b3sum is not.
"""

import base64
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

import pytest
import zstandard

from hbuf.format.chain import ZERO_ID, commitment, hasher_named, record_id
from hbuf.format.check import ChainState, check_records
from hbuf.format.fields import NO_FIELDS, Fields, encode_fields
from hbuf.format.record import encode_messages, encode_put
from hbuf.format.scan import scan

SCRIPT = Path(__file__).parents[2] / "contrib" / "hbuf-audit.sh"
UUID = "01234567-89ab-cdef-0123-456789abcdef"
TIME_US = 1_800_000_000_000_000
SALT = base64.urlsafe_b64encode(bytes(range(32))).rstrip(b"=")

B3SUM_SHIM = f"""\
#!{sys.executable}
import sys
from blake3 import blake3
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        print(f"{{blake3(file.read()).hexdigest()}}  {{name}}")
"""

FAKE = b"\r\nPOST /b/orders HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: 9\r\ncontent-length: 0\r\n\r\n\r\n"
BODIES = [
    [b"", b"plain", b"\x00", b"a\x00b\n\x00\r\n\x00", b"\r\n", b"\n", b"\r", b"\r\n\r\n", FAKE, b"no end\r"],
    [bytes(range(256)) * 5, b"x" * 70_000, b"\x00" * 3000 + b"\xff\xfe"],
    [b'{"total": 42}', b"", b"the last"],
]
FIELDS = encode_fields("Łódź", ["host=web1", ""], [("content-type", "text/plain"), ("x-note", "ÄÁ\\n%s")])

Segments = list[bytes]


def build(hash_name: str = "sha256", *, erasable: bool = True, batches: list[list[bytes]] = BODIES) -> Segments:
    hasher = hasher_named(hash_name)
    prev, first = ZERO_ID, 1
    segments = []
    for bodies in batches:
        salts = None
        if erasable:
            salts = b"".join(salt_of(first + i) + b"." for i in range(len(bodies)))
        data, prev = encode_put(
            hasher, "orders", prev, first, TIME_US + first, SALT if erasable else None, b'{"name": "orders"}',
            hash_name=hash_name, uuid=UUID, epoch=1,
        )  # fmt: skip
        fields: list[Fields] = [FIELDS if i % 2 else NO_FIELDS for i in range(len(bodies))]
        batch = encode_messages(
            hasher, "orders", prev, first, TIME_US + first, salts, bodies, fields, repeat(b""), offset=len(data)
        )
        segments.append(data + batch.data)
        prev, first = (batch.ids or [prev])[-1], first + len(bodies)
    return segments


def salt_of(seq: int) -> bytes:
    return base64.urlsafe_b64encode(seq.to_bytes(32, "big")).rstrip(b"=")


def python_verdict(segments: Segments, hash_name: str = "sha256") -> tuple[int, int, bytes] | None:
    """(messages, last number, last id), or None where the Python verifier finds a fault."""
    state = ChainState()
    for data in segments:
        found = scan(data)
        if found.unreadable or not found.records or found.records[0].method != b"PUT":
            return None
        for record in found.records:
            stated = re.search(rb"x-hbuf-prev: ([0-9a-f]+)\r\n", record.own)
            if record.method == b"PUT" and stated and stated[1] != state.prev:
                return None
            if check_records(hasher_named(hash_name), data, [record], state, 0):
                return None
    return state.numbered, state.next_seq - 1, state.prev


class Auditor:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {"PATH": os.environ["PATH"], "TMPDIR": str(directory / "tmp")}
        (directory / "tmp").mkdir()
        if shutil.which("b3sum") is None:
            shims = directory / "shims"
            shims.mkdir()
            (shims / "b3sum").write_text(B3SUM_SHIM)
            (shims / "b3sum").chmod(0o755)
            self.environment["PATH"] = f"{shims}{os.pathsep}{os.environ['PATH']}"
            print("b3sum is not installed: a shim on the blake3 package stands in for it")  # noqa: T201

    def write(self, segments: Segments, name: str = "orders") -> Path:
        buffer = self.directory / name
        shutil.rmtree(buffer, ignore_errors=True)
        (buffer / "segments").mkdir(parents=True)
        for data, first in zip(segments, firsts(), strict=False):
            (buffer / "segments" / f"{first:020}.http").write_bytes(data)
        return buffer

    def run(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [SCRIPT, *arguments], env=self.environment | environment, capture_output=True, text=True, check=False
        )
        assert not list((self.directory / "tmp").iterdir()), "it leaves nothing behind"
        return done


def firsts() -> list[int]:
    return [1, 1 + len(BODIES[0]), 1 + len(BODIES[0]) + len(BODIES[1])]


@pytest.fixture
def auditor(tmp_path: Path) -> Auditor:
    return Auditor(tmp_path)


@pytest.mark.parametrize("hash_name", ["blake3", "sha256"])
@pytest.mark.parametrize("erasable", [True, False])
def test_intact(auditor: Auditor, hash_name: str, erasable: bool) -> None:
    segments = build(hash_name, erasable=erasable)
    verdict = python_verdict(segments, hash_name)
    assert verdict is not None
    buffer = auditor.write(segments, "a name with 'blanks' \\n")
    done = auditor.run(buffer)
    assert done.stderr == ""
    assert done.stdout == f"{buffer}: {verdict[0]} messages, last {verdict[1]} {verdict[2].decode()}\n"
    assert done.returncode == 0


def test_more_than_one_batch(auditor: Auditor) -> None:
    segments = build(batches=[[b"%d" % i for i in range(300)]])
    done = auditor.run(auditor.write(segments))
    assert (done.returncode, done.stderr) == (0, "")
    assert ": 300 messages, last 300 " in done.stdout
    done = auditor.run(auditor.write([segments[0].replace(b"\r\n\r\n277\r\n", b"\r\n\r\n278\r\n")]))
    at = segments[0].index(b"POST", segments[0].index(b"\r\n\r\n276\r\n"))
    assert done.returncode == 65
    assert f"01.http: byte {at}: the id does not match" in done.stdout


def test_no_messages(auditor: Auditor) -> None:
    done = auditor.run(auditor.write(build(batches=[[]])))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f": 0 messages, last 0 {'0' * 64}\n")


def test_an_erased_message_is_taken_at_its_word_and_said(auditor: Auditor) -> None:
    segments = build()
    data = segments[0]
    record = scan(data).records[2]
    fields = data[record.head_end : record.fields_end]
    commit = commitment(hasher_named("sha256"), record.salt, fields, data[record.body_start : record.body_end])
    gone = base64.urlsafe_b64encode(bytes.fromhex(commit.decode())).rstrip(b"=")
    filler = b"x: " + b"-" * (len(fields) - 5) + b"\r\n"
    section = data[record.start : record.section_end].replace(b"salt: " + record.salt, b"gone: " + gone)
    section = section.replace(fields, filler)
    segments[0] = data[: record.start] + section + bytes(record.body_end - record.body_start) + data[record.body_end :]
    assert python_verdict(segments) is not None
    done = auditor.run(auditor.write(segments))
    assert done.returncode == 0, done
    assert done.stderr.endswith(": 1 erased, taken at their word\n")


@pytest.mark.parametrize("retires", [True, False])
def test_a_buffer_that_does_not_begin_at_1_needs_a_delete(auditor: Auditor, retires: bool) -> None:
    hasher = hasher_named("sha256")
    prev = b"5" * 64
    data, put_id = encode_put(
        hasher, "orders", prev, 11, TIME_US, None, b"{}", hash_name="sha256", uuid=UUID, epoch=1
    )  # fmt: skip
    head = b"DELETE /b/orders HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: 11\r\nx-hbuf-time: 2027-02-01T00:00:00.000000Z\r\n"
    head += b"x-hbuf-retires: 1-%d %b\r\ncontent-length: 0\r\n" % (10 if retires else 9, prev)
    delete_id = record_id(hasher, put_id, commitment(hasher, b"", b"", b""), head)
    done = auditor.run(auditor.write([data + head + b"x-hbuf-id: %b\r\n\r\n\r\n" % delete_id]))
    assert done.returncode == (0 if retires else 65)
    assert ("1 messages, last 11 " if retires else "up to 10 are missing") in done.stdout


def flip(data: bytes, at: int) -> bytes:
    """One byte changed, to another of its kind where that is a digit or a letter."""
    byte = data[at]
    other = ord("1") if byte == ord("0") else ord("0") if chr(byte).isdigit() else byte ^ 1
    return data[:at] + bytes([other]) + data[at + 1 :]


def flip_behind(mark: bytes, segment: int, record: int, more: int = 0) -> Callable[[Segments], None]:
    def damage(segments: Segments) -> None:
        data = segments[segment]
        at = data.index(mark, scan(data).records[record].start) + len(mark) + more
        segments[segment] = flip(data, at)

    return damage


def rearrange(segment: int, order: Callable[[list[bytes]], list[bytes]]) -> Callable[[Segments], None]:
    def damage(segments: Segments) -> None:
        data = segments[segment]
        segments[segment] = b"".join(order([data[record.start : record.end] for record in scan(data).records]))

    return damage


def replace(segment: int, old: bytes, new: bytes) -> Callable[[Segments], None]:
    def damage(segments: Segments) -> None:
        assert old in segments[segment]
        segments[segment] = segments[segment].replace(old, new, 1)

    return damage


def cut(length: int) -> Callable[[Segments], None]:
    def damage(segments: Segments) -> None:
        segments[-1] = segments[-1][:-length]

    return damage


DAMAGE: dict[str, Callable[[Segments], None]] = {
    "body": flip_behind(b"\r\n\r\n", 0, 2),
    "body: a NUL": replace(0, b"\r\n\r\n\x00\r\n", b"\r\n\r\n\x01\r\n"),
    "body: behind a NUL": replace(0, b"a\x00b\n", b"a\x00c\n"),
    "body of a PUT": replace(1, b'"orders"', b'"0rders"'),
    "body: longer": replace(0, b"plain", b"plain!"),
    "head: method": replace(0, b"POST", b"PUT"),
    "head: host": replace(0, b"host: hbuf", b"host: hbug"),
    "head: name": replace(0, b"POST /b/orders", b"POST /b/orderz"),
    "head: number": flip_behind(b"x-hbuf-seq: ", 0, 3),
    "head: time": flip_behind(b"x-hbuf-time: 2027-01-15T08:00:00.00000", 0, 3),
    "head: length": flip_behind(b"content-length: ", 0, 2),
    "head: a NUL": replace(0, b"x-hbuf-seq: 3", b"x-hbuf-seq: 3\x00"),
    "head: uuid": flip_behind(b"x-hbuf-buffer: ", 1, 0),
    "head: hash": replace(1, b"x-hbuf-hash: sha256", b"x-hbuf-hash: blake3"),
    "head: bare LF": replace(0, b"host: hbuf\r\n", b"host: hbuf\n"),
    "fields": replace(1, b"web1", b"web2"),
    "id": flip_behind(b"x-hbuf-id: ", 0, 4),
    "id: last character": flip_behind(b"x-hbuf-id: ", 0, 4, 63),
    "id of the last record": flip_behind(b"x-hbuf-id: ", 2, 3),
    "id: no hex": replace(0, b"x-hbuf-id: ", b"x-hbuf-id: g"),
    "salt": flip_behind(b"x-hbuf-salt: ", 0, 4),
    "salt: its name": replace(0, b"x-hbuf-salt: ", b"x-hbuf-salz: "),
    "salt: gone": replace(0, b"x-hbuf-salt: ", b"x-hbuf-gone: "),
    "prev": flip_behind(b"x-hbuf-prev: ", 1, 0),
    "prev of the very first": flip_behind(b"x-hbuf-prev: ", 0, 0),
    "first": flip_behind(b"x-hbuf-first: ", 2, 0),
    "empty line": replace(0, b"plain\r\n", b"plain\n\r"),
    "a line too many": replace(0, b"plain\r\n", b"plain\r\n\r\n"),
    "record missing": rearrange(0, lambda records: records[:3] + records[4:]),
    "last of a segment missing": rearrange(0, lambda records: records[:-1]),
    "PUT missing": rearrange(1, lambda records: records[1:]),
    "records swapped": rearrange(0, lambda records: [*records[:3], records[4], records[3], *records[5:]]),
    "record twice": rearrange(2, lambda records: [*records, records[-1]]),
    "segment missing": lambda segments: segments.__delitem__(1),
    "segments swapped": lambda segments: segments.reverse(),
    "header too long": replace(0, b"x-note: ", b"x-note: " + b"n" * 66_000),
    "cut: LF": cut(1),
    "cut: CRLF": cut(2),
    "cut: in the body": cut(5),
    "cut: in the header": cut(60),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage(auditor: Auditor, damage: Callable[[Segments], None]) -> None:
    segments = build()
    damage(segments)
    assert python_verdict(segments) is None
    done = auditor.run(auditor.write(segments))
    assert done.returncode == 65, done
    assert re.fullmatch(r".*/segments/[0-9]{20}\.http: byte [0-9]+: [^\n]+\n", done.stdout)
    assert done.stderr == ""


def test_every_kind_of_byte_of_one_record(auditor: Auditor) -> None:
    whole = build("sha256", batches=[[b"one", b"\x00two"]])[0]
    record = scan(whole).records[-1]
    for at in range(record.start, record.end, 11):
        damaged = [flip(whole, at)]
        agreed = auditor.run(auditor.write(damaged)).returncode == 65
        assert agreed == (python_verdict(damaged) is None), at
        assert agreed


def test_cut_between_records_is_a_shorter_chain_to_both(auditor: Auditor) -> None:
    segments = build()
    segments[-1] = segments[-1][: scan(segments[-1]).records[-1].start]
    verdict = python_verdict(segments)
    assert verdict is not None
    done = auditor.run(auditor.write(segments))
    assert (done.returncode, done.stdout.split()[-1]) == (0, verdict[2].decode())


def test_usage_no_buffer_and_no_hash_tool(auditor: Auditor, tmp_path: Path) -> None:
    assert auditor.run().returncode == 2
    assert auditor.run("a", "b").returncode == 2
    assert auditor.run(tmp_path / "none").returncode == 66
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "awk", "tr", "wc", "tail", "head", "mkdir", "rm", "cat"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    done = auditor.run(auditor.write(build("blake3")), PATH=str(tools))
    assert done.returncode == 69
    assert "b3sum is needed" in done.stderr
    done = auditor.run(pack(auditor.write(build("sha256"))), PATH=str(tools))
    assert (done.returncode, done.stdout) == (69, "")
    assert len(done.stderr.splitlines()) == 1
    assert "zstdcat is needed, and is not installed" in done.stderr


def pack(buffer: Path) -> Path:
    """Compresses all segments but the newest."""
    compress = zstandard.ZstdCompressor(write_checksum=True).compress
    for path in sorted(buffer.glob("segments/*.http"))[:-1]:
        path.with_name(f"{path.name}.zst").write_bytes(compress(path.read_bytes()))
        path.unlink()
    return buffer


needs_zstd = pytest.mark.skipif(shutil.which("zstdcat") is None, reason="zstd is not installed")


@needs_zstd
def test_compressed_segments_are_unpacked_and_checked(auditor: Auditor) -> None:
    segments = build()
    plain = auditor.run(auditor.write(segments))
    assert plain.returncode == 0
    buffer = pack(auditor.write(segments))
    packed = auditor.run(buffer)
    assert (packed.returncode, packed.stdout, packed.stderr) == (0, plain.stdout, "")
    # Where both are there, the plain one counts.
    (buffer / "segments" / f"{1:020}.http").write_bytes(segments[0])
    (buffer / "segments" / f"{1:020}.http.zst").write_bytes(b"garbage")
    assert auditor.run(buffer).stdout == plain.stdout


@needs_zstd
def test_fault_in_a_compressed_segment_is_named(auditor: Auditor) -> None:
    segments = build()
    flipped = [flip(segments[0], segments[0].index(b"plain")), *segments[1:]]
    done = auditor.run(pack(auditor.write(flipped)))
    assert done.returncode == 65
    assert re.search(r"/0+1\.http\.zst: byte \d+: the id does not match what it covers$", done.stdout.strip())
    buffer = pack(auditor.write(segments))
    file = sorted(buffer.glob("segments/*.zst"))[1]
    file.write_bytes(flip(file.read_bytes(), 60))
    done = auditor.run(buffer)
    assert done.returncode == 65
    assert done.stdout.strip().endswith(f"{file.name}: byte 0: the compressed segment cannot be unpacked")
