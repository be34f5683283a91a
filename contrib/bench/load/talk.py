"""How an append is said to each kind of server: what a client says first, what it sends, who reads the answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench.load.answers import Answers, HttpAnswers, NatsAnswers, RedisAnswers
from bench.load.requests import http_append, http_batch, nats, nats_hello, redis_append


class Talk(NamedTuple):
    hello: bytes
    append: Callable[[str, Sequence[bytes]], bytes]  # to a buffer, stream or subject
    answers: Answers


def talk(plan: dict[str, Any], client: int) -> Talk:
    """For one of the plan's clients, which appends so many messages at once."""
    kind, count = plan["kind"], plan["batch"]
    if kind == "redis":
        return Talk(
            b"", lambda name, bodies: b"".join(redis_append(name, body) for body in bodies), RedisAnswers(count)
        )
    if kind == "nats":
        inbox = f"_INBOX.{os.getpid()}.{client}"
        return Talk(
            nats_hello(inbox),
            lambda name, bodies: b"".join(nats(name, inbox, body) for body in bodies),
            NatsAnswers(count),
        )
    authorization = plan["authorization"]
    if count > 1:
        return Talk(b"", lambda name, bodies: http_batch(name, bodies, authorization), HttpAnswers())
    return Talk(b"", lambda name, bodies: http_append(name, bodies[0], authorization), HttpAnswers())
