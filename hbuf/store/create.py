"""Making a buffer: whole or not at all, whoever else is making it at the same time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from hbuf.errors import CannotCreate
from hbuf.format.chain import ZERO_ID, hasher_named
from hbuf.format.names import check_buffer_name
from hbuf.format.record import encode_put
from hbuf.format.settings import Settings, encode_settings
from hbuf.store import fsops
from hbuf.store.clock import Clock, draw_salts
from hbuf.store.commit import create_segment
from hbuf.store.directory import BufferDirectory
from hbuf.store.lock import Lock
from hbuf.store.signing import Signer
from hbuf.store.tail import newest_opening

_WAIT_SECONDS = 30


def create_buffer(
    directory: BufferDirectory,
    settings: Settings,
    clock: Clock,
    *,
    salts: Callable[[int], bytes] = draw_salts,
    may_exist: bool = False,
    signer: Signer | None = None,
    recovery_key: bytes | None = None,
) -> bool:
    """Makes the buffer and the directories above it. Returns False where it was there and may be.

    With `signer` it is signed from its first record on.
    """
    with fsops.os_errors(directory.shown):
        if directory.exists():
            return _exists_already(directory, may_exist)
        check_buffer_name(directory.name)
        if signer is not None:
            signer.refuse_used()
        around = next((above for above in directory.path.parents if BufferDirectory(above).exists()), None)
        if around is not None:
            raise CannotCreate(f"{directory.shown}: is inside the buffer {around}")
        if not directory.is_vacant():
            raise CannotCreate(f"{directory.shown}: exists and is not a buffer")
        make_directories(directory.path)
        lock = Lock(directory)
        lock.acquire(deadline=time.monotonic() + _WAIT_SECONDS)
        try:
            if directory.exists():
                return _exists_already(directory, may_exist)
            if not directory.segments.is_dir():
                fsops.make_directory(directory.segments)
                fsops.sync_directory(directory.path)
            encoded = encode_settings(settings)
            fsops.replace_durably(directory.settings, encoded)
            put, put_id = encode_put(
                hasher_named(settings.hash),
                directory.name,
                ZERO_ID,
                1,
                clock.now_us(),
                salts(1)[:43] if settings.erasable else None,
                encoded,
                hash_name=settings.hash,
                uuid=settings.uuid,
                epoch=1,
                sign_key=signer.public if signer is not None else None,
                recovery_key=recovery_key,
                sign=signer.put_signer(settings.uuid) if signer is not None else None,
            )
            create_segment(directory, 1, put, put_id)
            if signer is not None:
                signer.serve(newest_opening(directory), directory.shown)
        finally:
            lock.close()
    return True


def _exists_already(directory: BufferDirectory, may_exist: bool) -> bool:
    if may_exist:
        return False
    raise CannotCreate(f"{directory.shown}: exists already")


def make_directories(path: Path, make: Callable[[Path], None] | None = None) -> None:
    """`path` and what is missing above it, each name on disk. `make` makes one; else the user's umask holds."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    # Who made the last one may have died before its name was on disk. What cannot be synced was not made by us.
    with contextlib.suppress(OSError):
        fsops.sync_directory(path.parent)
    for each in reversed(missing):
        try:
            (make or fsops.make_outer_directory)(each)
        except FileExistsError:
            continue  # somebody else was faster
        fsops.sync_directory(each.parent)


def make_directories_like(path: Path) -> None:
    """The same, each with the owner and mode of the one around it: root may make what the daemon is to write to."""
    make_directories(path, fsops.make_directory)
