"""Making buffers, their settings and status, pausing and closing, and what the audit trail says of it."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import hbuf
from hbuf.ops.key import export, new
from hbuf.ops.verify import verify

from .served import Served


def trail(served: Served, tenant: str = "default") -> list[dict[str, Any]]:
    answer = served("GET", f"/tenants/{tenant}/b/_audit", headers={"accept": "application/x-ndjson"})
    entries = [json.loads(json.loads(line)["body"]) for line in answer.body.splitlines()]
    return [entry for entry in entries if entry["what"].startswith("buffer.")]


# Making


def test_a_buffer_is_made_once_and_the_same_request_again_is_fine(served: Served) -> None:
    given = {"segment_age": "1d", "segment_messages": 100, "compress": True, "retention_age": None, "hash": "sha256"}
    made = served("PUT", "/b/orders", given)
    assert made.status == 201
    assert (made.json()["segment_age"], made.json()["compress"], made.json()["hash"]) == (86400, True, "sha256")
    again = served("PUT", "/b/orders", given)
    assert (again.status, again.json()) == (200, made.json())
    assert served("PUT", "/b/orders").status == 200
    for other in ({"segment_age": "2d"}, {"sign": True}, {"erasable": False}, {"hash": "blake3"}):
        answer = served("PUT", "/b/orders", other)
        assert (answer.status, answer.json()["code"]) == (409, "cannot-create")
    assert served("GET", "/b/orders/settings").json() == made.json()


@pytest.mark.parametrize(
    "given",
    [
        *({"segment_size": 1}, {"segment_bytes": None}, {"segment_bytes": "1 apple"}, {"segment_bytes": 1}),
        *({"compress": "maybe"}, {"segment_age": [1]}, {"segment_age": "\ud800"}, {"sign": "yes"}, {"sign": 1.5}),
        *({"recipients": "all"}, {"recipients": ["nobody"]}, {"recipients": [7]}, {"recovery_key": "x"}),
        *({"uuid": "x"}, {"name": "x"}, {"format": 2}, {"sign": True, "recovery_key": "x"}),
    ],
)
def test_a_setting_that_cannot_be_makes_nothing(served: Served, given: dict[str, Any]) -> None:
    assert served("PUT", "/b/orders", given).json()["code"] == "malformed"
    assert served("GET", "/b/orders").status == 404


@pytest.mark.parametrize("name", ["Orders", "-orders", "a" * 129, "a%20b", "%C3%A4", "a%00b", "__orders"])
def test_a_name_that_cannot_be_is_refused(served: Served, name: str) -> None:
    assert served("PUT", f"/b/{name}").status in (400, 403)


def test_the_longest_name_can_be(served: Served) -> None:
    assert served("PUT", "/b/" + "a" * 128).status == 201
    assert served("GET", "/b").json()["buffers"][-1]["buffer"] == "a" * 128


def test_hbuf_s_own_buffers_are_not_made_nor_changed(served: Served) -> None:
    for method, path in (("PUT", "/b/_own"), ("PUT", "/b/_audit/closed"), ("DELETE", "/b/_audit/1?reason=x")):
        assert served(method, path).status == 403
    assert served("GET", "/b/_audit").status == 200


def test_the_daemon_signs_with_a_key_of_its_own(served: Served, tmp_path: Path) -> None:
    new("offline", "recovery", tmp_path / "keys")
    recovery = export("offline", tmp_path / "keys")
    assert served("PUT", "/b/signed", {"sign": True, "recovery_key": recovery}).status == 201
    assert served("PUT", "/b/signed", {"sign": True, "recovery_key": recovery}).status == 200
    assert served("PUT", "/b/signed", {"sign": False}).status == 409
    served("POST", "/b/signed?split=lines", b"a\nb\n")
    note = served("GET", "/b/signed/head")
    assert note.status == 200
    (tmp_path / "note").write_bytes(note.body)
    assert served("GET", "/b/signed/status").json()["signed"] is True
    with hbuf.open(served.root / "tenants/default/buffers/signed") as buffer:
        assert buffer.verify(head=str(tmp_path / "note")).ok
    served.buffer("plain", b"x")
    assert served("GET", "/b/plain/head").json()["code"] == "not-signed"


# Settings


def test_only_settings_that_are_named_change(served: Served, tmp_path: Path) -> None:
    before = {**served("PUT", "/b/orders", {"segment_age": "1d"}).json()}
    after = served("PATCH", "/b/orders/settings", {"max_message_bytes": "1MiB"})
    assert (after.status, after.json()) == (200, {**before, "max_message_bytes": 1024**2})
    assert served("PATCH", "/b/orders/settings", {"segment_age": None}).json()["segment_age"] is None
    for given in ({"hash": "sha256"}, {"erasable": False}, {"sign": True}, {"recovery_key": "x"}, {"nothing": 1}):
        assert served("PATCH", "/b/orders/settings", given).status == 400
    assert served("PATCH", "/b/orders/settings").json() == served("GET", "/b/orders/settings").json()


def test_recipients_are_the_whole_new_list(served: Served, tmp_path: Path) -> None:
    for name in ("one", "two"):
        new(name, "encrypt", tmp_path / "keys")
    one, two = (export(name, tmp_path / "keys") for name in ("one", "two"))
    served("PUT", "/b/orders", {"recipients": [one]})
    assert served("PUT", "/b/orders", {"recipients": [one]}).status == 200
    assert served("PATCH", "/b/orders/settings", {"recipients": [one, two]}).json()["recipients"] == [one, two]
    assert served("PATCH", "/b/orders/settings", {"recipients": [two]}).json()["recipients"] == [two]
    assert served("PATCH", "/b/orders/settings", {"recipients": []}).status == 400
    served("POST", "/b/orders", b"secret")
    [message] = hbuf.open(served.root / "tenants/default/buffers/orders", identities=[tmp_path / "keys/two.key"]).read()
    assert message.body == b"secret"


def test_status_has_what_ls_prints_and_more(served: Served) -> None:
    served.buffer("orders", b"a", b"b")
    status = served("GET", "/b/orders/status").json()
    assert (status["tenant"], status["buffer"], status["first"], status["last"]) == ("default", "orders", 1, 2)
    assert (status["signed"], status["encrypted"], status["erasable"]) == (False, False, True)
    assert (status["state"], status["paused"], status["closed"]) == ("open", None, None)
    assert "path" not in status
    assert status["id"] == served("GET", "/b/orders/2")["x-hbuf-id"]
    assert status["uuid"] == served("GET", "/b/orders/settings").json()["uuid"]


# Pausing and closing


def test_a_pause_keeps_everybody_from_writing_until_it_ends(served: Served) -> None:
    served.buffer("orders", b"a")
    first = served("PUT", "/b/orders/paused", {"why": "backup"})
    assert (first.status, first.json()["paused"]["who"], first.json()["paused"]["why"]) == (201, "admin", "backup")
    assert served("PUT", "/b/orders/paused", {"why": "another"}).status == 200
    assert served("GET", "/b/orders/paused").json()["paused"]["why"] == "backup"
    refused = served("POST", "/b/orders", b"x")
    assert (refused.status, refused.json()["code"]) == (423, "paused")
    assert refused["retry-after"]
    assert served("GET", "/b/orders/1").status == 200
    assert served("HEAD", "/b/orders")["x-hbuf-state"] == "paused"
    assert served("DELETE", "/b/orders/paused").status == 204
    assert served("DELETE", "/b/orders/paused").status == 204
    assert served("GET", "/b/orders/paused").json() == {"paused": None}
    assert served("POST", "/b/orders", b"x").status == 201


def test_a_pause_with_a_lease_is_renewed_and_ended_by_its_name(served: Served) -> None:
    served.buffer("orders")
    lease = served("PUT", "/b/orders/paused", {"lease_seconds": 3600}).json()["lease"]
    renewed = served("PUT", "/b/orders/paused", {"lease_seconds": 3600, "lease": lease})
    assert (renewed.status, renewed.json()["lease"]) == (200, lease)
    assert served("DELETE", "/b/orders/paused?lease=another").json()["code"] == "pause-lost"
    served.buffer("other")
    assert served("DELETE", f"/b/other/paused?lease={lease}").json()["code"] == "pause-lost"
    assert served("POST", "/b/orders", b"x").status == 423
    assert served("DELETE", f"/b/orders/paused?lease={lease}").status == 204
    assert served("POST", "/b/orders", b"x").status == 201
    assert served("PUT", "/b/orders/paused", {"lease_seconds": 1, "lease": lease}).json()["code"] == "pause-lost"


def test_a_pause_that_somebody_else_ended_is_lost(served: Served) -> None:
    served.buffer("orders")
    for is_renewed in (True, False):
        lease = served("PUT", "/b/orders/paused", {"lease_seconds": 3600}).json()["lease"]
        assert served("DELETE", "/b/orders/paused").status == 204
        if is_renewed:
            answer = served("PUT", "/b/orders/paused", {"lease_seconds": 60, "lease": lease})
        else:
            answer = served("DELETE", f"/b/orders/paused?lease={lease}")
        assert (answer.status, answer.json()["code"]) == (409, "pause-lost")


def test_a_pause_ends_with_its_lease(served: Served) -> None:
    served.buffer("orders")
    assert served("PUT", "/b/orders/paused", {"lease_seconds": 1}).status == 201
    deadline = time.monotonic() + 30
    while served("POST", "/b/orders", b"x").status == 423:
        assert time.monotonic() < deadline
    assert served("GET", "/b/orders/paused").json() == {"paused": None}


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"lease_seconds": 1}, 201),
        ({"lease_seconds": 3600}, 201),
        ({"lease_seconds": 0.9}, 400),
        ({"lease_seconds": 3601}, 400),
        ({"lease_seconds": True}, 400),
        ({"lease_seconds": "60"}, 400),
        ({"lease": "x"}, 400),
        ({"why": "x" * 1024}, 201),
        ({"why": "x" * 1025}, 400),
        ({"why": "two\nlines"}, 400),
        ({"why": 7}, 400),
    ],
)
def test_the_limits_of_a_pause(served: Served, given: dict[str, Any], status: int) -> None:
    served.buffer("orders")
    assert served("PUT", "/b/orders/paused", given).status == status


def test_a_closed_buffer_is_read_and_not_written(served: Served) -> None:
    served.buffer("orders", b"a")
    assert served("PUT", "/b/orders/closed", {"why": "the year is over"}).status == 201
    assert served("PUT", "/b/orders/closed").status == 200
    assert served("GET", "/b/orders/closed").json()["closed"]["why"] == "the year is over"
    assert served("POST", "/b/orders", b"x").json()["code"] == "closed"
    assert served("HEAD", "/b/orders")["x-hbuf-state"] == "closed"
    assert served("GET", "/b/orders/1").body == b"a"
    assert served("DELETE", "/b/orders/closed").status == 204
    assert served("POST", "/b/orders", b"x").status == 201


# The audit trail


def test_every_change_is_noted_with_who_and_no_read_or_append_is(served: Served) -> None:
    served.user("olga", "operator:*", "writer:*", "reader:*")
    served.user("root", "admin:*", tenant=None)
    served.default = "olga"
    served.buffer("orders", b"a")
    served("PATCH", "/b/orders/settings", {"segment_messages": 10})
    served("PATCH", "/b/orders/settings", {"segment_messages": 10})  # nothing changes
    served("PUT", "/b/orders/paused", {"why": "backup"})
    served("DELETE", "/b/orders/paused")
    served("PUT", "/b/orders/closed")
    served("DELETE", "/b/orders/closed")
    served("GET", "/b/orders")
    assert served("DELETE", "/b/orders/1?reason=asked").status == 403
    served("DELETE", "/tenants/default/b/orders/1?reason=asked", user="root")
    served.default = "admin"
    entries = trail(served)
    assert [(entry["who"], entry["what"], entry["buffer"]) for entry in entries] == [
        ("olga", "buffer.create", "orders"),
        ("olga", "buffer.set", "orders"),
        ("olga", "buffer.pause", "orders"),
        ("olga", "buffer.resume", "orders"),
        ("olga", "buffer.close", "orders"),
        ("olga", "buffer.open", "orders"),
        ("server:root", "buffer.erase", "orders"),
    ]
    assert entries[1]["segment_messages"] == 10
    assert (entries[-1]["reason"], entries[-1]["erased"]) == ("asked", 1)
    assert verify(str(served.root / "tenants/default/buffers/_audit")).ok


def test_many_appends_at_once_are_all_there_once(served: Served) -> None:
    served.buffer("orders")

    def send(name: int) -> None:
        for number in range(20):
            given = {"x-hbuf-producer": f"p{name}", "x-hbuf-producer-seq": str(number)}
            assert served("POST", "/b/orders", b"%d-%d" % (name, number), given).status == 201

    senders = [threading.Thread(target=send, args=(name,)) for name in range(8)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    lines = served("GET", "/b/orders", headers={"accept": "application/x-ndjson"}).body.splitlines()
    assert sorted(json.loads(line)["body"] for line in lines) == sorted(f"{i}-{n}" for i in range(8) for n in range(20))
