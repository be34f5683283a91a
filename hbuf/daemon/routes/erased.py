"""/b/{buffer}/erased: what was erased, and erasing many at once or after a list."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from hbuf.daemon import answers, asking
from hbuf.daemon.call import Call
from hbuf.errors import UsageError
from hbuf.format.deletes import check_reason
from hbuf.format.times import encode_time
from hbuf.ops.erase import Erasing, apply_list, candidates, erase, list_erased, parse_numbers
from hbuf.store.directory import BufferDirectory
from hbuf.store.signing import Signer

_TIMEOUT_SECONDS = 2  # for a lock or a pause: a thread waits so long, and a client can ask again
_NAMES = ("numbers", "key", "reason", "dry_run")


async def show(call: Call) -> web.StreamResponse:
    asking.parameters(call, ())
    listed = await call.serving.buffers.read(call.where, lambda reader: list_erased(str(reader.directory.path)))
    return answers.answer(listed, answers.TEXT)


async def erase_many(call: Call) -> web.StreamResponse:
    given = asking.parameters(call, ("reason",))
    if asking.media_type(call.request) == "text/plain":
        listed = await asking.body_of(call, call.serving.config.limits.batch_bytes, "the list")
        return await _apply(call, listed, given.get("reason"))
    values = await asking.json_object(call, _NAMES)
    dry_run = values.get("dry_run", False)
    if not isinstance(dry_run, bool):
        raise UsageError("'dry_run' is true or false")
    wanted = _wanted(values)
    if dry_run:
        return await _dry_run(call, wanted)
    reason = asking.text_of(values, "reason")
    return await erase_numbers(call, wanted, given.get("reason") if reason is None else reason)


def _wanted(values: dict[str, Any]) -> Sequence[range] | str:
    key, numbers = asking.text_of(values, "key"), values.get("numbers")
    if (key is None) == (numbers is None):
        raise UsageError("either numbers or a key say what is to be erased")
    if key is not None:
        return key
    if not isinstance(numbers, list) or not numbers or not all(isinstance(text, str | int) for text in numbers):
        raise UsageError('\'numbers\' is a list, like ["7", "10-20"]')
    return parse_numbers(str(number) for number in numbers)


async def erase_numbers(call: Call, wanted: Sequence[range] | str, reason: str | None) -> web.StreamResponse:
    erasing = _erasing(call, reason)

    def work(directory: BufferDirectory, signer: Signer | None) -> int:
        return erase(str(directory.path), wanted, erasing(signer))

    erased = await call.serving.buffers.change(call.where, work)
    await call.note("buffer.erase", erased=erased, reason=reason)
    return answers.json_answer({"erased": erased})


async def _apply(call: Call, listed: bytes, reason: str | None) -> web.StreamResponse:
    erasing = _erasing(call, reason)
    missing: list[int] = []

    def work(directory: BufferDirectory, signer: Signer | None) -> int:
        return apply_list(str(directory.path), listed, erasing(signer, missing))

    erased = await call.serving.buffers.change(call.where, work)
    await call.note("buffer.erase", erased=erased, reason=reason)
    return answers.json_answer({"erased": erased, "missing": sum(missing)})


async def _dry_run(call: Call, wanted: Sequence[range] | str) -> web.StreamResponse:
    def lines(path: str) -> bytes:
        return b"".join(
            json.dumps({"seq": message.seq, "time": encode_time(message.time_us), "key": message.key}).encode() + b"\n"
            for message in candidates(path, wanted)
        )

    found = await call.serving.buffers.read(call.where, lambda reader: lines(str(reader.directory.path)))
    return answers.answer(found, answers.NDJSON)


class _Erasing:
    """Why and by whom; the key that signs is known only where it is done."""

    def __init__(self, call: Call, reason: str) -> None:
        self._by = re.sub(rb"[^!-~]", b"?", os.fsencode(f"{call.caller.who}@{os.uname().nodename}"))
        self._reason = reason

    def __call__(self, signer: Signer | None, missing: list[int] | None = None) -> Erasing:
        noted: list[int] = [] if missing is None else missing
        return Erasing(self._reason, _TIMEOUT_SECONDS, signer, by=self._by, missing=noted.append, wait_paused=False)


def _erasing(call: Call, reason: str | None) -> _Erasing:
    if not reason:
        raise UsageError("a reason is needed to erase", hint="it stays in the log, so name nobody in it")
    check_reason(reason)
    return _Erasing(call, reason)
