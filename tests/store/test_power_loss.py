"""Power cuts at every call that changes a file: what was answered for or shown was on disk, and is there afterwards."""

import itertools
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

from hbuf.ops.verify import verify
from hbuf.store import fsops

from .checking import Answers, Stored, append_to, check_survived, read_all, stored_of
from .encrypted_scenarios import ENCRYPTED, ENCRYPTED_ROLLING, ENCRYPTED_SIGNED_AND_COMPRESSING
from .forgetful import Disk, Folder, Loss, build, left_on_disk
from .losses import LOSSES, all_but_second, by_chance, every
from .scenarios import (
    APPENDING_MANY,
    CREATING,
    LONG,
    OPENING,
    RECOVERING,
    ROLLING,
    SCENARIOS,
    Scenario,
    buffer_in,
    segment_file,
)
from .signed_scenarios import NEW_LINE, SIGNED, SIGNED_CREATING, SIGNED_ROLLING

AFTERWARDS = b"of another process"


class Cut(NamedTuple):
    """The moment of a power cut: what is in cache and on disk, and who was told or saw what until then."""

    state: Folder
    answers: Answers
    shown: list[Stored]


def cuts_of(
    scenario: Scenario,
    where: Path,
    answers: Answers,
    *,
    readers: bool = True,
    not_on_disk: Mapping[Path, int] = MappingProxyType({}),
) -> list[Cut]:
    """Does the scenario's work once, and notes the moment ahead of every call, and the end.

    Without `readers` where an index may be missing or wrong: they would wait for the lock, which this process has.
    """
    disk = Disk(where, not_on_disk)
    cuts: list[Cut] = []

    def note() -> None:
        exists = bool(list(buffer_in(where).glob("segments/*.http")))
        shown = stored_of(read_all(buffer_in(where), scenario.identity_in(where))) if exists and readers else []
        cuts.append(Cut(disk.snapshot(), answers.copy(), shown))

    with pytest.MonkeyPatch.context() as patch:
        disk.watch(patch, note)
        scenario.work(where, answers)
    note()
    return cuts


def after_cuts(cuts: list[Cut], losses: list[Loss], folder: Path) -> Iterator[tuple[Path, Cut]]:
    """The directory that each cut leaves with each loss, each but once, for as long as it is looked at."""
    seen: set[tuple[object, ...]] = set()
    for i, cut in enumerate(cuts):
        for loss in losses:
            left = left_on_disk(cut.state, loss)
            key = (*sorted(left.items()), len(cut.answers.stored), len(cut.answers.done), len(cut.shown))
            if key not in seen:
                seen.add(key)
                where = folder / f"{loss} lost at call {i}"
                build(where, left)
                yield where, cut
                shutil.rmtree(where)


def prepared(scenario: Scenario, where: Path) -> Answers:
    where.mkdir()
    answers = Answers()
    scenario.prepare(where, answers)
    return answers


@pytest.mark.parametrize("scenario", [*SCENARIOS, *SIGNED, *ENCRYPTED], ids=str)
def test_power_cut_takes_nothing_that_was_answered_for_or_shown(scenario: Scenario, ram_path: Path) -> None:
    answers = prepared(scenario, ram_path / "here")
    cuts = cuts_of(scenario, ram_path / "here", answers, readers=not scenario.locks_readers_out)
    assert len(cuts) > scenario.fewest_calls
    for where, cut in after_cuts(cuts, [*LOSSES, by_chance(1), by_chance(2)], ram_path):
        if cut is cuts[-1]:
            # All was answered for: nothing has to be put right first, but for an index.
            assert {fault.kind for fault in verify(str(buffer_in(where)), jobs=1).faults} <= {"index"}
        scenario.check_after(where, cut.answers, cut.shown)


