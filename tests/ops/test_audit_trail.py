"""The audit trail: what was changed, by whom, in a buffer that can be verified, and that whoever needs it can write."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import hbuf
from hbuf.errors import HbufError, NotAllowed
from hbuf.ops.audit_trail import AuditTrail


def entries(tenant: Path) -> list[dict[str, Any]]:
    with hbuf.open(tenant / "buffers" / "_audit") as buffer:
        assert buffer.verify().ok
        return [json.loads(message.body) for message in buffer.read()]


@pytest.fixture
def tenant(tmp_path: Path) -> Path:
    return tmp_path / "tenants" / "acme"


def test_note_is_json_that_can_be_found_by_its_tags(tenant: Path) -> None:
    trail = AuditTrail(tenant)
    assert not tenant.exists()
    trail.note("alice", "buffer.create", "orders", settings={"hash": "sha256"})
    trail.note("bob", "user.add", user="carol")
    trail.close()
    assert entries(tenant) == [
        {"who": "alice", "what": "buffer.create", "buffer": "orders", "settings": {"hash": "sha256"}},
        {"who": "bob", "what": "user.add", "user": "carol"},
    ]
    with hbuf.open(tenant / "buffers" / "_audit") as buffer:
        first, second = buffer.read()
        assert first.tags == ("who=alice", "what=buffer.create", "buffer=orders")
        assert second.tags == ("who=bob", "what=user.add")
        assert first.headers == (("content-type", "application/json"),)
        assert [message.seq for message in buffer.read(tag="who=alice")] == [1]


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", " blank ", "a\x00", "\udce9", "é", "x" * 5000, "a\u0085b", ""])
def test_name_of_any_characters_can_be_noted(tenant: Path, name: str) -> None:
    trail = AuditTrail(tenant)
    trail.note(name, "message.erase", name, reason=name)
    [entry] = entries(tenant)
    assert entry["reason"] == name.replace("\udce9", "?")
    with hbuf.open(tenant / "buffers" / "_audit") as buffer:
        [message] = buffer.read()
        assert all(len(tag) <= 300 and tag.isprintable() for tag in message.tags)


def test_notes_of_many_threads_and_trails_are_all_there(tenant: Path) -> None:
    trails = [AuditTrail(tenant), AuditTrail(tenant)]

    def note(number: int) -> None:
        for each in range(5):
            trails[number % 2].note(f"user{number}", "settings.change", "orders", each=each)

    threads = [threading.Thread(target=note, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [(entry["who"], entry["each"]) for entry in entries(tenant)]
    assert sorted(found) == [(f"user{number}", each) for number in range(6) for each in range(5)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_makes_belongs_to_the_owner_of_the_daemon_s_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(0o750)
    os.chown(root, 12345, 12345)
    AuditTrail(root / "tenants" / "acme").note("root", "user.add")
    made = list(root.rglob("*"))
    assert len(made) > 6
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(12345, 12345)}


def test_trail_that_cannot_be_written_raises_and_goes_on_when_it_can_be(tenant: Path) -> None:
    trail = AuditTrail(tenant)
    trail.note("alice", "one")
    closed = tenant / "buffers" / "_audit" / "closed"
    closed.write_text("{}")
    with pytest.raises(NotAllowed, match="the audit trail cannot be written"):
        trail.note("alice", "two")
    closed.unlink()
    trail.note("alice", "three")
    assert [entry["what"] for entry in entries(tenant)] == ["one", "three"]


def test_trail_that_was_taken_away_is_an_error_once_and_then_made_anew(tenant: Path) -> None:
    trail = AuditTrail(tenant)
    trail.note("alice", "one")
    (tenant / "buffers" / "_audit").rename(tenant / "kept")
    with pytest.raises(HbufError, match="the audit trail cannot be written"):
        trail.note("alice", "two")
    trail.note("alice", "three")
    assert [entry["what"] for entry in entries(tenant)] == ["three"]


def test_file_in_the_place_of_the_trail_is_an_error_of_one_line(tenant: Path) -> None:
    (tenant / "buffers").mkdir(parents=True)
    (tenant / "buffers" / "_audit").write_text("no buffer")
    with pytest.raises(HbufError, match="the audit trail cannot be written"):
        AuditTrail(tenant).note("alice", "one")
