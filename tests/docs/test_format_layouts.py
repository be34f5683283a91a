"""A reader made from the tables of docs/format.md alone reads the files of the golden buffers.

It knows nothing of hbuf's own code, so the tables are enough to write another implementation.
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")
BUFFERS = [ROOT / "tests" / "golden" / name for name in ("orders", "audit")]
SEGMENTS = sorted(path for buffer in BUFFERS for path in buffer.glob("segments/*.http"))

Row = tuple[int, int, str]  # first byte, size, what it is


def section(title: str) -> str:
    found = re.search(rf"^## \d+\. {re.escape(title)}.*?\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def tables(title: str) -> list[list[Row]]:
    """Every table of a section that tells bytes and sizes."""
    blocks = re.findall(r"^\| byte \| size \| what \|\n\| --- .*\n((?:\|.*\n)+)", section(title), re.MULTILINE)
    rows = [re.findall(r"^\| (\d+) \| (\d+) \| (.*) \|$", block, re.MULTILINE) for block in blocks]
    return [[(int(at), int(size), what) for at, size, what in block] for block in rows]


def values(data: bytes, table: list[Row]) -> list[int | bytes]:
    """What a table reads out of bytes: numbers up to 8 bytes, magic and anything longer as it is."""
    pieces = [(data[at : at + size], what) for at, size, what in table]
    return [int.from_bytes(piece, "little") if len(piece) <= 8 and "`" not in what else piece for piece, what in pieces]


def records(data: bytes) -> list[dict[str, str | int]]:
    """Records by `content-length` alone: where they begin and end, and what their lines say."""
    found = []
    at = 0
    while at < len(data):
        section_end = data.index(b"\r\n\r\n", at) + 4
        lines = data[at:section_end].decode().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:] if line)
        body = int(fields["content-length"])
        end = section_end + body + 2
        head = data.index(b"\r\n", data.index(b"\r\ncontent-length: ", at) + 2) + 2 - at
        sizes: dict[str, str | int] = {"at": at, "section": section_end - at, "head": head, "body": body, "end": end}
        found.append({"method": lines[0].split()[0], **sizes, **fields})
        at = end
    return found


def microseconds(time: str) -> int:
    moment = datetime.strptime(time, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def test_tables_have_no_holes() -> None:
    for table in [*tables("The index, `N.idx`"), tables("The tags file, `N.tags`")[0]]:
        assert [at for at, _, _ in table] == [sum(size for _, size, _ in table[:i]) for i in range(len(table))]


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_index_is_read_by_its_tables(path: Path) -> None:
    header_table, entry_table = tables("The index, `N.idx`")
    stored = records(path.read_bytes())
    data = path.with_suffix(".idx").read_bytes()
    put_id = bytes.fromhex(str(stored[0]["x-hbuf-id"]))
    assert values(data, header_table) == [b"hbix", 1, 0, int(path.stem), path.stat().st_size, 0, put_id]
    messages = [record for record in stored if record["method"] == "POST"]
    assert len(data) == 64 + 32 * len(messages)
    for i, record in enumerate(messages):
        raw = data[64 + 32 * i : 96 + 32 * i]
        entry = values(raw, entry_table)
        start = path.read_bytes()[int(record["at"]) :]
        section_bytes = start[: int(record["section"])]
        key = str(record.get("x-hbuf-key", "")).encode()
        key_at = section_bytes.find(b"\r\nx-hbuf-key: ") + 14 if key else 0
        tags = re.findall(rb"x-hbuf-tag: [^\r]*\r\n", section_bytes)
        flags = 16 if "x-hbuf-batch" in record else 0
        assert entry == [
            microseconds(str(record["x-hbuf-time"])),
            record["at"],
            record["body"],
            record["section"],
            record["head"],
            key_at,
            len(key),
            sum(map(len, tags)),
            flags,
            int(str(record["x-hbuf-id"])[:8], 16),
        ]
        assert (int(path.stem) + i, record["end"]) == (
            int(record["x-hbuf-seq"]),
            int(record["at"]) + int(record["section"]) + int(record["body"]) + 2,
        )


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_tags_file_is_read_by_its_table(path: Path) -> None:
    newest = path == max(path.parent.glob("*.http"))
    assert path.with_suffix(".tags").exists() == (not newest)
    if newest:
        return
    [table] = tables("The tags file, `N.tags`")
    data = path.with_suffix(".tags").read_bytes()
    stored = records(path.read_bytes())
    header = values(data, table)
    first, term_count, place_count = int(path.stem), header[5], header[6]
    assert isinstance(term_count, int)
    assert isinstance(place_count, int)
    assert header[:5] == [b"hbtg", 1, 0, first, len(stored) - 1]
    assert header[8] == bytes.fromhex(str(stored[0]["x-hbuf-id"]))
    assert header[9] == hashlib.blake2b(data[:64] + data[96:], digest_size=32).digest()
    assert len(data) == 96 + 16 * term_count + 4 * place_count

    wanted: dict[int, list[int]] = {}
    for record in stored[1:]:
        lines = path.read_bytes()[int(record["at"]) : int(record["at"]) + int(record["section"])]
        terms = [b"t" + tag for tag in re.findall(rb"x-hbuf-tag: ([^\r]*)\r\n", lines)]
        terms += [b"k" + key for key in re.findall(rb"x-hbuf-key: ([^\r]*)\r\n", lines)]
        for term in terms:
            hashed = int.from_bytes(hashlib.blake2b(term, digest_size=8).digest(), "little")
            wanted.setdefault(hashed, []).append(int(record["x-hbuf-seq"]) - first)
    found = {}
    for i in range(term_count):
        row = data[96 + 16 * i : 112 + 16 * i]
        hashed, start, count = (int.from_bytes(row[a:b], "little") for a, b in ((0, 8), (8, 12), (12, 16)))
        places = data[96 + 16 * term_count + 4 * start :][: 4 * count]
        found[hashed] = [int.from_bytes(places[at : at + 4], "little") for at in range(0, len(places), 4)]
    assert list(found) == sorted(found)
    assert found == wanted


@pytest.mark.parametrize("buffer", BUFFERS, ids=lambda buffer: buffer.name)
def test_producers_file_is_read_by_its_text(buffer: Path) -> None:
    assert "One line `blake2b <64 hex digits>`" in section("The file `producers`")
    checksum, _, content = (buffer / "producers").read_bytes().partition(b"\n")
    assert checksum == b"blake2b " + hashlib.blake2b(content, digest_size=32).hexdigest().encode()
    stored = [record for path in sorted(buffer.glob("segments/*.http")) for record in records(path.read_bytes())]
    last = {
        record["x-hbuf-producer"]: [int(record["x-hbuf-producer-seq"]), int(record["x-hbuf-seq"])]
        for record in stored
        if "x-hbuf-producer" in record
    }
    expected = {"as_of": int(stored[-1]["x-hbuf-seq"]), "id": stored[-1]["x-hbuf-id"], "producers": last}
    assert json.loads(content) == expected


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_own_lines_stand_in_the_order_of_their_table(path: Path) -> None:
    rows = re.findall(r"^\| `(POST|PUT)` \| (?:yes|no) \| (.*?)(?:; reserved: .*)? \|$", TEXT, re.MULTILINE)
    order = {method: re.findall(r"`(x-hbuf-[a-z-]+)`", names) for method, names in rows}
    fixed = ["host", "x-hbuf-seq", "x-hbuf-time", "content-length"]
    for record in records(path.read_bytes()):
        names = list(record)
        head = names[names.index("host") : names.index("content-length") + 1]
        own = [name for name in head if name not in fixed]
        assert own == [name for name in order[str(record["method"])] if name in own]
