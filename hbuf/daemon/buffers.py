"""The buffers below the daemon's root, as it has them open: appends in groups, readers for one request at a time.

It lives on the event loop; what touches files runs on threads, those that write and those that read apart, so that a
slow disk holds up writers and never readers.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, TypeVar

from hbuf.daemon.config import Config
from hbuf.daemon.group_commit import GroupCommit, Queue
from hbuf.daemon.quota import Quotas, bytes_below
from hbuf.daemon.readers import Readers
from hbuf.daemon.signing_keys import make_signing_key, signer_of
from hbuf.daemon.waking import Waiter, Waking
from hbuf.errors import NotReady, OverQuota, UsageError
from hbuf.format import names
from hbuf.format.record import encode_own_lines
from hbuf.format.scan import Record
from hbuf.format.times import parse_time
from hbuf.ops.create import create
from hbuf.store.directory import BufferDirectory
from hbuf.store.outgoing import Appended, Outgoing
from hbuf.store.reader import Reader
from hbuf.store.signing import Signer

# Of bodies that come in pieces, so many times as much may be in memory as may wait to be written.
_INCOMING = 4
_WRITING_THREADS = 32
_READING_THREADS = 16
# Apart from appends, which do not wait for whoever holds a lock to change something elsewhere.
_CHANGING_THREADS = 16

_Result = TypeVar("_Result")


class Where(NamedTuple):
    tenant: str
    buffer: str


class Buffers:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.counts: Counter[str] = Counter()  # for metrics: groups, requests, messages, bytes
        self.queue = Queue(config.limits.queue_bytes, "more is waiting to be written than may be")
        self.incoming = Queue(_INCOMING * config.limits.queue_bytes, "more is being sent than may be at a time")
        self.quotas = Quotas(self._measure)
        self.waking = Waking()
        self._readers = Readers()
        self._commits: OrderedDict[Where, GroupCommit] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._writing = ThreadPoolExecutor(_WRITING_THREADS, "write")
        self._reading = ThreadPoolExecutor(_READING_THREADS, "read")
        self._changing = ThreadPoolExecutor(_CHANGING_THREADS, "change")
        self._ending = False

    def reconfigure(self, config: Config) -> None:
        """Takes new limits. Root and keys stay as they were."""
        self.config = config
        self.queue.most_bytes = config.limits.queue_bytes
        self.incoming.most_bytes = _INCOMING * config.limits.queue_bytes

    @property
    def open_count(self) -> int:
        return len(self._commits)

    def tenant_directory(self, tenant: str) -> Path:
        return self.config.root / names.TENANTS / names.check_tenant_name(tenant)

    def directory(self, where: Where) -> BufferDirectory:
        """Where a buffer is, or would be."""
        path = self.tenant_directory(where.tenant) / names.BUFFERS / names.check_buffer_name(where.buffer)
        directory = BufferDirectory(path)
        directory.shown = where.buffer  # what is said of it goes to clients, who need not know where it lies
        return directory

    def tenants(self) -> list[str]:
        """What is on disk. For a thread."""
        return _listed(self.config.root / names.TENANTS, names.is_tenant_name)

    def names(self, tenant: str) -> list[str]:
        """The buffers of a tenant. For a thread."""
        folder = self.tenant_directory(tenant) / names.BUFFERS
        return [name for name in _listed(folder, names.is_buffer_name) if BufferDirectory(folder / name).exists()]

    async def append(self, where: Where, outgoing: Outgoing) -> Appended:
        """Stores all of it, or raises. Of duplicates that are still there the ids are looked up."""
        if self._ending:
            raise NotReady("the server is ending")
        if self.config.tenants or self.config.limits.tenant_bytes is not None:
            await self.quotas.require_room(self.config, where.tenant, sum(map(len, outgoing.bodies)))
        appended = await self._commit_of(where).append(outgoing)
        if any(appended.seqs[place] for place in appended.duplicates):
            await self.read(where, lambda reader: _complete(reader, outgoing, appended))
        return appended

    async def read(self, where: Where, work: Callable[[Reader], _Result]) -> _Result:
        """Runs `work` on a reading thread, with a reader that nobody else has meanwhile and that knows what is new."""
        directory = self.directory(where)

        def run() -> _Result:
            with self._readers.borrowed(directory) as reader:
                return work(reader)

        return await asyncio.get_running_loop().run_in_executor(self._reading, run)

    async def look(self, where: Where, work: Callable[[BufferDirectory], _Result]) -> _Result:
        """Runs `work`, which only reads, on a reading thread."""
        directory = self.directory(where)
        return await asyncio.get_running_loop().run_in_executor(self._reading, work, directory)

    async def run_reading(self, work: Callable[[], _Result]) -> _Result:
        """Runs `work`, which is about no one buffer, on a reading thread."""
        return await asyncio.get_running_loop().run_in_executor(self._reading, work)

    async def change(self, where: Where, work: Callable[[BufferDirectory, Signer | None], _Result]) -> _Result:
        """Runs `work`, which writes, on a thread for changes. It gets the key that signs the buffer."""
        if self._ending:
            raise NotReady("the server is ending")
        directory = self.directory(where)

        def run() -> _Result:
            directory.require()
            return work(directory, signer_of(self.config.keys, directory))

        result = await asyncio.get_running_loop().run_in_executor(self._changing, run)
        self.waking.wake(directory.segments)
        return result

    async def create(
        self,
        where: Where,
        values: Mapping[str, str],
        *,
        sign: bool = False,
        recovery_key: bytes | None = None,
        recipients: Sequence[str] = (),
    ) -> bool:
        """Makes a buffer with settings as text. False where it was there, with whatever settings."""
        if self._ending:
            raise NotReady("the server is ending")
        directory = self.directory(where)
        if directory.name.startswith("_"):
            raise UsageError(f"'{directory.name}' cannot be a buffer's name", hint="a leading '_' is for hbuf's own")
        most = self.config.quota_of(where.tenant).max_buffers

        def run() -> bool:
            if directory.exists():
                return False
            if most is not None and len(self.names(where.tenant)) >= most:
                raise OverQuota(f"tenant {where.tenant} may have {most} buffers, and has them")
            signer = make_signing_key(self.config.keys, directory) if sign else None
            return create(
                directory, values, may_exist=True, signer=signer, recovery_key=recovery_key, recipients=recipients
            )

        return await asyncio.get_running_loop().run_in_executor(self._changing, run)

    def waiting(self, where: Where) -> AbstractContextManager[Waiter]:
        """For who waits for messages."""
        return self.waking.waiting(self.directory(where).segments)

    async def close(self) -> None:
        """What was accepted is stored, nothing more is taken, and all files are closed."""
        self._ending = True
        self.waking.wake_all()
        await asyncio.gather(*self._closing, *(commit.finish() for commit in self._commits.values()))
        self._commits.clear()
        self._readers.close()
        self.waking.close()
        self._writing.shutdown()
        self._changing.shutdown()
        self._reading.shutdown()

    def _commit_of(self, where: Where) -> GroupCommit:
        commit = self._commits.get(where)
        if commit is None:
            commit = self._commits[where] = self._new_commit(where)
            self._close_idle()
        self._commits.move_to_end(where)
        return commit

    def _new_commit(self, where: Where) -> GroupCommit:
        directory = self.directory(where)
        segments = directory.segments

        def committed(requests: int, messages: int, size: int) -> None:
            self.counts.update(groups=1, requests=requests, messages=messages, bytes=size)
            self.quotas.add(where.tenant, size)
            self.waking.wake(segments)

        return GroupCommit(directory, self.config.keys, self._writing, self.queue, committed)

    def _close_idle(self) -> None:
        """Closes the buffers that were not written for longest, where more are open than may be."""
        excess = len(self._commits) - self.config.limits.open_buffers
        for where in [where for where, commit in self._commits.items() if not commit.busy][: max(excess, 0)]:
            task = asyncio.get_running_loop().create_task(self._commits.pop(where).finish())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _measure(self, tenant: str) -> int:
        return await self.run_reading(lambda: bytes_below(self.tenant_directory(tenant) / names.BUFFERS))


def _listed(folder: Path, is_name: Callable[[str], bool]) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if is_name(name))
    except FileNotFoundError:
        return []


def _complete(reader: Reader, outgoing: Outgoing, appended: Appended) -> None:
    """Looks up number, id and time of duplicates that are still there.

    Only of a producer's last message it is known where it is. Of a batch, the others come just before it.
    """
    duplicates = set(appended.duplicates)
    for place in sorted(duplicates, reverse=True):
        seq = appended.seqs[place]
        if not seq and place + 1 in duplicates:
            seq = max(appended.seqs[place + 1] - 1, 0)
        record = next((chunk.parse(0) for chunk in reader.chunks(seq, seq + 1)), None) if seq else None
        if record is None or not _is_of(record, outgoing, place):
            appended.seqs[place] = 0
        else:
            appended.seqs[place], appended.ids[place] = seq, record.id
            appended.times_us[place] = parse_time(record.time.decode())


def _is_of(record: Record, outgoing: Outgoing, place: int) -> bool:
    """Whether a record has the producer's number of the message at a place."""
    lines = encode_own_lines(unit=None, producer=outgoing.producers[place] if outgoing.producers else None)
    return b"\r\n" + lines in b"\r\n" + record.own
