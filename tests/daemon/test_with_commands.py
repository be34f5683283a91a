"""The daemon and commands on one directory, at the same time: neither loses or repeats what the other did."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hbuf

if TYPE_CHECKING:
    from running_daemon import RunningDaemon

SENDER = {"x-hbuf-producer": "till"}


def command(name: str, *arguments: str | Path, stdin: bytes = b"") -> bytes:
    code = f"import sys; sys.argv[0] = 'hbuf-{name}'; from hbuf.cli.{name} import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments], input=stdin, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def orders(daemon: RunningDaemon, request: pytest.FixtureRequest) -> tuple[str, Path]:
    """A buffer of this test alone: its path in a URL, and its directory."""
    name = str(abs(hash(request.node.name)))
    assert daemon.request("PUT", f"/b/{name}", {"segment_bytes": 8192}).status == 201
    return f"/b/{name}", daemon.root / "tenants" / "default" / "buffers" / name


def test_a_shell_and_the_daemon_write_in_turns(daemon: RunningDaemon, orders: tuple[str, Path]) -> None:
    url, path = orders
    last = ""
    for turn in range(3):
        answer = daemon.request("POST", url, f"daemon {turn}", SENDER | {"x-hbuf-producer-seq": str(2 * turn + 1)})
        assert answer.status == 201
        sender = ["--producer", "till", "--producer-seq", str(2 * turn + 1)]
        told = command("append", "-v", *sender, path, stdin=b"a duplicate\nshell %d\n" % turn).decode().splitlines()
        assert told[0].split()[-1] == "duplicate"
        seq, last = told[1].split()
        assert daemon.request("HEAD", url).headers["etag"] == f'"{last}"'
        stale = daemon.request("POST", url, b"x", {"if-match": f'"{answer.headers["x-hbuf-id"]}"'})
        assert stale.code == "precondition-failed"
        again = daemon.request("POST", url, b"x", SENDER | {"x-hbuf-producer-seq": str(2 * turn + 2)})
        assert (again.status, again.json()["last"], again.json()["id"]) == (200, int(seq), last)
    lines = daemon.request("GET", url, headers={"accept": "application/octet-stream"}).body
    assert lines == b"daemon 0shell 0daemon 1shell 1daemon 2shell 2"
    command("verify", path)


def test_many_of_both_write_at_once(daemon: RunningDaemon, orders: tuple[str, Path]) -> None:
    url, path = orders
    answered: dict[bytes, int] = {}

    def over_http(name: str) -> None:
        with contextlib.closing(daemon.connection()) as connection:
            for k in range(40):
                body = f"{name}/{k}"
                connection.request("POST", url, body, {"authorization": f"Bearer {daemon.token}"})
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 201
                answered[body.encode()] = int(answer.headers["x-hbuf-seq"])

    def in_shell(name: str) -> None:
        bodies = [b"%b/%d" % (name.encode(), k) for k in range(40)]
        told = command("append", "-v", path, stdin=b"\n".join(bodies)).splitlines()
        answered.update((body, int(line.split()[0])) for body, line in zip(bodies, told, strict=True))

    works = [threading.Thread(target=over_http, args=(f"http{i}",)) for i in range(3)]
    works += [threading.Thread(target=in_shell, args=(f"shell{i}",)) for i in range(2)]
    for work in works:
        work.start()
    for work in works:
        work.join()
    with hbuf.open(path) as buffer:
        assert {message.body: message.seq for message in buffer.read()} == answered
        assert len(answered) == 200
        assert buffer.verify().ok


def test_what_a_command_changes_holds_in_the_daemon_at_once(daemon: RunningDaemon, orders: tuple[str, Path]) -> None:
    url, path = orders
    assert daemon.request("POST", url, b"a").status == 201
    command("pause", path)
    assert daemon.request("POST", url, b"x").code == "paused"
    command("pause", "--resume", path)
    assert daemon.request("POST", url, b"b").status == 201
    command("set", path, "max_message_bytes=10")
    assert daemon.request("POST", url, b"x" * 11).code == "too-large"
    command("close", path)
    assert daemon.request("POST", url, b"x").code == "closed"
    command("close", "--reopen", path)
    command("erase", path, "1", "--reason", "asked")
    assert daemon.request("GET", f"{url}/1").code == "gone"
    assert daemon.request("POST", url, b"c").status == 201
    for _ in range(3):
        assert daemon.request("POST", url + "?split=lines", b"0123456789\n" * 60).status == 201
    command("set", path, "retention_messages=100")
    command("retire", path)
    command("compress", path)
    answer = daemon.request("GET", url, headers={"accept": "application/x-ndjson"})
    seqs = [json.loads(line)["seq"] for line in answer.body.splitlines()]
    assert seqs[0] == int(answer.headers["x-hbuf-first"]) > 2
    assert daemon.request("GET", f"{url}/2").code == "gone"
    assert daemon.request("POST", url, b"last").json()["last"] == int(answer.headers["x-hbuf-last"]) + 1
    command("verify", path)
