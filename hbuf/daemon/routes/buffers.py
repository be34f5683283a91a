"""Buffers themselves: listing and making them, their status, their settings, their newest head."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from hbuf.daemon import answers, asking
from hbuf.daemon.call import LOG, Call
from hbuf.errors import CannotCreate, HbufError, UsageError
from hbuf.format.keys import parse_public
from hbuf.format.settings import Settings, encode_settings, set_recipients, set_values
from hbuf.ops.head import head
from hbuf.ops.ls import Listing, list_buffer, listing_values
from hbuf.ops.set import read_settings, set_settings
from hbuf.ops.status import status
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
from hbuf.store.signing import Signer
from hbuf.store.tail import newest_opening

_TIMEOUT_SECONDS = 2.0  # for a lock or a pause: a thread waits so long, and a client can ask again
CHANGEABLE = (
    "segment_bytes",
    "segment_messages",
    "segment_age",
    "max_message_bytes",
    "compress",
    "retention_age",
    "retention_bytes",
    "retention_messages",
)
_CHANGES = (*CHANGEABLE, "recipients")
_MAKING = (*_CHANGES, "hash", "erasable", "sign", "recovery_key")


async def list_buffers(call: Call) -> web.StreamResponse:
    asking.parameters(call, ())
    found = await listings(call)
    values = [listing_values(listing) for listing in found]
    for value in values:
        del value["path"]
    return answers.json_answer({"buffers": values})


async def listings(call: Call) -> list[Listing]:
    """The buffers of the tenant that the caller may see, by name. One that cannot be looked at is passed over."""
    buffers = call.serving.buffers

    def look() -> list[Listing]:
        found = []
        for name in buffers.names(call.tenant):
            if call.caller.may("see", call.tenant, name):
                directory = buffers.tenant_directory(call.tenant) / "buffers" / name
                try:
                    found.append(list_buffer(BufferDirectory(directory)))
                except HbufError as error:
                    LOG.warning("%s/%s cannot be listed: %s", call.tenant, name, error.message)
        return found

    return await buffers.run_reading(look)


async def show_status(call: Call) -> web.StreamResponse:
    producer = asking.parameters(call, ("producer",)).get("producer")
    return answers.json_answer(await call.serving.buffers.read(call.where, lambda reader: status(reader, producer)))


async def show_settings(call: Call) -> web.StreamResponse:
    asking.parameters(call, ())

    def look(directory: BufferDirectory) -> bytes:
        return encode_settings(read_settings(str(directory.path)))

    return answers.answer(await call.serving.buffers.look(call.where, look), answers.JSON)


async def show_head(call: Call) -> web.StreamResponse:
    asking.parameters(call, ())
    note = await call.serving.buffers.look(call.where, lambda directory: head(str(directory.path)))
    return answers.answer(note.encode(), answers.TEXT)


async def make(call: Call) -> web.StreamResponse:
    asking.parameters(call, ())
    given = await asking.json_object(call, _MAKING)
    texts, recipients = _texts(given), _recipients(given)
    sign, recovery_text = given.get("sign"), asking.text_of(given, "recovery_key")
    if sign not in (None, True, False):
        raise UsageError("'sign' is true or false")
    if recovery_text is not None and not sign:
        raise UsageError("'recovery_key' goes with 'sign'")
    recovery_key = _recovery_key(recovery_text)
    made = await call.serving.buffers.create(
        call.where, texts, sign=bool(sign), recovery_key=recovery_key, recipients=recipients or ()
    )
    if made:
        await call.note("buffer.create", **given)

    def look(directory: BufferDirectory) -> bytes:
        with os_errors(directory.shown):
            opening = newest_opening(directory)
        settings = opening.settings
        wanted = set_values(settings, texts)
        if recipients is not None:
            wanted = set_recipients(wanted, recipients)
        signed = opening.keys.sign is not None
        other_key = recovery_key is not None and opening.keys.recovery != recovery_key
        if not made and (wanted != settings or (sign is not None and sign != signed) or other_key):
            raise CannotCreate(f"{call.buffer}: exists already, with other settings")
        return encode_settings(settings)

    shown = await call.serving.buffers.look(call.where, look)
    return answers.answer(shown, answers.JSON, status=201 if made else 200)


async def change(call: Call) -> web.StreamResponse:
    asking.parameters(call, ())
    given = await asking.json_object(call, _CHANGES)
    texts, recipients = _texts(given), _recipients(given)

    def work(directory: BufferDirectory, signer: Signer | None) -> tuple[Settings, Settings]:
        path = str(directory.path)
        before = read_settings(path)
        added, removed = _difference(before, recipients)
        if texts or added or removed:
            set_settings(
                path,
                texts,
                timeout_seconds=_TIMEOUT_SECONDS,
                signer=signer,
                added=added,
                removed=removed,
                wait_paused=False,
            )
        return before, read_settings(path)

    before, after = await call.serving.buffers.change(call.where, work)
    if after != before:
        await call.note("buffer.set", **given)
    return answers.answer(encode_settings(after), answers.JSON)


def _difference(settings: Settings, recipients: list[str] | None) -> tuple[list[str], list[str]]:
    """Which recipients come, and which go."""
    if recipients is None:
        return [], []
    wanted = set_recipients(settings, recipients).recipients
    return (
        [text for text in wanted if text not in settings.recipients],
        [text for text in settings.recipients if text not in wanted],
    )


def _texts(given: dict[str, Any]) -> dict[str, str]:
    """The settings as the commands take them."""
    return {name: _text(name, value) for name, value in given.items() if name in (*CHANGEABLE, "hash", "erasable")}


def _text(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        return asking.checked_text(name, value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise UsageError(f"'{name}' is text, a number, true, false or null")


def _recipients(given: dict[str, Any]) -> list[str] | None:
    found = given.get("recipients")
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise UsageError("'recipients' is a list of public keys")
    return [asking.checked_text("recipients", text) for text in found]


def _recovery_key(text: str | None) -> bytes | None:
    if text is None:
        return None
    key = parse_public(text)
    if key.kind != "recovery":
        raise UsageError("'recovery_key' is the public key of a key of kind recovery")
    return key.data
