"""The index is no evidence: whatever byte of it or of a segment is changed, no row is wrong unless damage is named.

But for what only a hash can tell: then the row is as `hbuf-tail` gives it, too.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hbuf
from hbuf.format import index
from hbuf.ops.create import create
from hbuf.store.index_file import opened_index
from hbuf.store.signing import Signer

from .read_buffers import DRAFTS, FAKE, NewKey, Rows, by_columns, by_messages

SEGMENT = "segments/00000000000000000001.http"
INDEX = "segments/00000000000000000001.idx"

# Few and short: each byte of them is changed.
SHORT = [
    hbuf.draft(b"one"),
    hbuf.draft(b"a", key="k", tags=["t=1", "", "u"], headers=[("x-a", "1"), ("x-b", "ü")]),
    hbuf.draft(b"", tags=["t"], headers=[("x-c", "")]),
    hbuf.draft(b"e", key="key"),
    hbuf.draft(b"\r\nx", headers=[("x-a", "1")]),
    hbuf.draft(b"p", key="k", producer="p", producer_seq=7),
    hbuf.draft(b"last"),
]


def fill(path: Path, **options: Path | None) -> None:
    with hbuf.open(path, **options) as buffer:  # type: ignore[arg-type]
        buffer.append_many(SHORT[:6])
        buffer.erase([4], reason="r")
        buffer.append_many(SHORT[6:])


@pytest.fixture(params=["plain", "signed", "encrypted", "opened", "without salts", "in a unit"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def alice(new_key: NewKey) -> tuple[Path, str]:
    return new_key("alice")


@pytest.fixture
def identity(kind: str, alice: tuple[Path, str]) -> Path | None:
    """With what messages are opened, if they are."""
    return alice[0] if kind == "opened" else None


@pytest.fixture
def buffer(kind: str, ram_path: Path, new_key: NewKey, alice: tuple[Path, str]) -> Path:
    path = ram_path / "orders"
    if kind == "signed":
        key, _ = new_key("audit", "sign")
        create(str(path), signer=Signer(key))
        fill(path, sign=key)
    elif kind == "without salts":
        hbuf.create(path, erasable="false").append_many(SHORT)
    elif kind == "in a unit":
        hbuf.create(path).append_many(SHORT, atomic=True)
    else:
        to = [alice[1]] if kind in ("encrypted", "opened") else []
        hbuf.create(path, encrypt_to=to).close()
        fill(path)
    return path


def check(original: Rows, path: Path, what: object, identity: Path | None = None) -> Rows:
    found = by_columns(path, identity=identity)
    as_stored = {row["seq"]: row for row in original.rows}
    if all(row == as_stored.get(row["seq"]) for row in found.rows):
        wrong = False
    else:
        by_tail = {row["seq"]: row for row in by_messages(path, identity=identity).rows}
        wrong = any(row not in (as_stored.get(row["seq"]), by_tail.get(row["seq"])) for row in found.rows)
    assert not wrong, what
    assert found.seqs == sorted(set(found.seqs), key=str if None in found.seqs else int), what  # type: ignore[arg-type]
    assert found.seqs == original.seqs or found.damage, what
    return found


def test_any_byte_of_an_index_entry(buffer: Path, identity: Path | None) -> None:
    original = by_columns(buffer, identity=identity)
    assert not original.damage
    file = buffer / INDEX
    content = file.read_bytes()
    for at in range(index.HEADER_BYTES, len(content)):
        for bit in (at % 8, (at + 3) % 8):
            changed = bytearray(content)
            changed[at] ^= 1 << bit
            file.write_bytes(changed)
            found = check(original, buffer, (at - index.HEADER_BYTES, bit), identity)
            assert found.rows == original.rows, (at - index.HEADER_BYTES, bit)  # the segment has them all


def test_lengths_in_the_index_that_end_with_another_line(buffer: Path, identity: Path | None) -> None:
    """All that a length can be so that a line ends there, for each length of each entry, and for two at once."""
    original = by_columns(buffer, identity=identity)
    segment, file = (buffer / SEGMENT).read_bytes(), buffer / INDEX
    content = file.read_bytes()
    for i, entry in enumerate(index.parse_entries(content[index.HEADER_BYTES :])):
        record = segment[entry.offset : entry.end]
        ends = [at + 2 for at in range(len(record)) if record.startswith(b"\r\n", at)]
        for changed in _with_other_lengths(entry, ends):
            at = index.HEADER_BYTES + i * index.ENTRY_BYTES
            file.write_bytes(content[:at] + index.ENTRY.pack(*changed) + content[at + index.ENTRY_BYTES :])
            found = check(original, buffer, (entry, changed), identity)
            assert found.rows == original.rows


def _with_other_lengths(entry: index.Entry, ends: list[int]) -> Iterator[index.Entry]:
    whole = entry.section_length + entry.body_length
    for end in ends:
        yield entry._replace(head_length=end)
        yield entry._replace(section_length=min(end, whole), body_length=whole - min(end, whole))
        for other in ends:
            if other > end:
                yield entry._replace(head_length=end, tags_length=other - end)
            if entry.key_offset and other > entry.key_offset:
                tags_length = max(end - other, 0)
                yield entry._replace(key_length=other - 2 - entry.key_offset, tags_length=tags_length)
        if end > entry.head_length:
            yield entry._replace(tags_length=end - entry.head_length)


CHANGES: list[Callable[[int], int]] = [
    lambda byte: byte ^ 0x01,
    lambda byte: byte ^ 0x80,
    lambda byte: byte ^ 0x20,
    lambda byte: ord("\n"),
    lambda byte: ord(" "),
    lambda byte: ord("0"),
    lambda byte: 0,
]


def test_any_byte_of_a_segment(buffer: Path, identity: Path | None) -> None:
    """Every third one is changed, to this or that."""
    original = by_columns(buffer, identity=identity)
    file = buffer / SEGMENT
    content = file.read_bytes()
    with opened_index(buffer / INDEX, 1) as listed:
        assert listed is not None
        start = listed.entry(0).offset
    for at in range(start, len(content), 3):
        changed = bytearray(content)
        changed[at] = CHANGES[at % len(CHANGES)](content[at])
        if changed != content:
            file.write_bytes(changed)
            check(original, buffer, (at - start, content[at : at + 20], changed[at]), identity)


def test_an_index_that_takes_a_record_in_a_body_for_one(ram_path: Path) -> None:
    """It passes over a message, and lists what a sender put into the body of the one before."""
    hbuf.create(ram_path / "orders", erasable="false").close()
    with hbuf.open(ram_path / "orders") as buffer:
        buffer.append_many([b"one", b"x\r\n" + FAKE, b"three", b"four"])
    original = by_columns(ram_path / "orders")
    segment, file = (ram_path / "orders" / SEGMENT).read_bytes(), ram_path / "orders" / INDEX
    content = file.read_bytes()
    entries = index.parse_entries(content[index.HEADER_BYTES :])
    at = segment.index(FAKE)
    section = FAKE.index(b"\r\n\r\n") + 4
    fake = index.Entry(entries[2].time_us, at, 2, section, FAKE.index(b"x-hbuf-key"), 0, 0, 0, index.FLAG_GAP, 0)
    for body_length in (entries[1].body_length, at - entries[1].offset - entries[1].section_length - 2):
        listed = [
            entries[0],
            entries[1]._replace(body_length=body_length),
            fake,
            entries[3]._replace(flags=index.FLAG_GAP),
        ]
        file.write_bytes(content[: index.HEADER_BYTES] + b"".join(index.ENTRY.pack(*entry) for entry in listed))
        check(original, ram_path / "orders", body_length)


def test_an_index_that_takes_the_end_of_a_body_for_a_message(ram_path: Path) -> None:
    """Its head would reach to a line of the body, past a blank line."""
    body = b"\r\ncontent-length: 2\r\nx-hbuf-id: " + b"0" * 64 + b"\r\n\r\nhi"
    hbuf.create(ram_path / "orders").close()
    with hbuf.open(ram_path / "orders") as buffer:
        buffer.append_many([b"one", body, b"three"])
    original = by_columns(ram_path / "orders")
    file = ram_path / "orders" / INDEX
    content = file.read_bytes()
    entry = index.parse_entry(content[index.HEADER_BYTES :], 1)
    section = entry.section_length + len(body) - 2
    head = entry.section_length + body.index(b"x-hbuf-id")
    changed = entry._replace(section_length=section, body_length=2, head_length=head)
    at = index.HEADER_BYTES + index.ENTRY_BYTES
    file.write_bytes(content[:at] + index.ENTRY.pack(*changed) + content[at + index.ENTRY_BYTES :])
    assert check(original, ram_path / "orders", changed).rows == original.rows


def test_entries_of_another_buffer(ram_path: Path) -> None:
    for name, drafts in (("orders", DRAFTS), ("bills", DRAFTS[::-1])):
        hbuf.create(ram_path / name).append_many(drafts)
    original = by_columns(ram_path / "orders")
    entries = (ram_path / "bills" / INDEX).read_bytes()[index.HEADER_BYTES :]
    file = ram_path / "orders" / INDEX
    file.write_bytes(file.read_bytes()[: index.HEADER_BYTES] + entries)
    assert check(original, ram_path / "orders", "entries").rows == original.rows
    shutil.copy(ram_path / "bills" / INDEX, file)
    assert check(original, ram_path / "orders", "all").rows == original.rows
