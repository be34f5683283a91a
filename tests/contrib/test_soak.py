"""contrib/soak: a short run passes, and its checks refuse what they must refuse."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import hbuf

CONTRIB = Path(__file__).parents[2] / "contrib"
WRITERS = ("library-0", "library-1")


class Scene:
    """A buffer that two writers wrote to in turns, and their receipts."""

    def __init__(self, path: Path, soak: Any) -> None:
        self.path = path
        self.check = soak("check")
        self._body_of = soak("bodies").body_of
        self.writings = {name: self.check.Writing(name, 1, lines=False, receipts=[{}]) for name in WRITERS}
        with hbuf.create(path) as buffer:
            for k in range(3):
                for name in WRITERS:
                    receipt = buffer.append(self.body(name, k))
                    self.writings[name].receipts[0][k] = (receipt.seq, receipt.id)

    def body(self, writer: str, k: int) -> bytes:
        body: bytes = self._body_of(writer, k, lines=False)
        return body

    def faults(self, path: Path | None = None) -> list[str]:
        stored = self.check.stored_messages(hbuf.open(path or self.path))
        faults: list[str] = self.check.check_messages(stored, list(self.writings.values()))
        return faults

    def rewrite(self, path: Path, bodies: list[bytes]) -> Path:
        """Another buffer, right in itself, with these messages."""
        with hbuf.create(path) as buffer:
            buffer.append_many(bodies)
        assert self.check.check_buffer(path) == []
        return path

    def bodies(self) -> list[bytes]:
        return [message.body for message in hbuf.open(self.path).read()]


@pytest.fixture
def scene(tmp_path: Path, soak: Any) -> Scene:
    return Scene(tmp_path / "orders", soak)


def run_soak(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CONTRIB / "soak" / "run", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_short_run_passes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = run_soak("--seed", "3", "--duration", "2s", "--dir", str(tmp_path))
    assert done.returncode == 0, done.stdout
    assert "soak: round 0, seed 3: " in done.stdout
    assert done.stdout.endswith("rounds from seed 3: ok\n")
    assert not list(tmp_path.iterdir())


def test_a_round_with_faults_ends_the_run_with_1_and_says_its_seed(
    soak: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = soak("rounds")
    monkeypatch.setattr(rounds.Round, "run", lambda self: self.faults.append("a message is missing"))
    monkeypatch.setattr("sys.argv", ["run", "--seed", "11", "--dir", str(tmp_path)])
    assert rounds.main() == 1
    out = capsys.readouterr().out
    assert "soak: a message is missing\n" in out
    assert out.endswith("soak: FAILED; again: contrib/soak/run --seed 11 --rounds 1\n")
    assert len(list(tmp_path.iterdir())) == 1, "its files are kept"


def test_a_length_of_time_that_is_none_is_refused() -> None:
    done = run_soak("--duration", "soon")
    assert done.returncode == 2
    assert "'soon' is not a length of time" in done.stdout


def test_the_same_seed_draws_the_same_plan_and_another_seed_another(soak: Any) -> None:
    draw_plan = soak("plan").draw_plan
    assert draw_plan(7) == draw_plan(7)
    assert draw_plan(7) != draw_plan(8)


def test_the_check_accepts_what_was_acknowledged(scene: Scene) -> None:
    assert scene.faults() == []


def test_the_check_accepts_a_message_that_was_stored_and_not_acknowledged(scene: Scene) -> None:
    hbuf.open(scene.path).append(scene.body("library-0", 3))
    assert scene.faults() == []


def test_the_check_refuses_a_buffer_whose_end_was_taken_away_though_it_verifies(scene: Scene, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    shutil.copytree(scene.path, earlier)
    receipt = hbuf.open(scene.path).append(scene.body("library-0", 3))
    scene.writings["library-0"].receipts[0][3] = (receipt.seq, receipt.id)
    assert scene.faults() == []
    assert scene.check.check_buffer(earlier) == []
    assert scene.faults(earlier) == ["writer library-0: its message 3 was acknowledged as 7, and is missing"]


def test_the_check_refuses_a_buffer_without_a_message_of_the_middle(scene: Scene, tmp_path: Path) -> None:
    bodies = scene.bodies()
    faults = scene.faults(scene.rewrite(tmp_path / "other", bodies[:2] + bodies[3:]))
    assert "writer library-0: its message 2 comes before message 1" in faults
    assert "writer library-0: its message 1 was acknowledged as 3, and another is there" in faults


def test_the_check_refuses_a_message_that_is_stored_twice(scene: Scene) -> None:
    hbuf.open(scene.path).append(scene.body("library-1", 2))
    assert scene.faults() == ["writer library-1: its message 2 comes twice or too late"]


def test_the_check_refuses_a_body_that_was_not_sent(scene: Scene, tmp_path: Path) -> None:
    bodies = scene.bodies()
    faults = scene.faults(scene.rewrite(tmp_path / "other", [*bodies[:5], bodies[5] + b"!"]))
    assert faults[0].startswith("message 6 was not sent by anybody: ")
    hbuf.open(scene.path).append(b"nobody's")
    assert scene.faults() == ["""message 7 was not sent by anybody: b"nobody's\""""]


def test_the_check_refuses_another_id_than_was_acknowledged(scene: Scene, tmp_path: Path) -> None:
    faults = scene.faults(scene.rewrite(tmp_path / "other", scene.bodies()))
    assert "writer library-1: its message 0 was acknowledged with another id" in faults
    assert len(faults) == 6


def test_the_check_refuses_a_part_of_a_unit(scene: Scene) -> None:
    scene.writings["library-0"].unit = 2
    assert scene.faults() == ["writer library-0: 3 messages are stored, and its units have 2"]


def test_the_check_refuses_a_reader_that_showed_what_is_not_stored(scene: Scene) -> None:
    stored = scene.check.stored_messages(hbuf.open(scene.path))
    shown = [(message.seq, message.id) for message in stored]
    assert scene.check.check_shown("reader", shown, stored) == []
    assert scene.check.check_shown("reader", shown[:2], stored) == []
    assert scene.check.check_shown("reader", shown, stored[:-1]) == ["reader showed 6 messages, and 5 are stored"]
    assert scene.check.check_shown("reader", shown[1:], stored)[0].startswith("reader showed 2 ")
    assert scene.check.check_shown("reader", [(1, "0" * 64)], stored)[0].startswith("reader showed 1 000")


def test_the_check_refuses_a_changed_byte(scene: Scene) -> None:
    (segment,) = (scene.path / "segments").glob("*.http")
    data = bytearray(segment.read_bytes())
    data[data.index(b"library-1/2/")] ^= 1
    segment.write_bytes(data)
    (fault,) = scene.check.check_buffer(scene.path)
    assert "message 6" in fault
