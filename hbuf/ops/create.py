"""Making a buffer."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from hbuf.errors import CannotCreate, UsageError
from hbuf.format.settings import Settings, has_rule, set_recipients, set_values
from hbuf.format.times import encode_time
from hbuf.remote.buffer import RemoteBuffer
from hbuf.store.clock import SystemClock
from hbuf.store.create import create_buffer
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
from hbuf.store.signing import Signer


def create_remote(
    buffer: RemoteBuffer,
    values: Mapping[str, str],
    *,
    recovery_key: bytes | None = None,
    recipients: Sequence[str] = (),
) -> None:
    """Makes a buffer on a server. The setting `sign` says that the server signs it, with a key of its own."""
    from hbuf.format.keys import PublicKey, encode_public
    from hbuf.remote import verbs

    wanted: dict[str, Any] = dict(values)
    sign = verbs.parse_sign(wanted.pop("sign")) if "sign" in wanted else False
    # Refused here with the same words as for a directory.
    defaults = Settings(str(uuid.uuid4()), buffer.name, encode_time(0))
    found = set_recipients(set_values(defaults, wanted), recipients)
    if recovery_key is not None and not sign:
        raise UsageError("--recovery goes with --set sign=true")
    if sign:
        wanted["sign"] = True
    if recovery_key is not None:
        wanted["recovery_key"] = encode_public(PublicKey("recovery", recovery_key))
    if found.recipients:
        wanted["recipients"] = list(found.recipients)
    try:
        made = verbs.create(buffer, wanted)
    except CannotCreate as error:
        if not error.message.endswith("exists already, with other settings"):
            raise
        made = False
    if not made:
        raise CannotCreate(f"{buffer.shown}: exists already")


def create(
    buffer: str | BufferDirectory,
    values: Mapping[str, str] | None = None,
    *,
    may_exist: bool = False,
    signer: Signer | None = None,
    recovery_key: bytes | None = None,
    recipients: Sequence[str] = (),
) -> bool:
    """Makes a buffer, with settings given as text. Returns False where it was there and may be.

    With `signer` it is signed from its first record on, and `recovery_key` may start a new line of keys later.
    Bodies are encrypted to `recipients`, public keys as text.
    """
    directory = buffer if isinstance(buffer, BufferDirectory) else BufferDirectory(buffer)
    if directory.name.startswith("_") and not directory.exists():
        raise UsageError(
            f"'{directory.name}' cannot be a buffer's name", hint="a leading '_' is for hbuf's own buffers"
        )
    clock = SystemClock()
    defaults = Settings(str(uuid.uuid4()), directory.name, encode_time(clock.now_us()))
    settings = set_recipients(set_values(defaults, values or {}), recipients)
    made = create_buffer(directory, settings, clock, may_exist=may_exist, signer=signer, recovery_key=recovery_key)
    if made and has_rule(settings):
        from hbuf.store.reserve import keep_first_reserve

        with os_errors(directory.shown):
            keep_first_reserve(directory, timeout_seconds=30)
    return made
