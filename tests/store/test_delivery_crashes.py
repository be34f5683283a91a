"""Staged batches, killed and cut off at every call that changes a file, and tried again with rows that differ."""

import itertools
import random
import shutil
from pathlib import Path

import pytest

from .checking import Answers
from .dying import Moment, work_until
from .forgetful import Disk, Folder, build, left_on_disk
from .losses import LOSSES, by_chance
from .staged_batches import check_delivered, prepare, try_all


def first_try(where: Path, answers: Answers) -> None:
    try_all(where, "first")


def second_try(where: Path, answers: Answers) -> None:
    try_all(where, "second")


@pytest.mark.parametrize("moment", ["before", "in the middle of"])
def test_killed_at_every_call_a_batch_is_stored_once_and_of_one_try(moment: Moment, ram_path: Path) -> None:
    prepare(ram_path / "prepared")
    chance = random.Random(moment)
    seen = set()
    for point in itertools.count():
        where = ram_path / f"call {point}"
        shutil.copytree(ram_path / "prepared", where)
        died = work_until(first_try, where, point, moment).died
        work_until(second_try, where, chance.randrange(point + 20), moment)
        try_all(where, "third")
        seen.add(tuple(check_delivered(where)))
        shutil.rmtree(where)
        if not died:
            break
    assert len(seen) > 3  # the tries that were stored differ with the moment, and both batches were hit
    assert ("first", "first") in seen


def test_a_power_cut_at_every_call_takes_nothing_and_stores_nothing_twice(ram_path: Path) -> None:
    prepare(ram_path / "here")
    disk = Disk(ram_path / "here")
    cuts: list[Folder] = []
    with pytest.MonkeyPatch.context() as patch:
        disk.watch(patch, lambda: cuts.append(disk.snapshot()))
        try_all(ram_path / "here", "first")
    seen: set[tuple[object, ...]] = set()
    for i, cut in enumerate(cuts):
        for loss in [*LOSSES, by_chance(i)]:
            left = left_on_disk(cut, loss)
            if (key := tuple(sorted(left.items()))) in seen:
                continue
            seen.add(key)
            build(ram_path / "after", left)
            try_all(ram_path / "after", "second")
            check_delivered(ram_path / "after")
            shutil.rmtree(ram_path / "after")
    assert len(seen) > 50
