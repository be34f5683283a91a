"""contrib/soak/run --daemon: a short run passes, and its checks refuse what they must refuse."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

import hbuf
from hbuf.format.message import Message

RUN = Path(__file__).parents[2] / "contrib" / "soak" / "run"
UNIT = 2


class Scene:
    """A buffer with what three clients sent in turns: a producer, one that sent once, and one with batches."""

    def __init__(self, path: Path, soak: Any) -> None:
        self.check = soak("daemon_check")
        self.body_of = soak("bodies").body_of
        names = {"producer": 1, "plain": 1, "batch": UNIT}
        self.sent = {
            name: self.check.Sent(name, unit, lines=False, again=name == "producer") for name, unit in names.items()
        }
        with hbuf.create(path) as buffer:
            for turn in range(3):
                for name, unit in names.items():
                    for k in range(turn * unit, (turn + 1) * unit):
                        receipt = buffer.append(self.body_of(name, k, lines=False))
                        self.sent[name].receipts[k] = (receipt.seq, receipt.id)
                    self.sent[name].count += unit
            self.stored = list(buffer.read())

    def faults(self, stored: list[Message] | None = None) -> list[str]:
        found: list[str] = self.check.check_sent(stored or self.stored, list(self.sent.values()))
        return found

    def rewritten(self, path: Path, bodies: list[bytes]) -> list[Message]:
        """Another buffer's messages, which is right in itself."""
        with hbuf.create(path) as buffer:
            buffer.append_many(bodies)
            return list(buffer.read())

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.stored]


@pytest.fixture
def scene(tmp_path: Path, soak: Any) -> Scene:
    return Scene(tmp_path / "orders", soak)


def test_a_short_run_passes_and_leaves_nothing_behind(ram_path: Path) -> None:
    done = subprocess.run(
        [RUN, "--daemon", "--seed", "0", "--rounds", "1", "--dir", ram_path],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "soak: round 0, seed 0: " in done.stdout
    assert " kills, " in done.stdout
    assert not list(ram_path.iterdir())


def test_the_same_seed_draws_the_same_plan_and_another_seed_another(soak: Any) -> None:
    draw = soak("daemon_plan").draw_daemon_plan
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_the_check_accepts_what_was_answered(scene: Scene) -> None:
    assert scene.faults() == []


def test_the_check_accepts_that_what_was_sent_once_and_not_answered_is_missing(scene: Scene, tmp_path: Path) -> None:
    scene.sent["plain"].count += 1
    scene.sent["batch"].count += UNIT
    assert scene.faults() == []


def test_the_check_refuses_that_the_end_of_what_was_answered_is_missing(scene: Scene) -> None:
    faults = scene.faults(scene.stored[:-UNIT])
    assert faults == [f"client batch: its message {k} was answered as {k + 7}, and is at None" for k in (4, 5)]


def test_the_check_refuses_a_producer_that_lacks_a_message_which_it_sent_until_it_was_answered(scene: Scene) -> None:
    scene.sent["producer"].count += 1
    assert scene.faults() == ["client producer: sent 4 until they were answered, and has not [3]"]


def test_the_check_refuses_a_message_that_is_stored_twice(scene: Scene, tmp_path: Path) -> None:
    for name in ("producer", "plain"):
        twice = scene.body_of(name, 2, lines=False)
        faults = scene.faults([*scene.stored, *scene.rewritten(tmp_path / name, [*scene.bodies(), twice])[-1:]])
        assert f"client {name}: its message 2 comes behind 2, twice or too late" in faults


def test_the_check_refuses_a_part_of_a_request(scene: Scene) -> None:
    scene.sent["batch"].receipts.clear()
    assert scene.faults(scene.stored[:-1]) == ["client batch: of request 2 there is [(4, 11)]"]


def test_the_check_refuses_a_request_that_others_came_between(scene: Scene, tmp_path: Path) -> None:
    bodies = scene.bodies()
    bodies.insert(-1, scene.body_of("plain", 3, lines=False))
    scene.sent["plain"].count += 1
    faults = scene.faults(scene.rewritten(tmp_path / "other", bodies))
    assert "client batch: of request 2 there is [(4, 11), (5, 13)]" in faults


def test_the_check_refuses_what_was_refused_and_is_stored(scene: Scene) -> None:
    scene.sent["plain"].refused.add(1)
    assert scene.faults() == ["client plain: its message 1 was refused, and is stored"]


def test_the_check_refuses_another_number_or_id_than_was_answered(scene: Scene) -> None:
    seq, record_id = scene.sent["plain"].receipts[0]
    scene.sent["plain"].receipts[0] = (seq, "0" * 64)
    assert scene.faults() == ["client plain: its message 0 was answered with another id"]
    scene.sent["plain"].receipts[0] = (seq + 1, record_id)
    assert scene.faults() == ["client plain: its message 0 was answered as 3, and is at 2"]


def test_the_check_refuses_a_body_that_nobody_sent(scene: Scene, tmp_path: Path) -> None:
    faults = scene.faults(scene.rewritten(tmp_path / "other", [*scene.bodies()[:-1], b"batch/5/other"]))
    assert "message 12 was not sent by anybody: b'batch/5/other'" in faults
