"""hbufd is killed under load, at any moment: what it answered is there afterwards, and it goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from running_daemon import running

import hbuf
from hbuf.store.clock import SystemClock

from .served import serving

_HOUR_US = 3_600_000_000
_YEAR_US = 365 * 24 * _HOUR_US
JSON_LINES = {"accept": "application/x-ndjson"}


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_what_was_answered_is_there_once_and_in_order_however_often_it_is_killed(
    seed: int, ram_path: Path, soak: Any
) -> None:
    """Producers, batches and lines, hbuf-append beside them, a signed and an encrypted buffer, readers all the time.

    The checks are those of contrib/soak, and hbuf-verify.
    """
    plan = soak("daemon_plan").draw_daemon_plan(seed, kills=2)
    one = soak("daemon_round").DaemonRound(plan, ram_path)
    one.run()
    assert one.faults == []
    assert one.counts["kills"] == 2
    assert one.counts["messages"] > 50


def test_numbers_times_and_what_is_known_of_producers_go_on_after_a_kill(tmp_path: Path) -> None:
    with running(tmp_path / "root") as daemon:
        assert daemon.request("PUT", "/b/orders", {}).status == 201
        sender = {"x-hbuf-producer": "till", "x-hbuf-producer-seq": "7"}
        first = daemon.request("POST", "/b/orders", b"a", sender)
        assert daemon.request("PUT", "/b/paused", {}).status == 201
        assert daemon.request("PUT", "/b/paused/paused", {"why": "a backup", "lease_seconds": 3600}).status == 201
        assert daemon.request("POST", "/b/paused", b"x").code == "paused"
        before = daemon.request("HEAD", "/b/orders")
        daemon.kill()
        daemon.start()
        after = daemon.request("HEAD", "/b/orders")
        for name in ("etag", "x-hbuf-uuid", "x-hbuf-first", "x-hbuf-last", "x-hbuf-state"):
            assert after.headers[name] == before.headers[name]
        assert daemon.request("GET", "/b/orders/status?producer=till").json()["producer"] == {"seq": 7, "message": 1}
        again = daemon.request("POST", "/b/orders", b"a", sender)
        assert (again.status, again.json()) == (200, {**first.json(), "duplicates": 1})
        assert again.headers["x-hbuf-time"] == first.headers["x-hbuf-time"]
        gap = {"x-hbuf-producer": "till", "x-hbuf-producer-seq": "9", "x-hbuf-strict-seq": "1"}
        assert daemon.request("POST", "/b/orders", b"c", gap).code == "producer-gap"
        second = daemon.request("POST", "/b/orders", b"b", {"if-match": before.headers["etag"]})
        assert second.headers["x-hbuf-seq"] == "2"
        assert second.headers["x-hbuf-time"] >= first.headers["x-hbuf-time"]
        # Nobody holds a lease of a daemon that is gone.
        assert daemon.request("POST", "/b/paused", b"x").status == 201


def test_a_clock_that_is_set_back_between_two_starts_takes_no_time_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "root") as served:
        path = served.buffer("orders", b"a")
        before = served("GET", f"{path}/1")["x-hbuf-time"]
    (tmp_path / "root/tenants/default/users.json").unlink()
    real = SystemClock.now_us
    monkeypatch.setattr(SystemClock, "now_us", lambda self: real(self) - _YEAR_US)
    with serving(tmp_path / "root") as served:
        answer = served("POST", path, b"b")
        assert (answer.status, answer["x-hbuf-seq"], answer["x-hbuf-time"]) == (201, "2", before)
        lines = served("GET", f"{path}?from=@1h", headers=JSON_LINES).body.splitlines()
        assert [json.loads(line)["body"] for line in lines] == ["a", "b"]


def test_a_clock_that_jumps_ahead_stores_nothing_until_it_is_right_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "root") as served:
        path = served.buffer("orders", b"a")
        with monkeypatch.context() as patched:
            real = SystemClock.now_us
            patched.setattr(SystemClock, "now_us", lambda self: real(self) + _YEAR_US)
            refused = served("POST", path, b"b")
            assert (refused.status, refused.json()["code"]) == (503, "clock-jumped")
            assert refused["retry-after"]
            assert served("GET", f"{path}/1").body == b"a"
        assert served("POST", path, b"c")["x-hbuf-seq"] == "2"
    with hbuf.open(tmp_path / "root/tenants/default/buffers/orders") as buffer:
        assert [message.body for message in buffer.read()] == [b"a", b"c"]
        assert buffer.verify().ok
