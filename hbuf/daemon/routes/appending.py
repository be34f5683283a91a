"""POST /b/{buffer}: one message, or a batch that is stored whole or not at all."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Sequence

from hbuf.daemon import answers, asking
from hbuf.daemon.call import Call
from hbuf.daemon.config import Limits
from hbuf.errors import TooLarge, UsageError, WrongMediaType
from hbuf.format.fields import NO_FIELDS, Fields, encode_fields, encode_producer
from hbuf.format.grammar import CLIENT_NAME, MAX_BODY_BYTES
from hbuf.format.message import Draft
from hbuf.format.times import encode_time
from hbuf.ops.inputs import HttpParser, JsonParser, LineParser, Parser
from hbuf.store.outgoing import Appended, Outgoing

_ACKS = (b"written", b"synced", b"majority", b"all")
_IF_MATCH = re.compile(rb'"([0-9a-f]{64})"')
_PRODUCER_SEQ = re.compile(rb"0|[1-9][0-9]{0,17}")
_JSON = b"application/json"  # what each line of x-ndjson is
_FORM = b"application/x-www-form-urlencoded"
# Of a client's own fields these are not its own: proxies set them.
_OF_PROXIES = re.compile(rb"x-forwarded-.*|x-real-ip")
_MOST_AT_ONCE_BYTES = 256 * 1024  # that are parsed between other requests
_LINES_TYPES = ("application/http", "application/x-ndjson")

Pairs = tuple[tuple[bytes, bytes], ...]


class Given:
    """What the header fields of an append say."""

    __slots__ = ("ack", "content_encoding", "if_match", "kept", "key", "producer", "producer_seq", "strict", "tags")

    def __init__(self, raw_headers: Pairs) -> None:
        self.key: bytes | None = None
        self.tags: list[bytes] = []
        self.kept: list[tuple[bytes, bytes]] = []
        self.producer: bytes | None = None
        self.producer_seq: bytes | None = None
        self.strict = False
        self.ack = b"synced"
        self.if_match: bytes | None = None
        self.content_encoding = b""
        for name, value in raw_headers:
            lowered = name.lower()
            if lowered.startswith((b"x-", b"content-", b"ce-", b"if-match", b"trace")):
                self._take(lowered, value)

    def _take(self, name: bytes, value: bytes) -> None:
        if name == b"content-length":
            return
        if name.startswith(b"x-hbuf-"):
            self._take_own(name, value)
        elif name == b"if-match":
            found = _IF_MATCH.fullmatch(value)
            if found is None or self.if_match is not None:
                raise UsageError('if-match is not "ID"', hint="an id has 64 characters, and 64 zeros stand for none")
            self.if_match = found[1]
        elif _is_kept(name):
            if name == b"content-type" and value.partition(b";")[0].strip().lower() == _FORM:
                return  # curl says so of its own accord
            if name == b"content-encoding":
                self.content_encoding = value
            self.kept.append((name, value))

    def _take_own(self, name: bytes, value: bytes) -> None:
        if name == b"x-hbuf-tag":
            self.tags.append(value)
        elif name == b"x-hbuf-key":
            if self.key is not None:
                raise UsageError("x-hbuf-key is there more than once")
            self.key = value
        elif name == b"x-hbuf-producer":
            if self.producer is not None:
                raise UsageError("x-hbuf-producer is there more than once")
            self.producer = value
        elif name == b"x-hbuf-producer-seq":
            if self.producer_seq is not None or not _PRODUCER_SEQ.fullmatch(value):
                raise UsageError("x-hbuf-producer-seq is not a number")
            self.producer_seq = value
        elif name == b"x-hbuf-strict-seq":
            if value not in (b"0", b"1"):
                raise UsageError("x-hbuf-strict-seq is 1 or 0")
            self.strict = value == b"1"
        elif name == b"x-hbuf-ack":
            if value not in _ACKS:
                raise UsageError("x-hbuf-ack is written, synced, majority or all")
            self.ack = value

    def sender(self) -> tuple[bytes, int] | None:
        """The producer, and its number for the first message."""
        if self.producer is None and self.producer_seq is None:
            return None
        if self.producer is None or self.producer_seq is None:
            raise UsageError("x-hbuf-producer and x-hbuf-producer-seq come together")
        return encode_producer(self.producer.decode("utf-8", "surrogateescape")), int(self.producer_seq)

    def fields(self) -> Fields:
        if self.key is None and not self.tags and not self.kept:
            return NO_FIELDS
        return _encoded(self.key, tuple(self.tags), tuple(self.kept))


@functools.lru_cache(1024)
def _is_kept(name: bytes) -> bool:
    return CLIENT_NAME.fullmatch(name) is not None and _OF_PROXIES.fullmatch(name) is None


@functools.lru_cache(256)
def _encoded(key: bytes | None, tags: tuple[bytes, ...], kept: Pairs) -> Fields:
    """Many messages have the same fields."""
    # What is not UTF-8 comes out of this in a form that encode_fields refuses by name.
    return encode_fields(
        None if key is None else key.decode("utf-8", "surrogateescape"),
        [tag.decode("utf-8", "surrogateescape") for tag in tags],
        [(name.decode(), value.decode("utf-8", "surrogateescape")) for name, value in kept],
    )


async def append(call: Call) -> answers.Response:
    given = Given(call.request.raw_headers)
    split = False
    if call.query:
        form = asking.parameters(call, ("split",)).get("split")
        if form not in (None, "lines"):
            raise UsageError("split: there is only 'lines'")
        split = form == "lines"
    media = asking.media_type(call.request)
    if split or media in _LINES_TYPES:
        outgoing = await _batch(call, given, media, split=split)
        if not outgoing.bodies:
            await call.serving.buffers.read(call.where, lambda reader: None)  # is it there?
            return _answered(call, given, Appended(), 0)
    else:
        limit = min(call.serving.config.limits.message_bytes, MAX_BODY_BYTES)
        body = await asking.body_of(call, limit, "the message")
        sender = given.sender()
        outgoing = Outgoing((body,), given.fields(), None if sender is None else (sender,), strict_seq=given.strict)
    outgoing.after = given.if_match
    appended = await call.serving.buffers.append(call.where, outgoing)
    call.serving.metrics.note_append(call.tenant, outgoing.bodies, appended)
    return _answered(call, given, appended, len(outgoing.bodies))


async def _batch(call: Call, given: Given, media: str, *, split: bool) -> Outgoing:
    """A parser hands out every message before a bad one; here a bad one is the end of all of them."""
    limits = call.serving.config.limits
    if given.content_encoding.lower() not in (b"", b"identity"):
        raise WrongMediaType("a batch is not taken with a content-encoding")
    sender = given.sender()
    if split and media == "application/http":
        raise UsageError(f"split=lines does not go with {media}: it has messages of its own")
    if split and media == "application/x-ndjson":
        given.kept = [(name, _JSON if name == b"content-type" else value) for name, value in given.kept]
    if not split and (given.key is not None or given.tags):
        raise UsageError("each message of such a batch has its own key and tags", hint="x-hbuf-key and x-hbuf-tag go")
    if media == "application/http" and sender is not None:
        raise UsageError("each request has its own producer", hint="x-hbuf-producer goes into the requests")
    body = await asking.body_of(call, limits.batch_bytes, "the batch")
    if len(body) <= _MOST_AT_ONCE_BYTES:
        return _outgoing(body, given, media, limits, split=split)
    # What takes long to parse holds nobody else up.
    return await asyncio.to_thread(_outgoing, body, given, media, limits, split=split)


def _outgoing(body: bytes, given: Given, media: str, limits: Limits, *, split: bool) -> Outgoing:
    sender = given.sender()
    limit = min(limits.message_bytes, MAX_BODY_BYTES)
    if split:
        lines = _parsed(LineParser(b"\n", limit), body, limits.batch_messages)
        bodies = [line if isinstance(line, bytes) else line.body for line in lines]
        outgoing = Outgoing(bodies, given.fields())
    else:
        parser: Parser = HttpParser(limit) if media == "application/http" else JsonParser(limit)
        drafts = [draft for draft in _parsed(parser, body, limits.batch_messages) if isinstance(draft, Draft)]
        producers = [draft.producer for draft in drafts]
        outgoing = Outgoing(
            [draft.body for draft in drafts],
            [draft.fields for draft in drafts],
            producers if any(producers) else None,
        )
    if sender is not None:
        name, number = sender
        outgoing.producers = [(name, number + i) for i in range(len(outgoing.bodies))]
    outgoing.unit = len(outgoing.bodies) > 1
    outgoing.strict_seq = given.strict
    return outgoing


def _parsed(parser: Parser, body: bytes, most: int) -> Sequence[bytes | Draft]:
    found: list[bytes | Draft] = [*parser.feed(body)]
    if parser.failed is None:
        found += parser.close()
    if parser.failed is not None:
        raise parser.failed
    if len(found) > most:
        raise TooLarge(f"the batch has {len(found)} messages; the limit is {most}")
    return found


def _answered(call: Call, given: Given, appended: Appended, count: int) -> answers.Response:
    status = 200 if len(appended.duplicates) == count else 201
    headers = [("x-hbuf-ack", given.ack.decode())]
    seqs, ids, times = appended.seqs, appended.ids, appended.times_us
    if count and seqs[-1]:
        headers.append(("x-hbuf-seq", str(seqs[-1])))
    if count and ids[-1]:
        headers.append(("x-hbuf-id", ids[-1].decode()))
    if count and times[-1]:
        headers.append(("x-hbuf-time", _shown_time(times[-1])))
    if "accept" in call.request.headers and asking.accepted(call.request, _FORMS) == answers.NDJSON:
        return answers.answer(_lines(appended), answers.NDJSON, headers, status=status)
    first, last = (_or_null(seqs[0]), _or_null(seqs[-1])) if count else ("null", "null")
    last_id = f'"{ids[-1].decode()}"' if count and ids[-1] else "null"
    duplicates = len(appended.duplicates)
    body = f'{{"first": {first}, "last": {last}, "count": {count}, "id": {last_id}, "duplicates": {duplicates}}}\n'
    return answers.answer(body.encode(), answers.JSON, headers, status=status)


_FORMS = (answers.JSON, answers.NDJSON)
_shown_time = functools.lru_cache(64)(encode_time)  # all that share a write have the same


def _or_null(seq: int) -> str:
    return str(seq) if seq else "null"


def _lines(appended: Appended) -> bytes:
    lines = []
    for i, (seq, record_id, time_us) in enumerate(zip(appended.seqs, appended.ids, appended.times_us, strict=True)):
        values = {
            "seq": seq or None,
            "id": record_id.decode() or None,
            "time": encode_time(time_us) if time_us else None,
            "duplicate": i in appended.duplicates,
        }
        lines.append(json.dumps(values).encode() + b"\n")
    return b"".join(lines)
