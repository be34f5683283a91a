"""docs/security.md names tests that there are, and what it says of signed buffers holds against who tries.

The attackers here compute every id anew, so that the chain itself is right.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from hbuf.format.chain import ZERO_ID, hasher_named
from hbuf.format.check import keys_of
from hbuf.format.fields import NO_FIELDS
from hbuf.format.note import encode_signature, head_text, put_text
from hbuf.format.record import encode_messages, encode_put
from hbuf.format.scan import Record, scan
from hbuf.format.times import parse_time
from hbuf.ops.create import create
from hbuf.ops.head import head
from hbuf.ops.key import new
from hbuf.ops.report import Report
from hbuf.ops.set import read_settings
from hbuf.ops.verify import expected_head, verify
from hbuf.store.directory import BufferDirectory
from hbuf.store.keyring import load_key, load_public
from hbuf.store.outgoing import Outgoing
from hbuf.store.signing import Signer
from hbuf.store.writer import Writer

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
BODIES = [b"one", b"two", b"three", b"four", b"five"]  # in segments of two: the last one's key is the third

Sign = Callable[[bytes], bytes]  # of a text: 64 bytes


# The document


def promises() -> Iterator[tuple[int, str]]:
    section = TEXT[TEXT.index("## What is promised") : TEXT.index("## What is not promised")]
    for number, text in re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^#|\Z)", section, re.MULTILINE | re.DOTALL):
        yield int(number), text


def test_promises_are_numbered_and_each_names_tests_that_there_are() -> None:
    assert [number for number, _ in promises()] == list(range(1, len(list(promises())) + 1))
    for number, text in promises():
        named = re.findall(r"`(tests/[a-z_/]+\.py)::(test_\w+)`", text)
        assert named, f"promise {number} names no test"
        for file, name in named:
            tree = ast.parse((ROOT / file).read_text())
            assert name in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)], f"{file}::{name}"


# The attackers


class Ledger:
    """A signed buffer, and what an attacker does to its files."""

    def __init__(self, root: Path) -> None:
        self.keys = root / "keys"
        self.path = root / "ledger"
        self.key = self.make_key("ledger")
        create(str(self.path), {"segment_messages": "2"}, signer=Signer(self.key))
        self.append(*BODIES)

    def make_key(self, name: str) -> Path:
        new(name, "sign", self.keys)
        return self.keys / f"{name}.key"

    def public(self, name: str) -> bytes:
        return load_public(name, self.keys).data

    def append(self, *bodies: bytes) -> None:
        with Writer(BufferDirectory(str(self.path)), signer=Signer(self.key)) as writer:
            writer.append(Outgoing(bodies))

    @property
    def segments(self) -> list[Path]:
        return sorted((self.path / "segments").glob("*.http"))

    def rewrite(self, old: bytes, new: bytes, sign: Sign | None = None) -> None:
        """Puts one body in the place of another, and chains everything anew.

        Without `sign` signatures stay as they are. Indexes go, since a buffer may lack them.
        """
        prev, settings = ZERO_ID, read_settings(str(self.path))
        hasher = hasher_named(settings.hash)
        for segment in self.segments:
            data, written = segment.read_bytes(), b""
            for record in scan(data).records:
                body = data[record.body_start : record.body_end]
                time_us = parse_time(record.time.decode())
                keys = keys_of(record) if record.method == b"PUT" else None
                if keys is not None:
                    put, prev = encode_put(
                        hasher, "ledger", prev, int(segment.stem), time_us, record.salt, body,
                        hash_name=settings.hash, uuid=settings.uuid, epoch=1, sign_key=keys.sign,
                        recovery_key=keys.recovery, sign=self._signs(record, put_text, settings.uuid, sign),
                    )  # fmt: skip
                    written += put
                    continue
                batch = encode_messages(
                    hasher, "ledger", prev, record.seq, time_us, record.salt + b".", [new if body == old else body],
                    repeat(NO_FIELDS), repeat(b""), offset=len(written),
                    sign=self._signs(record, head_text, settings.uuid, sign) if record.sig else None,
                )  # fmt: skip
                prev = batch.ids[-1]
                written += batch.data
            segment.write_bytes(written)
            segment.with_suffix(".idx").unlink(missing_ok=True)
            segment.with_suffix(".tags").unlink(missing_ok=True)

    @staticmethod
    def _signs(
        record: Record, text: Callable[[str, int, bytes], bytes], uuid: str, sign: Sign | None
    ) -> Callable[[int, bytes], bytes]:
        if sign is None:
            return lambda number, record_id: record.sig or b""
        return lambda number, record_id: encode_signature(sign(text(uuid, number, record_id)))

    def slip_in(self, body: bytes, damage: bytes) -> None:
        """Appends a message that is chained and not signed, and damage. The index says that all of it is durable."""
        segment = self.segments[-1]
        data, settings = segment.read_bytes(), read_settings(str(self.path))
        last = scan(data).records[-1]
        batch = encode_messages(
            hasher_named(settings.hash), "ledger", last.id, last.seq + 1, parse_time(last.time.decode()),
            last.salt + b".", [body], repeat(NO_FIELDS), repeat(b""), offset=len(data),
        )  # fmt: skip
        segment.write_bytes(data + batch.data + damage)
        index = segment.with_suffix(".idx").read_bytes()
        durable = segment.stat().st_size.to_bytes(8, "little")
        segment.with_suffix(".idx").write_bytes(index[:16] + durable + index[24:] + batch.entries)

    def verify(self, note: Path | None = None, signer: bytes | None = None) -> Report:
        wanted = expected_head(str(note)) if note else None
        return verify(str(self.path), signer=signer or self.public("ledger"), head=wanted)

    def faults(self, note: Path | None = None) -> set[str]:
        """Under which headings an auditor with the first public key finds something."""
        report = self.verify(note)
        kinds = {fault.kind for fault in report.faults}
        assert report.ok == (not kinds)
        return kinds


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


def signs_with(secret: bytes) -> Sign:
    return lambda text: SigningKey(secret).sign(text).signature


@pytest.mark.parametrize("body", BODIES)
def test_message_that_was_changed_and_chained_anew_is_found(ledger: Ledger, body: bytes) -> None:
    ledger.rewrite(b"not there", b"", None)
    assert ledger.faults() == set(), "rewriting nothing is no attack"
    ledger.rewrite(body, b"forged")
    assert ledger.faults() == {"signatures"}


def test_buffer_made_anew_with_another_key_or_without_one_is_found(ledger: Ledger, tmp_path: Path) -> None:
    other = ledger.make_key("other")
    for name, signer in (("signed", Signer(other)), ("plain", None)):
        made = tmp_path / name / "ledger"
        create(str(made), {}, signer=signer)
        with Writer(BufferDirectory(str(made)), signer=signer) as writer:
            writer.append(Outgoing(BODIES))
        assert verify(str(made)).ok
        report = verify(str(made), signer=ledger.public("ledger"))
        assert [fault.kind for fault in report.faults] == ["signatures"]


def test_new_segment_behind_damage_does_not_make_a_slipped_in_message_signed(ledger: Ledger) -> None:
    segment = ledger.segments[-1]
    ledger.slip_in(b"forged", damage=b"garbage")
    ledger.append(b"seven")
    assert len(ledger.segments) == 4
    # The attacker takes the damage away again, and what is left is framed and chained as it must be.
    segment.write_bytes(segment.read_bytes().removesuffix(b"garbage"))
    segment.with_suffix(".idx").unlink()
    segment.with_suffix(".tags").unlink(missing_ok=True)
    assert ledger.faults() == {"signatures"}


def test_stolen_key_cannot_sign_for_a_sealed_segment(ledger: Ledger) -> None:
    stolen = load_key(ledger.key)
    assert stolen.next_secret is None
    ledger.rewrite(b"four", b"forged", signs_with(stolen.secret))
    assert ledger.faults() == {"signatures"}


@pytest.fixture
def note(ledger: Ledger, tmp_path: Path) -> Path:
    made = tmp_path / "ledger.note"
    made.write_text(head(str(ledger.path)))
    return made


def test_cut_end_of_a_signed_buffer_is_found_against_a_kept_head_only(ledger: Ledger, note: Path) -> None:
    assert ledger.faults(note) == set()
    for path in (ledger.path / "segments").glob(f"{5:020}.*"):
        path.unlink()
    assert ledger.faults() == set()
    assert ledger.faults(note) == {"completeness"}


def test_thief_of_the_newest_key_can_write_the_newest_segment_anew_and_a_kept_head_shows_it(
    ledger: Ledger, note: Path
) -> None:
    settings, segment = read_settings(str(ledger.path)), ledger.segments[-1]
    data = segment.read_bytes()
    put, post = scan(data).records
    sign = signs_with(load_key(ledger.key).secret)
    batch = encode_messages(
        hasher_named(settings.hash), "ledger", put.id, 5, parse_time(post.time.decode()), post.salt + b".", [b"forged"],
        repeat(NO_FIELDS), repeat(b""), offset=put.end,
        sign=lambda number, record_id: encode_signature(sign(head_text(settings.uuid, number, record_id))),
    )  # fmt: skip
    segment.write_bytes(data[: put.end] + batch.data)
    segment.with_suffix(".idx").unlink()
    assert ledger.faults() == set()
    assert ledger.faults(note) == {"completeness"}


def test_note_of_another_buffer_and_a_changed_note_are_not_taken(ledger: Ledger, note: Path, tmp_path: Path) -> None:
    text = note.read_text()
    uuid = read_settings(str(ledger.path)).uuid
    note.write_text(text.replace(uuid, "00000000-0000-4000-8000-000000000000"))
    assert ledger.faults(note) == {"signatures"}
    start, blank, end = text.rpartition(" ")
    note.write_text(start + blank + ("A" if end[10] != "A" else "B").join((end[:10], end[11:])))
    assert ledger.faults(note) == {"signatures"}
