"""An erase that is interrupted: by SIGKILL at every call that changes a file, and by power cuts."""

import itertools
import shutil
from pathlib import Path

import pytest

from .checking import Answers
from .dying import Moment, work_until
from .erase_scenarios import INTERRUPTED, NEWEST, SEALED, EraseScenario, Secret, with_salts
from .forgetful import Disk, Folder, build, left_on_disk
from .losses import LOSSES, by_chance
from .scenarios import buffer_in


def prepared(scenario: EraseScenario, where: Path) -> list[Secret]:
    where.mkdir()
    scenario.prepare(where)
    return with_salts(buffer_in(where))


def erase_and_tell(scenario: EraseScenario, where: Path, answers: Answers) -> None:
    scenario.work(where)
    answers.note_done("erased")


@pytest.mark.parametrize("moment", ["before", "in the middle of", "after"])
@pytest.mark.parametrize("scenario", INTERRUPTED, ids=str)
def test_killed_at_every_call_each_message_is_whole_or_erased(
    scenario: EraseScenario, moment: Moment, ram_path: Path
) -> None:
    secrets = prepared(scenario, ram_path / "prepared")
    for point in itertools.count():
        where = ram_path / f"{moment} call {point}"
        shutil.copytree(ram_path / "prepared", where)
        outcome = work_until(lambda path, answers: erase_and_tell(scenario, path, answers), where, point, moment)
        scenario.check_readable(where, secrets)
        scenario.check_opened(where, secrets, done="erased" in outcome.answers.done)
        shutil.rmtree(where)
        if not outcome.died:
            break
    assert point >= (scenario.fewest_calls if moment != "in the middle of" else 5)


def cuts_of(scenario: EraseScenario, where: Path) -> list[tuple[Folder, bool]]:
    """What is in cache and on disk ahead of every call, and whether the erase was answered for."""
    disk = Disk(where)
    cuts: list[tuple[Folder, bool]] = []
    with pytest.MonkeyPatch.context() as patch:
        disk.watch(patch, lambda: cuts.append((disk.snapshot(), False)))
        scenario.work(where)
    cuts.append((disk.snapshot(), True))
    return cuts


@pytest.mark.parametrize("scenario", INTERRUPTED, ids=str)
def test_after_a_power_cut_each_message_is_whole_or_erased(scenario: EraseScenario, ram_path: Path) -> None:
    secrets = prepared(scenario, ram_path / "here")
    cuts = cuts_of(scenario, ram_path / "here")
    assert len(cuts) > scenario.fewest_calls
    seen: set[object] = set()
    for cut, done in cuts:
        for loss in [*LOSSES, by_chance(1), by_chance(2)]:
            left = left_on_disk(cut, loss)
            key = (*sorted(left.items()), done)
            if key not in seen:
                seen.add(key)
                build(ram_path / "left", left)
                scenario.check_readable(ram_path / "left", secrets)
                scenario.check_opened(ram_path / "left", secrets, done=done)
                shutil.rmtree(ram_path / "left")


@pytest.mark.parametrize("scenario", [NEWEST, SEALED], ids=str)
def test_killed_while_finishing_an_erase_that_was_killed_it_is_finished_all_the_same(
    scenario: EraseScenario, ram_path: Path
) -> None:
    secrets = prepared(scenario, ram_path / "prepared")
    erasing = ram_path / "erasing"
    for point in itertools.count(3, 4):
        shutil.copytree(ram_path / "prepared", erasing)
        died = work_until(lambda path, answers: scenario.work(path), erasing, point, "in the middle of").died
        for second in itertools.count(0, 3):
            where = ram_path / "finishing"
            shutil.copytree(erasing, where)
            again = work_until(lambda path, answers: scenario.open(path), where, second, "before")
            scenario.check_readable(where, secrets)
            scenario.check_opened(where, secrets, done=not died)
            shutil.rmtree(where)
            if not again.died:
                break
        shutil.rmtree(erasing)
        if not died:
            break
    assert point > 3


@pytest.mark.parametrize("scenario", [NEWEST, SEALED], ids=str)
def test_killed_in_the_middle_it_is_finished_even_without_the_indexes(scenario: EraseScenario, ram_path: Path) -> None:
    secrets = prepared(scenario, ram_path / "prepared")
    for point in itertools.count():
        where = ram_path / "here"
        shutil.copytree(ram_path / "prepared", where)
        died = work_until(lambda path, answers: scenario.work(path), where, point, "in the middle of").died
        for index in buffer_in(where).glob("segments/*.idx"):
            index.unlink()
        scenario.check_opened(where, secrets, done=not died)
        shutil.rmtree(where)
        if not died:
            break
