"""hbuf-head: the newest head of a signed buffer as a C2SP signed note, which any other tool can check."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hbuf

if TYPE_CHECKING:
    from conftest import OpenNote

    from cli.conftest import MakeBuffer, Run


@pytest.fixture
def signed(run: Run) -> Path:
    """An empty signed buffer, two messages in a segment, and its key audit."""
    assert run("hbuf-key", "new", "audit", "--kind", "sign") == (0, b"", "")
    assert run("hbuf-create", "orders", "--sign", "audit", "--set", "segment_messages=2") == (0, b"", "")
    return Path("orders")


def append(run: Run, *bodies: str) -> None:
    lines = "".join(f"{body}\n" for body in bodies).encode()
    assert run("hbuf-append", "orders", "--sign", "audit", stdin=lines) == (0, b"", "")


def note_of(run: Run) -> bytes:
    done = run("hbuf-head", "orders")
    assert (done.code, done.err) == (0, "")
    return done.out


def key_of(path: Path, first: int) -> bytes:
    """The key that segment `first` announces, read with nothing but an expression."""
    content = (path / "segments" / f"{first:020d}.http").read_bytes()
    found = re.findall(rb"^x-hbuf-sign-key: ([A-Za-z0-9_-]{43})\r$", content, re.MULTILINE)
    return base64.urlsafe_b64decode(found[-1] + b"=")


def key_name(path: Path) -> str:
    return f"hbuf/{json.loads((path / 'buffer.json').read_text())['uuid']}"


def expected_text(path: Path) -> list[str]:
    with hbuf.open(path) as buffer:
        *_, last = buffer.read()
    return [key_name(path), str(last.seq), base64.b64encode(bytes.fromhex(last.id)).decode()]


def test_head_is_a_signed_note_of_the_last_message(run: Run, signed: Path, open_note: OpenNote) -> None:
    append(run, "one", "two")
    note = note_of(run)
    assert open_note(note, key_name(signed), key_of(signed, 1)) == expected_text(signed)
    assert expected_text(signed)[1] == "2"
    assert note_of(run) == note


def test_head_after_a_roll_is_signed_by_the_key_of_its_segment(run: Run, signed: Path, open_note: OpenNote) -> None:
    append(run, "one", "two", "three")
    assert key_of(signed, 1) != key_of(signed, 3)
    assert open_note(note_of(run), key_name(signed), key_of(signed, 3)) == expected_text(signed)


def test_head_before_an_empty_segment_is_of_the_last_message(run: Run, signed: Path, open_note: OpenNote) -> None:
    append(run, "one")
    assert run("hbuf-set", "orders", "segment_messages=3", "--sign", "audit") == (0, b"", "")
    assert len(list(signed.glob("segments/*.http"))) == 2
    assert open_note(note_of(run), key_name(signed), key_of(signed, 1)) == expected_text(signed)


def test_note_still_holds_after_many_rolls(run: Run, signed: Path) -> None:
    append(run, "one")
    Path("note").write_bytes(note_of(run))
    append(run, *"234567")
    assert len(list(signed.glob("segments/*.http"))) == 4
    assert run("hbuf-verify", "--quiet", "--signer", "audit", "--head", "note", "orders") == (0, b"", "")


def test_head_needs_no_key(run: Run, signed: Path) -> None:
    append(run, "one")
    note = note_of(run)
    Path("keys/audit.key").unlink()
    assert note_of(run) == note


@pytest.mark.over_https
def test_unsigned_buffer_is_77_with_the_way_out(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("plain", [b"one"])
    done = run("hbuf-head", "plain")
    assert (done.code, done.out) == (77, b"")
    line, hint = done.err.splitlines()
    assert line == "hbuf-head: plain: is not signed"
    assert hint.startswith("hint: ")


def test_buffer_without_messages_is_66(run: Run, signed: Path) -> None:
    done = run("hbuf-head", "orders")
    assert done == (66, b"", "hbuf-head: orders: has no message yet, and so no head\n")


@pytest.mark.over_https
def test_missing_buffer_is_66_and_is_not_made(run: Run) -> None:
    done = run("hbuf-head", "missing")
    assert (done.code, done.out) == (66, b"")
    assert not Path("missing").exists()
