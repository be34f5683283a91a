"""Readers who wait for what is appended: what they send, and which messages arrived.

A message is its number in a hundred digits, which nothing else that servers send has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from bench.load.answers import HttpAnswers
from bench.load.requests import http_get, nats, nats_hello, redis

_NUMBER = re.compile(rb"\d{100}")
_REDIS_ID = re.compile(rb"\r\n(\d{13}-\d+)\r\n")
_WAIT_SECONDS = 30


def body_of(number: int) -> bytes:
    return b"%0100d" % number


class Seen(NamedTuple):
    numbers: list[int]
    send: bytes = b""  # to see what comes next


class Watcher(Protocol):
    def begin(self) -> bytes:
        """What is sent first."""
        ...

    def feed(self, data: bytes) -> Seen: ...


def watcher_for(plan: dict[str, Any]) -> Watcher:
    makers: dict[str, Callable[[dict[str, Any]], Watcher]] = {
        "events": EventStream,
        "wait": WaitingRead,
        "redis": RedisRead,
        "nats": NatsConsumer,
    }
    return makers[plan["watch"]](plan)


class EventStream:
    """text/event-stream: asked for once, it goes on."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan, self._answers = plan, HttpAnswers(keep=True)

    def begin(self) -> bytes:
        return http_get(f"/b/{self._plan['target']}?from=end", "text/event-stream", self._plan["authorization"])

    def feed(self, data: bytes) -> Seen:
        self._answers.complete(data)
        return Seen(_take_numbers(self._answers.body))


class WaitingRead:
    """wait=SECONDS: asked for again each time."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan, self._answers = plan, HttpAnswers(keep=True)

    def begin(self) -> bytes:
        return self._get("end")

    def feed(self, data: bytes) -> Seen:
        if not self._answers.complete(data):
            return Seen([])
        return Seen(_take_numbers(self._answers.body), self._get(self._answers.header(b"x-hbuf-next").decode()))

    def _get(self, place: str) -> bytes:
        target = f"/b/{self._plan['target']}?from={place}&wait={_WAIT_SECONDS}"
        return http_get(target, "application/octet-stream", self._plan["authorization"])


class RedisRead:
    """XREAD BLOCK, one entry each time."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._stream, self._data = plan["target"], bytearray()

    def begin(self) -> bytes:
        return self._read(b"$")

    def feed(self, data: bytes) -> Seen:
        self._data += data
        found = _REDIS_ID.search(self._data)
        newest = bytes(found[1]) if found else b""
        numbers = _take_numbers(self._data)
        return Seen(numbers, self._read(newest)) if numbers else Seen([])

    def _read(self, after: bytes) -> bytes:
        return redis("XREAD", "COUNT", "1", "BLOCK", "0", "STREAMS", self._stream, after)


class NatsConsumer:
    """A push consumer without acknowledgements."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._stream, self._data = plan["target"], bytearray()

    def begin(self) -> bytes:
        config = {"deliver_subject": "_INBOX.seen", "ack_policy": "none", "deliver_policy": "new"}
        body = json.dumps({"stream_name": self._stream, "config": config}).encode()
        made = nats(f"$JS.API.CONSUMER.CREATE.{self._stream}", "_INBOX.made", body)
        return nats_hello("_INBOX.seen") + made

    def feed(self, data: bytes) -> Seen:
        self._data += data
        return Seen(_take_numbers(self._data))


def _take_numbers(data: bytearray) -> list[int]:
    """The numbers in `data`, of which all up to the last is removed."""
    found, end = [], 0
    for match in _NUMBER.finditer(data):
        found.append(int(match[0]))
        end = match.end()
    del data[:end]
    return found
