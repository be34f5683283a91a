"""The daemon's log: one line for each event, which nothing that a client sends can break, forge or hold up."""

from __future__ import annotations

import io
import json
import logging
import shlex
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running_daemon import wait_until

from hbuf.daemon.access_log import told
from hbuf.daemon.config import Log
from hbuf.daemon.logs import Lines, Logs, encode_json, encode_logfmt, said

if TYPE_CHECKING:
    from conftest import StartDaemon
    from running_daemon import RunningDaemon

LOG = logging.getLogger("hbuf.daemon.test")


def record(**fields: object) -> logging.LogRecord:
    made = logging.LogRecord("hbuf.daemon", logging.INFO, "file", 1, "request", (), None)
    made.__dict__.update(said(**fields))
    return made


@given(st.text())
def test_line_stays_one_line_and_says_the_same_whatever_is_in_it(value: str) -> None:
    line = Lines(encode_logfmt).format(record(path=value, status=200))
    assert line.isascii()
    assert line.isprintable()
    quoted = line.partition(" path=")[2].removesuffix(" status=200")
    assert (json.loads(quoted) if quoted.startswith('"') else quoted) == value
    as_json = Lines(encode_json).format(record(path=value, status=200))
    assert as_json.isascii()
    assert "\n" not in as_json
    assert json.loads(as_json)["path"] == value


def test_value_that_looks_like_fields_is_quoted() -> None:
    line = Lines(encode_logfmt).format(record(path='x" status=200 user=admin', status=404))
    assert shlex.split(line)[-2:] == ['path=x" status=200 user=admin', "status=404"]


def test_exception_is_one_line() -> None:
    made = record()
    try:
        raise ValueError("first\nsecond")
    except ValueError as error:
        made.exc_info = (ValueError, error, error.__traceback__)
    assert "\n" not in Lines(encode_logfmt).format(made)
    assert "second" in json.loads(Lines(encode_json).format(made))["trace"]


@pytest.mark.parametrize(
    ("path", "query", "shown"),
    [
        ("/b/orders", "", "/b/orders"),
        ("/b/orders", "from=-10&max=5&wait=3", "/b/orders?from=-10&max=5&wait=3"),
        ("/b/orders", "key=alice&tag=vip&from=1", "/b/orders?key=...&tag=...&from=1"),
        ("/b/orders", "token=hbuf_secret", "/b/orders?token=..."),
        ("/b/orders", "hbuf_secret", "/b/orders?..."),
        ("/b/orders", "=hbuf_secret&a", "/b/orders?...&..."),
        ("/b/orders", "from=a%0Ab%20c", "/b/orders?from=a%0Ab%20c"),
    ],
)
def test_query_is_told_without_what_may_be_secret(path: str, query: str, shown: str) -> None:
    assert told(path, query) == shown


class _Stuck(io.StringIO):
    """A stderr that takes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def write(self, text: str) -> int:
        self.free.wait(30)
        return super().write(text)


@pytest.fixture
def stuck() -> Iterator[_Stuck]:
    out = _Stuck()
    yield out
    out.free.set()


def test_reader_that_takes_nothing_holds_nobody_up_and_what_is_lost_is_counted(stuck: _Stuck) -> None:
    logs = Logs(Log(), stuck)
    try:
        for number in range(30_000):
            LOG.info("event", extra=said(number=number))
        stuck.free.set()
        wait_until(lambda: logs.waiting == 0, "all is written")
        LOG.info("last")
    finally:
        stuck.free.set()
        logs.close()
    lines = stuck.getvalue().splitlines()
    assert len(lines) < 30_000
    assert int(lines[-1].rpartition("dropped_before=")[2]) == 30_000 - (len(lines) - 1)


def test_level_and_form_can_change() -> None:
    out = io.StringIO()
    logs = Logs(Log(level="warning"), out)
    LOG.info("not told")
    LOG.warning("told", extra=said(a=1, nothing=None))
    wait_until(lambda: "told" in out.getvalue(), "it is written")
    logs.configure(Log(format="json", level="debug"))
    LOG.debug("told, too")
    logs.close()
    first, second = out.getvalue().splitlines()
    assert first.endswith(" level=warning event=told a=1")
    assert json.loads(second)["event"] == "told, too"


def test_access_log_tells_who_asked_for_what_and_no_secret(own_daemon: RunningDaemon) -> None:
    own_daemon.request("PUT", "/b/orders")
    own_daemon.request("POST", "/b/orders?from=1&key=hidden", b"a secret body", {"x-hbuf-key": "hidden"})
    own_daemon.request("GET", "/b/%0Aorders%22", token="hbuf_+.abcdefgh_" + "s" * 43)
    wait_until(lambda: len(own_daemon.lines("request")) >= 3, "it is logged")
    made, appended, refused = own_daemon.lines("request")
    assert (made["method"], made["path"], made["status"], made["user"]) == ("PUT", "/b/orders", "201", "admin")
    assert appended["path"] == "/b/orders?from=1&key=..."
    assert (appended["tenant"], appended["peer"]) == ("default", "127.0.0.1")
    assert refused["status"] == "401"
    assert "user" not in refused
    for secret in ("a secret body", "hidden", own_daemon.token, "ssss", "Bearer"):
        assert secret not in own_daemon.logs


def test_access_log_can_be_left_out(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(config='[log]\naccess = false\nlevel = "debug"\n')
    daemon.request("GET", "/healthz")
    assert daemon.terminate() == 0
    assert daemon.lines("stopped")
    assert not daemon.lines("request")


def test_log_can_be_json(start_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    import running_daemon

    def lines(daemon: Any, event: str, start: int = 0) -> list[dict[str, str]]:
        with open(daemon.log, encoding="utf-8") as file:
            file.seek(start)
            found = [json.loads(line) for line in file if line.startswith("{") and line.endswith("\n")]
        return [line for line in found if line["event"] == event]

    monkeypatch.setattr(running_daemon.RunningDaemon, "lines", lines)
    daemon = start_daemon(config='[log]\nformat = "json"\n')
    daemon.request("GET", "/healthz")
    wait_until(lambda: daemon.lines("request"), "it is logged")
    [line] = daemon.lines("request")
    assert (line["path"], str(line["status"])) == ("/healthz", "200")
