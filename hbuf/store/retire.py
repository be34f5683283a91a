"""Retiring whole oldest segments, under the lock: first it is said, then their PUTs are kept, then they go.

The order, each step on disk before the next: the DELETE that names the last message to go; what is known of producers;
keys.http, with every full PUT of what goes; the segments, oldest first, each with its index and tags file. Whatever
step it stops at, the buffer verifies, and the next one finishes what the DELETE says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from hbuf.errors import Damaged, DiskFull
from hbuf.format import names
from hbuf.format.deletes import Retirement, encode_delete
from hbuf.format.key_line import split_key_line
from hbuf.format.settings import has_rule
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.markers import acting_user
from hbuf.store.reserve import give_back, keep_reserve
from hbuf.store.retention import Plan
from hbuf.store.seal import keep_producers
from hbuf.store.sealed import puts_of
from hbuf.store.tail import Opening
from hbuf.store.writer import Writer

# On a full disk this many go at a time: keys.http with their PUTs fits into the reserve, and each step makes room.
_FEW_SEGMENTS = 8

MakePlan = Callable[[Opening], Plan]


def retire_segments(writer: Writer, make_plan: MakePlan, reason: Callable[[Plan], bytes]) -> Plan:
    """Retires what the plan says, which is made under the lock. Returns it. A full disk is no obstacle."""
    try:
        return _retire(writer, make_plan, reason, full=False)
    except DiskFull:
        pass
    try:
        return _retire(writer, make_plan, reason, full=True)
    except DiskFull:
        if not give_back(writer.directory):
            raise
    # Not even its end could be opened, so that the reserve was still there.
    return _retire(writer, make_plan, reason, full=True)


def _retire(writer: Writer, make_plan: MakePlan, reason: Callable[[Plan], bytes], *, full: bool) -> Plan:
    directory = writer.directory
    with writer.locked() as tail:
        if full:
            give_back(directory)  # under the lock: those who wait to append here cannot take the room
        settings = tail.opening.settings
        plan = make_plan(tail.opening)
        if plan.segments:
            check_keys(directory, signed=tail.opening.keys.sign is not None, first=plan.first)
            if plan.reason:
                what = Retirement(plan.end, plan.end_id)
                writer.append_deletes([encode_delete(what, acting_user(), reason(plan))])
            keep_producers(directory, plan.end)
        step = _FEW_SEGMENTS if full else max(len(plan.segments), 1)
        for at in range(0, len(plan.segments), step):
            some = plan.segments[at : at + step]
            keep_puts(directory, some)
            _unlink_segments(directory, some)
        _unlink_orphans(directory, plan.orphans)
        if has_rule(settings):
            keep_reserve(directory)
    writer.seal_rolled()
    return plan


def check_keys(directory: BufferDirectory, *, signed: bool, first: int) -> None:
    """Refuses where keys.http is damaged, or is missing and should have the keys of what went before."""
    hint = "restore keys.http from a backup; hbuf-verify tells more; nothing was retired"
    content = read_keys(directory)
    fault = split_key_line(content)[1]
    if fault:
        raise Damaged(f"{directory.shown}: {directory.keys.name}: byte {fault.at}: {fault.reason}", hint=hint)
    if signed and first > 1 and not content:
        raise Damaged(f"{directory.shown}: {directory.keys.name} is missing", hint=hint)


def read_keys(directory: BufferDirectory) -> bytes:
    try:
        return directory.keys.read_bytes()
    except FileNotFoundError:
        return b""


def keep_puts(directory: BufferDirectory, firsts: Sequence[int]) -> None:
    """Puts the PUTs of segments behind those that keys.http has of earlier ones."""
    content = read_keys(directory)
    # An interrupted retirement may have put some there already.
    length = max((put.end for first, put in split_key_line(content)[0] if first < firsts[0]), default=0)
    kept = content[:length] + b"".join(puts_of(directory, first) for first in firsts)
    if kept != content:
        fsops.replace_durably(directory.keys, kept)


def _unlink_segments(directory: BufferDirectory, firsts: Sequence[int]) -> None:
    for first in firsts:
        # The segment first: what a crash leaves is never listed as one, and the next retirement sweeps it up.
        files = (directory.segment(first), directory.compressed(first), directory.index(first), directory.tags(first))
        unfinished = directory.segments / names.new_compressed(first)
        for path in (*files, unfinished):
            if path.exists():
                fsops.unlink(path)
        # Each by itself: a power cut may keep any of several names, and must not leave a gap.
        fsops.sync_directory(directory.segments)


def _unlink_orphans(directory: BufferDirectory, files: Sequence[str]) -> None:
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            fsops.unlink(directory.segments / file)
    if files:
        fsops.sync_directory(directory.segments)
