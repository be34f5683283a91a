"""Appending over HTTPS, as store.writer does it to a directory: one batch is one request.

It says that something is stored only when the server said so; and that it is not known, where that is so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Self

from hbuf.errors import TooLarge, Unavailable
from hbuf.format.times import parse_time
from hbuf.remote.connection import Answer, Connection, Unknown
from hbuf.store.outgoing import Appended, Outgoing

_HEADERS = {"content-type": "application/http; msgtype=request"}
_HINT = "look with hbuf-tail what is there; with --producer sending again is safe"


class RemoteWriter:
    """Not for two threads at once."""

    def __init__(self, connection: Connection, *, receipts: bool = True, hint: str = _HINT) -> None:
        """Without `receipts` it is only known that messages are stored, and not under which numbers and ids.

        `hint` is the way out where it is not known whether messages were stored.
        """
        self._connection = connection
        self._receipts = receipts
        self._hint = hint
        self._most_messages: int | None = None  # of a batch, where the server takes no larger ones

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def append_some(self, outgoing: Outgoing) -> Appended:
        """Stores the first of the messages, as many as one request takes. The result tells how many are settled."""
        if outgoing.unit:
            return self._post(outgoing)
        part = outgoing.part(0, _end_of_batch(outgoing, self._most_messages))
        while True:
            try:
                return self._post(part)
            except TooLarge:
                count = len(part.bodies)
                if count == 1:
                    raise
                self._most_messages = count // 2
                part = part.part(0, self._most_messages)

    def _post(self, batch: Outgoing) -> Appended:
        count = len(batch.bodies)
        headers = dict(_HEADERS, accept="application/x-ndjson" if self._receipts else "application/json")
        if batch.strict_seq:
            headers["x-hbuf-strict-seq"] = "1"
        repeat = batch.producers is not None and all(batch.producers)
        try:
            answer = self._connection.request(
                "POST", headers=headers, body=encode_requests(batch), repeat=repeat, wait=False
            )
        except Unknown as error:
            which = "the last message was" if count == 1 else f"the last {count} messages were"
            raise Unavailable(f"{error.message}: it is not known whether {which} stored", hint=self._hint) from None
        return _appended(answer, count) if self._receipts else Appended.of(count)


def encode_requests(outgoing: Outgoing) -> bytes:
    """Messages as a stream of requests, back to back."""
    each = zip(outgoing.bodies, outgoing.each_fields(), _producer_lines(outgoing), strict=False)
    return b"".join(
        [
            b"POST / HTTP/1.1\r\n%b%bcontent-length: %d\r\n\r\n%b" % (lines, fields.encoded, len(body), body)
            for body, fields, lines in each
        ]
    )


def _producer_lines(outgoing: Outgoing) -> Iterable[bytes]:
    return replace(outgoing, unit=False).each_own_lines()  # a batch's own line is the server's to give


def _end_of_batch(outgoing: Outgoing, most: int | None) -> int:
    """How many messages go into one request. A batch is one unit, in which a producer's numbers may repeat:

    one that does not go up is for the next, so that the server can tell it for a duplicate.
    """
    end = len(outgoing.bodies) if most is None else min(most, len(outgoing.bodies))
    if outgoing.producers is None:
        return end
    last: dict[bytes, int] = {}
    for place, producer in enumerate(outgoing.producers[:end]):
        if producer is not None:
            name, number = producer
            if number <= last.get(name, -1):
                return place
            last[name] = number
    return end


def _appended(answer: Answer, count: int) -> Appended:
    """What became of each message, by the server's lines."""
    done = Appended.of(count)
    lines = answer.body.splitlines()
    try:
        if len(lines) != count:
            raise ValueError
        for place, line in enumerate(lines):
            values = json.loads(line)
            done.seqs[place] = int(values["seq"] or 0)
            done.ids[place] = str(values["id"] or "").encode("ascii")
            if values.get("duplicate"):
                done.duplicates.add(place)
            elif values.get("time"):
                done.times_us[place] = parse_time(values["time"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unavailable("the messages are stored, and the server's answer cannot be read") from None
    return done
