"""Changing a buffer's settings: a new PUT in the chain, then `buffer.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hbuf.format.settings import Settings, change_recipients, change_settings
from hbuf.remote.buffer import RemoteBuffer
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
from hbuf.store.reserve import keep_first_reserve
from hbuf.store.signing import RecoveryKey, Signer
from hbuf.store.tail import newest_opening
from hbuf.store.writer import Writer


def read_settings(path: str | RemoteBuffer) -> Settings:
    """The settings that the chain says."""
    if isinstance(path, RemoteBuffer):
        from hbuf.remote import verbs

        return verbs.read_settings(path)
    directory = BufferDirectory(path)
    directory.require()
    with os_errors(directory.shown):
        return newest_opening(directory).settings


def set_settings(
    path: str | RemoteBuffer,
    changes: Mapping[str, str],
    *,
    timeout_seconds: float,
    notice: Callable[[str], None] = lambda line: None,
    signer: Signer | None = None,
    recovery: RecoveryKey | None = None,
    added: Sequence[str] = (),
    removed: Sequence[str] = (),
    wait_paused: bool = True,
) -> None:
    """With `recovery` a new line of keys begins, with the key of `signer`. `added` and `removed` are recipients."""

    def change(settings: Settings) -> Settings:
        return change_recipients(change_settings(settings, changes), added, removed)

    wanted = change(read_settings(path))  # refuse what is wrong before waiting for a lock
    if isinstance(path, RemoteBuffer):
        from hbuf.remote import verbs

        values: dict[str, Any] = {**changes}
        if added or removed:
            values["recipients"] = list(wanted.recipients)
        verbs.change_settings(path, values, timeout_seconds)
        return
    directory = BufferDirectory(path)
    with Writer(
        directory,
        timeout_seconds=timeout_seconds,
        wait_paused=wait_paused,
        notice=notice,
        signer=signer,
        recovery=recovery,
    ) as writer:
        writer.roll(change)
    if any(name.startswith("retention_") for name in changes):
        with os_errors(directory.shown):
            keep_first_reserve(directory, timeout_seconds)
