"""SIGKILL before, in and after every call that changes a file, and at random moments of a real command."""

import itertools
import os
import random
import select
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hbuf.ops.create import create

from .checking import Answers, Stored, check_survived
from .dying import Moment, changing_calls, work_until
from .encrypted_scenarios import ENCRYPTED
from .real_command import APPEND, ENVIRONMENT
from .scenarios import SCENARIOS, Scenario
from .signed_scenarios import SIGNED

KILLS = 20  # of each of the two buffers
LINES = 400  # offered to each command: they and their receipts fit into a pipe that nobody empties


@pytest.mark.parametrize("moment", ["before", "in the middle of", "after"])
@pytest.mark.parametrize("scenario", [*SCENARIOS, *SIGNED, *ENCRYPTED], ids=str)
def test_killed_at_every_call_it_keeps_what_it_answered_for(scenario: Scenario, moment: Moment, ram_path: Path) -> None:
    prepared = ram_path / "prepared"
    prepared.mkdir()
    before = Answers()
    scenario.prepare(prepared, before)
    for point in itertools.count():
        where = ram_path / f"{moment} call {point}"
        shutil.copytree(prepared, where)
        outcome = work_until(scenario.work, where, point, moment)
        outcome.answers.stored[:0] = before.stored
        outcome.answers.torn = before.torn
        scenario.check_after(where, outcome.answers)
        shutil.rmtree(where)
        if not outcome.died:
            break
    assert point >= (scenario.fewest_calls if moment != "in the middle of" else 2)


def test_every_function_that_changes_files_is_a_crash_point() -> None:
    assert {"create_file", "make_directory", "write_all_at", "sync_data", "rename", "unlink"} < set(changing_calls())


def test_killed_at_random_a_command_keeps_what_it_gave_receipts_for(ram_path: Path) -> None:
    create(str(ram_path / "small"), {"segment_bytes": "16KiB"})
    # The other buffer is made by the command itself, which is killed while it does so, too.
    with ThreadPoolExecutor(2) as pool:
        tasks = [pool.submit(_kill_again_and_again, ram_path / name, name) for name in ("small", "new")]
    for task in tasks:
        receipts, offered = task.result()
        assert len(receipts) > LINES
        assert len(receipts) < len(offered) - LINES, "no command was killed before it was done"


def _kill_again_and_again(path: Path, seed: str) -> tuple[list[Stored], list[bytes]]:
    chance = random.Random(seed)
    receipts: list[Stored] = []
    offered: list[bytes] = []
    for kill in range(KILLS):
        lines = [b"%d of kill %d %s" % (n, kill, b"." * chance.randrange(60)) for n in range(LINES)]
        offered.extend(lines)
        receipts.extend(_append_until_killed(path, lines, chance))
    check_survived(path, receipts, offered)
    return receipts, offered


def _append_until_killed(path: Path, lines: list[bytes], chance: random.Random) -> list[Stored]:
    """Feeds a real hbuf-append and kills it, sometimes at a random time, else behind a random receipt."""
    each = ["--fsync", "always"] if chance.random() < 0.7 else []
    command = [*APPEND, str(path), "-v", "--linger", "1ms", *each]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=ENVIRONMENT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        os.write(process.stdin.fileno(), b"".join(line + b"\n" for line in lines))
        told = b""
        if chance.random() < 0.75:
            told = _read_lines(process.stdout.fileno(), chance.randrange(1, LINES))
        else:
            time.sleep(chance.uniform(0, 0.2))
        time.sleep(chance.uniform(0, 0.003))
        process.kill()
        told += process.stdout.read()
    whole = [line.split() for line in told.splitlines(keepends=True) if line.endswith(b"\n")]
    return [Stored(int(seq), id_.decode(), body) for (seq, id_), body in zip(whole, lines, strict=False)]


def _read_lines(fd: int, count: int) -> bytes:
    """What comes, until there are `count` lines or the other side is gone."""
    told = b""
    deadline = time.monotonic() + 30
    while told.count(b"\n") < count:
        ready, _, _ = select.select([fd], [], [], deadline - time.monotonic())
        assert ready, "no receipts came"
        data = os.read(fd, 65_536)
        if not data:
            break
        told += data
    return told
