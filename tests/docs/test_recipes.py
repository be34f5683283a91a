"""The recipes of docs/http.md that are no shell: rsyslog runs with what is printed; Fluent Bit's requests are sent."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hbuf
from hbuf.format.users import parse_grant
from hbuf.ops.user import add_user, new_token

if TYPE_CHECKING:
    from running_daemon import RunningDaemon

TEXT = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
RSYSLOGD = shutil.which("rsyslogd") or shutil.which("rsyslogd", path="/usr/sbin")
APPEND = "import sys; sys.argv[0] = 'hbuf-append'; from hbuf.cli.append import main; main()"
DEADLINE_SECONDS = 30


def wait_for(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def bodies(path: Path) -> list[bytes]:
    with hbuf.open(path) as buffer:
        return [message.body for message in buffer.read("first")]


@pytest.mark.skipif(RSYSLOGD is None, reason="rsyslog is not installed")
def test_rsyslog_appends_with_the_settings_that_are_printed(daemon: RunningDaemon, tmp_path: Path) -> None:
    [settings] = re.findall(r"^```rsyslog\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert daemon.request("PUT", "/b/syslog").status == 201
    add_user(daemon.root, "default", "syslog", [parse_grant("writer:syslog")])
    token = tmp_path / "syslog.token"
    token.touch(0o600)
    token.write_text(new_token(daemon.root, "default", "syslog"))
    # The paths of this machine, and nothing else, take the places of those that are printed.
    program = tmp_path / "hbuf-append"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -c "{APPEND}" "$@"\n')
    program.chmod(0o755)
    for printed, here in (
        ("/usr/local/bin/hbuf-append", program),
        ("/etc/hbuf/ca.pem", daemon.cacert),
        ("/etc/hbuf/syslog.token", token),
        ("https://127.0.0.1:4280", daemon.url),
    ):
        assert settings.count(printed) == 1
        settings = settings.replace(printed, str(here))
    log, file = tmp_path / "log.sock", tmp_path / "rsyslog.conf"
    source = f'module(load="imuxsock" SysSock.Use="off")\ninput(type="imuxsock" Socket="{log}")\n'
    file.write_text(source + settings)
    command = [str(RSYSLOGD), "-n", "-f", str(file), "-i", str(tmp_path / "pid")]
    with open(tmp_path / "said", "wb") as said:
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        wait_for(log.exists, "rsyslogd listens")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.connect(str(log))
            for line in (b'<30>Nov 18 04:51:00 cron[17]: it said "done"', b"<27>Nov 18 04:51:01 app: disk failed"):
                sending.send(line)
        path = daemon.root / "tenants" / "default" / "buffers" / "syslog"
        wait_for(lambda: len(bodies(path)) >= 2, (tmp_path / "said").read_text())
    finally:
        running.terminate()
        running.wait(DEADLINE_SECONDS)
    entries = [json.loads(body) for body in bodies(path)]
    assert [(entry["program"], entry["severity"], entry["message"].strip()) for entry in entries] == [
        ("cron", "info", 'it said "done"'),
        ("app", "err", "disk failed"),
    ]


@pytest.mark.parametrize("content_type", ["application/x-ndjson", "application/json"])
def test_what_fluent_bit_sends_is_stored_line_by_line(daemon: RunningDaemon, content_type: str) -> None:
    assert "uri                 /b/fluent?split=lines\n    format              json_lines\n" in TEXT
    buffer = f"fluent-{content_type.rpartition('/')[2]}"
    assert daemon.request("PUT", f"/b/{buffer}").status == 201
    lines = [{"date": 1795000000.0 + i, "log": f"line {i}"} for i in range(3)]
    body = "".join(f"{json.dumps(line)}\n" for line in lines)
    headers = {"content-type": content_type, "user-agent": "Fluent-Bit"}
    answer = daemon.request("POST", f"/b/{buffer}?split=lines", body, headers)
    assert (answer.status, answer.json()["count"]) == (201, 3)
    stored = bodies(daemon.root / "tenants" / "default" / "buffers" / buffer)
    assert [json.loads(each) for each in stored] == lines
