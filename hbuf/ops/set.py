"""Changing a buffer's settings: a new PUT in the chain, then `buffer.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hbuf.format.settings import Settings, change_settings
from hbuf.store.directory import BufferDirectory
from hbuf.store.fsops import os_errors
from hbuf.store.tail import newest_opening
from hbuf.store.writer import Writer


def read_settings(path: str) -> Settings:
    """The settings that the chain says."""
    directory = BufferDirectory(path)
    directory.require()
    with os_errors(directory.shown):
        return newest_opening(directory).settings


def set_settings(
    path: str, changes: Mapping[str, str], *, timeout_seconds: float, notice: Callable[[str], None] = lambda line: None
) -> None:
    change_settings(read_settings(path), changes)  # refuse what is wrong before waiting for a lock
    with Writer(BufferDirectory(path), timeout_seconds=timeout_seconds, notice=notice) as writer:
        writer.roll(lambda settings: change_settings(settings, changes))
