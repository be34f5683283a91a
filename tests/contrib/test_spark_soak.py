"""A stream of buffers to a buffer is killed at moments of three seeds; and the check of it refuses what it must."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SEEDS = (10, 18, 83)


@pytest.mark.parametrize("seed", SEEDS)
def test_driver_and_workers_killed_from_source_to_sink_every_message_is_stored_once_and_in_order(
    seed: int, soak: Callable[[str], Any], tmp_path: Path
) -> None:
    one = soak("spark_round").SparkRound(soak("spark_plan").draw_spark_plan(seed), tmp_path)
    one.run()
    assert one.faults == []
    assert one.counts["messages"] > one.counts["batches"] > len(one.plan.kills)


def test_these_seeds_kill_everything_that_can_be_killed(soak: Callable[[str], Any]) -> None:
    plan = soak("spark_plan")
    kills = [kill for seed in SEEDS for kill in plan.draw_spark_plan(seed).kills]
    assert {kill.victim for kill in kills} == set(plan.VICTIMS)
    assert {kill.victim for kill in kills if kill.in_commit} == set(plan.COMMITTING)


def test_the_same_seed_draws_the_same_plan_and_another_seed_another(soak: Callable[[str], Any]) -> None:
    draw = soak("spark_plan").draw_spark_plan
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


class Scene:
    """Two batches in two partitions, as they must be stored."""

    def __init__(self, soak: Callable[[str], Any]) -> None:
        self.check = soak("spark_check")
        self.wanted = [{"tea": 4, "milk": 2}, {"tea": 5, "milk": 3}]
        self.stored = [
            self.told(0, 0, 0, "tea", 1),
            self.told(0, 0, 1, "tea", 3),
            self.told(0, 1, 0, "tea", 2),
            self.told(0, 1, 1, "milk", 1),
            self.told(1, 0, 0, "milk", 2),
            self.told(1, 1, 0, "tea", 4),
        ]
        self._body_of, self._key_of = soak("bodies").body_of, soak("spark_feeder").key_of
        self.stored = [
            told._replace(body=self._body_of(told.source[0], told.source[1] - 1, lines=False)) for told in self.stored
        ]
        self.stored = [told._replace(key=self._key_of(told.source[1] - 1)) for told in self.stored]

    def told(self, batch: int, partition: int, row: int, buffer: str, seq: int) -> Any:
        return self.check.Told(batch, partition, row, f"{batch}-{partition}", (buffer, seq), b"", None)

    def faults(self) -> list[str]:
        faults: list[str] = self.check.check_batches(self.stored, self.wanted) + self.check.check_contents(self.stored)
        return faults


@pytest.fixture
def scene(soak: Callable[[str], Any]) -> Scene:
    return Scene(soak)


def test_the_check_accepts_what_spark_logged(scene: Scene) -> None:
    assert scene.faults() == []


def test_the_check_refuses_a_message_that_is_missing_at_the_end_of_a_partition(scene: Scene) -> None:
    del scene.stored[1]
    assert scene.faults() == ["batch 0: missing [('tea', 3)], twice [], of others []"]


def test_the_check_refuses_a_batch_that_is_missing(scene: Scene) -> None:
    del scene.stored[4:]
    assert scene.faults() == ["batch 1: missing [('milk', 2), ('tea', 4)], twice [], of others []"]


def test_the_check_refuses_a_batch_that_is_stored_twice(scene: Scene) -> None:
    scene.stored += scene.stored[4:]
    faults = scene.faults()
    assert "(1, 0, 0) comes after (1, 1, 0) (batch, partition, row)" in faults
    assert "batch 1: missing [], twice [('milk', 2), ('tea', 4)], of others []" in faults


def test_the_check_refuses_rows_that_changed_places(scene: Scene) -> None:
    scene.stored[0], scene.stored[1] = scene.stored[1], scene.stored[0]
    assert "(0, 0, 0) comes after (0, 0, 1) (batch, partition, row)" in scene.faults()


def test_the_check_refuses_a_message_of_another_batch(scene: Scene) -> None:
    scene.wanted[0]["tea"] = 3
    faults = scene.faults()
    assert "batch 0: missing [], twice [], of others [('tea', 3)]" in faults
    assert "batch 1: missing [('tea', 3)], twice [], of others []" in faults


def test_the_check_refuses_a_partition_of_two_computations(scene: Scene) -> None:
    scene.stored[1] = scene.stored[1]._replace(attempt="another")
    assert scene.faults() == ["batch 0, partition 0: is mixed from more than one computation"]


def test_the_check_refuses_a_batch_that_spark_does_not_know(scene: Scene) -> None:
    del scene.wanted[1]
    assert scene.faults() == ["there is no batch 1, and messages of it are stored"]


def test_the_check_refuses_another_body_or_key(scene: Scene) -> None:
    scene.stored[0] = scene.stored[0]._replace(body=b"coffee")
    scene.stored[1] = scene.stored[1]._replace(key="nobody's")
    assert [fault.partition(" is stored")[0] for fault in scene.faults()] == ["message 1 of tea", "message 3 of tea"]
