"""Signed buffers, erasing, retiring and reindexing, through the library: what crosses from one to the other."""

import base64
from pathlib import Path

import pytest

import hbuf
from hbuf.errors import HbufError
from hbuf.format.index import ENTRY_BYTES, HEADER_BYTES
from hbuf.ops.head import head
from hbuf.ops.key import new
from hbuf.ops.reindex import reindex
from hbuf.ops.retire import retire
from hbuf.ops.verify import parse_expected, verify
from hbuf.store import erase as store_erase
from hbuf.store.signing import Signer


class _Killed(Exception):
    """Stands for the end of a process."""


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return Path(new("audit", "sign", tmp_path / "keys").path)


def test_message_of_a_signed_buffer_is_erased_with_its_key(tmp_path: Path, key: Path) -> None:
    with hbuf.create(tmp_path / "orders", sign=key) as orders:
        orders.append_many([b"one", b"two"])
        assert orders.erase([1], reason="asked for") == 1
        assert orders.verify().ok
    with hbuf.open(tmp_path / "orders") as without, pytest.raises(HbufError, match="takes nothing without its key"):
        without.erase([2], reason="asked for")


def test_note_of_the_last_retired_message_counts_only_with_its_signature(tmp_path: Path, key: Path) -> None:
    path, note = tmp_path / "orders", tmp_path / "note"
    orders = hbuf.create(path, sign=key, segment_messages="3", retention_messages="1")
    orders.append_many([b"1", b"2", b"3"])
    note.write_text(head(str(path)))
    orders.append_many([b"4", b"5"])
    orders.close()
    retire(str(path), signer=Signer(key))
    assert orders.verify(head=str(note)).ok
    encoded = note.read_text().split()[-1]
    signed = bytearray(base64.b64decode(encoded))
    signed[10] ^= 1
    note.write_text(note.read_text().replace(encoded, base64.b64encode(bytes(signed)).decode()))
    report = orders.verify(head=str(note))
    assert [fault.kind for fault in report.faults] == ["signatures"]


def test_writer_that_is_open_goes_on_in_the_index_that_was_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    with hbuf.create(path) as orders:
        orders.append_many([b"x"] * 3)
        reindex(str(path), timeout_seconds=20)
        orders.append_many([b"y"] * 4)
    size = (path / "segments" / f"{1:020}.idx").stat().st_size
    assert (size - HEADER_BYTES) // ENTRY_BYTES == 7


def test_interrupted_erase_of_a_message_that_was_damaged_since_keeps_nobody_from_appending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise _Killed

    path = tmp_path / "orders"
    with hbuf.create(path) as orders:
        orders.append_many([b"one", b"two", b"three"])
        with monkeypatch.context() as patch:
            patch.setattr(store_erase, "overwrite_all", die)
            with pytest.raises(_Killed):
                orders.erase([2], reason="asked for")
    segment = path / "segments" / f"{1:020}.http"
    content = bytearray(segment.read_bytes())
    at = content.index(b"x-hbuf-id: ", content.index(b"x-hbuf-seq: 2\r\n")) + len(b"x-hbuf-id: ")
    content[at] = ord("0") if content[at] != ord("0") else ord("1")
    segment.write_bytes(content)
    with hbuf.open(path) as orders:
        assert orders.append(b"four").seq > 3
    assert not (path / "erasing").exists()
    assert {fault.seq for fault in orders.verify().faults} >= {2}


def test_start_that_an_auditor_allows_is_not_called_retired(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    with hbuf.create(path, segment_messages="2") as orders:
        third = orders.append_many([b"1", b"2", b"3"])[2]
    for file in path.glob("segments/*01.*"):
        file.unlink()
    report = verify(str(path), start=parse_expected(f"3:{third.id}"), jobs=1)
    assert report.ok, report.faults
    assert report.verdicts["completeness"]["retired"] == 0
