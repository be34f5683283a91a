"""Auditing many segments at once, in processes of their own: every segment verifies by itself.

A process is started as any program is, so that it neither forks a program with threads nor runs a caller's
script again, as the standard library's pools of processes would.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from hbuf.errors import StorageFailed
from hbuf.store.audit import SegmentAudit, audit_segment

# What one process gets to do: much more than starting it costs.
SHARE_BYTES = 16 * 1024 * 1024
_WORKER = "import sys; sys.path.insert(0, sys.argv[1]); from hbuf.ops.audits import serve; serve()"


class Task(NamedTuple):
    path: str  # of the buffer
    first: int
    length: int  # how many of the segment's bytes to check
    newest: bool
    asked: frozenset[int]  # numbers whose ids are wanted


def audits(tasks: list[Task], jobs: int | None) -> Iterator[SegmentAudit]:
    """The audit of each task, in no order."""
    shares = list(_shares(tasks))
    workers = min(jobs or os.cpu_count() or 1, len(shares))
    if workers == 1 or not sys.executable:
        yield from (audit_segment(*task) for task in tasks)
        return
    from concurrent.futures import ThreadPoolExecutor, as_completed

    pool = ThreadPoolExecutor(workers)
    try:
        for future in as_completed([pool.submit(audit_in_process, share) for share in shares]):
            yield from future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def serve() -> None:
    """What a process does: reads tasks, writes audits."""
    import pickle

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # who interrupts us wants no traceback
    tasks: list[Task] = pickle.load(sys.stdin.buffer)
    pickle.dump([audit_segment(*task) for task in tasks], sys.stdout.buffer)


def _shares(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    share: list[Task] = []
    size = 0
    for task in tasks:
        share.append(task)
        size += task.length
        if size >= SHARE_BYTES:
            yield share
            share, size = [], 0
    if share:
        yield share


def audit_in_process(share: list[Task]) -> list[SegmentAudit]:
    import pickle
    import subprocess

    package = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-P", "-c", _WORKER, package], input=pickle.dumps(share), stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        raise StorageFailed(f"{share[0].path}: a process that checked segments ended with {done.returncode}")
    found: list[SegmentAudit] = pickle.loads(done.stdout)
    return found