def test_power_cut_after_a_batch_whose_index_has_many_pages_takes_nothing(ram_path: Path) -> None:
    """Segments are synced and indexes are not: any of the index's pages may be on disk, without the others."""
    answers = prepared(APPENDING_MANY, ram_path / "here")
    cuts = cuts_of(APPENDING_MANY, ram_path / "here", answers)
    for where, cut in after_cuts(cuts, [*LOSSES, Loss("the second page", every, all_but_second)], ram_path):
        APPENDING_MANY.check_after(where, cut.answers, cut.shown)


def test_what_a_killed_process_left_in_the_cache_is_on_disk_before_it_is_built_upon(ram_path: Path) -> None:
    where = ram_path / "here"
    answers = prepared(RECOVERING, where)
    listed = segment_file(where).read_bytes().index(LONG[1])
    cuts = cuts_of(RECOVERING, where, answers, readers=False, not_on_disk={segment_file(where): listed})
    for left, cut in after_cuts(cuts, LOSSES, ram_path):
        check_survived(buffer_in(left), cut.answers.stored, RECOVERING.attempted)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_power_cut_in_the_recovery_from_a_power_cut_in_a_recovery_takes_nothing(loss: Loss, ram_path: Path) -> None:
    answers = prepared(OPENING, ram_path / "here")
    (ram_path / "again").mkdir()
    checked = 0
    for where, cut in after_cuts(cuts_of(OPENING, ram_path / "here", answers), [loss], ram_path):
        again = cuts_of(OPENING, where, cut.answers, readers=False)
        for where_again, second_cut in after_cuts(again, [loss], ram_path / "again"):
            OPENING.check_after(where_again, second_cut.answers, cut.shown)
            checked += 1
    assert checked >= 5


class Killed(BaseException):
    """Stands for SIGKILL where the process must live on, to know what was not synced."""


def cuts_behind_a_kill(scenario: Scenario, where: Path, answers: Answers, sync: int) -> list[Cut]:
    """Kills the scenario's work where it would sync a directory the `sync`-th time; another process appends then.

    Returns the moments of that one, and none where the work was done before.
    """
    disk = Disk(where)
    cuts: list[Cut] = []
    syncs = 0
    is_dead = is_revived = False

    def before_each() -> None:
        if is_dead and not is_revived:
            raise Killed  # so that nothing is cleaned up
        if is_revived:
            cuts.append(Cut(disk.snapshot(), answers.copy(), []))

    with pytest.MonkeyPatch.context() as patch:
        disk.watch(patch, before_each)
        watched = fsops.sync_directory

        def sync_directory(path: Path) -> None:
            nonlocal syncs, is_dead
            syncs += path.is_relative_to(where)
            is_dead = is_dead or syncs == sync
            watched(path)

        patch.setattr(fsops, "sync_directory", sync_directory)
        try:
            scenario.work(where, answers)
        except Killed:
            is_revived = True
            scenario.open_again(where, answers)
            answers.note_stored(append_to(buffer_in(where), AFTERWARDS, key=scenario.key_in(where)))
            before_each()
    return cuts


@pytest.mark.parametrize(
    "scenario",
    [
        CREATING,
        ROLLING,
        SIGNED_CREATING,
        SIGNED_ROLLING,
        NEW_LINE,
        ENCRYPTED_ROLLING,
        ENCRYPTED_SIGNED_AND_COMPRESSING,
    ],
    ids=str,
)
def test_names_that_a_killed_process_did_not_sync_are_on_disk_before_they_are_built_upon(
    scenario: Scenario, ram_path: Path
) -> None:
    scenario = replace(scenario, attempted=(*scenario.attempted, AFTERWARDS))
    for sync in itertools.count(1):
        where = ram_path / f"here {sync}"
        answers = prepared(scenario, where)
        cuts = cuts_behind_a_kill(scenario, where, answers, sync)
        if not cuts:
            break
        for left, cut in after_cuts(cuts, LOSSES[:1], ram_path):
            scenario.check_after(left, cut.answers)
    assert sync > 3
