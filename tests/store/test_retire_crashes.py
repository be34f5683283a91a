"""Retiring that dies at any call that changes a file, or with the power: it verifies, and the next one finishes it."""

import itertools
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from hbuf.errors import HbufError
from hbuf.ops.compress import compress
from hbuf.ops.retire import retire
from hbuf.ops.set import set_settings
from hbuf.ops.verify import verify
from hbuf.store import fsops
from hbuf.store.directory import BufferDirectory
from hbuf.store.outgoing import Outgoing
from hbuf.store.signing import Signer

from .checking import Answers, open_writer, read_all
from .dying import Moment, work_until
from .erase_scenarios import erase_in
from .losses import LOSSES, by_chance
from .retiring import Retiring
from .scenarios import Scenario, buffer_in
from .test_power_loss import after_cuts, cuts_of, prepared

KEY = "audit.key"
ERASED = (4, 8)
MESSAGES = 11  # in segments of two; a DELETE takes a number, too


@dataclass(frozen=True, slots=True)
class Retirement:
    """What is there before, and what must be gone in the end."""

    name: str
    signed: bool
    end: int  # the last number that goes
    interrupted: bool = False
    compressed: bool = False  # and two messages are erased: one that goes, and one that stays

    def __str__(self) -> str:
        return self.name

    def prepare(self, where: Path, answers: Answers) -> None:
        buffer_in(where).parent.mkdir(parents=True)
        key = where / KEY if self.signed else None
        buffer = Retiring(buffer_in(where), key=key, retention_messages="4")
        buffer.append(3, producer=b"till")
        buffer.append(MESSAGES - 3)
        if self.compressed:
            erase_in(buffer.path, *ERASED, key=key)
            assert compress(str(buffer.path), timeout_seconds=20)
        if self.interrupted:
            _interrupt(buffer)

    def work(self, where: Path, answers: Answers) -> None:
        signer = Signer(where / KEY) if self.signed else None
        retire(str(buffer_in(where)), timeout_seconds=20, signer=signer)
        answers.note_done("retired")

    def scenario(self) -> Scenario:
        return Scenario(self.name, self.prepare, self.work)

    def check(self, where: Path, answers: Answers) -> None:
        path, key = buffer_in(where), where / KEY if self.signed else None
        firsts = BufferDirectory(path).segment_firsts()
        found = read_all(path)
        seqs = [message.seq for message in found]
        assert [message.seq for message in found if message.erased] == [
            seq for seq in (ERASED if self.compressed else ()) if seq >= firsts[0]
        ]
        # A reader sees all from the first segment still there on: no gap, and nothing that the rule keeps is gone.
        assert seqs == list(range(firsts[0], MESSAGES + 1))
        assert firsts[0] <= self.end + 1
        assert "retired" not in answers.done or firsts[0] == self.end + 1
        with open_writer(path, key=key) as writer, writer.locked():
            pass
        _check_verifies(path)
        self.work(where, Answers())
        _check_verifies(path)
        assert [message.seq for message in read_all(path)] == list(range(self.end + 1, MESSAGES + 1))
        names = sorted(file.name for file in (path / "segments").iterdir() if not file.name.startswith("."))
        suffix = ".http.zst" if self.compressed else ".http"
        assert names[0] == f"{self.end + 1:020d}{suffix}", "what belonged to a retired segment is left"
        assert (path / "keys.http").read_bytes().count(b"PUT /b/") == self.end // 2
        with open_writer(path, key=key) as writer:
            again = writer.append(Outgoing([b"3"], producers=[(b"till", 3)]))
            assert again.duplicates == {0}, "the number of a producer was forgotten"
            writer.append(Outgoing([b"on"]))
        _check_verifies(path)


def _interrupt(buffer: Retiring) -> None:
    """A retirement stops when one segment is gone; then the rule is taken away."""
    calls = itertools.count()
    real = fsops.unlink

    def unlink(path: Path) -> None:
        if next(calls) == 4:
            raise OSError(5, "Input/output error")
        real(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fsops, "unlink", unlink)
        with pytest.raises(HbufError):
            buffer.retire()
    assert buffer.firsts[0] == 5
    set_settings(str(buffer.path), {"retention_messages": "none"}, timeout_seconds=20, signer=buffer.signer())


def _check_verifies(path: Path) -> None:
    report = verify(str(path), jobs=1)
    assert report.ok, f"{[str(fault) for fault in report.faults]}, not checked: {report.not_checked}"


RETIREMENTS = [
    Retirement("retiring", signed=False, end=6),
    Retirement("retiring a signed one", signed=True, end=6),
    Retirement("finishing", signed=False, end=6, interrupted=True),
    Retirement("finishing a signed one", signed=True, end=6, interrupted=True),
    Retirement("retiring a signed and compressed one", signed=True, end=6, compressed=True),
]


@pytest.mark.parametrize("moment", ["before", "in the middle of", "after"])
@pytest.mark.parametrize("retirement", RETIREMENTS, ids=str)
def test_killed_at_every_call_it_verifies_and_is_finished_later(
    retirement: Retirement, moment: Moment, ram_path: Path
) -> None:
    before = ram_path / "before"
    before.mkdir()
    retirement.prepare(before, Answers())
    for point in itertools.count():
        where = ram_path / f"{moment} call {point}"
        shutil.copytree(before, where)
        outcome = work_until(retirement.work, where, point, moment)
        retirement.check(where, outcome.answers)
        shutil.rmtree(where)
        if not outcome.died:
            break
    fewest = 5 if retirement.interrupted else 15
    assert point >= (fewest if moment != "in the middle of" else 0)


@pytest.mark.parametrize("retirement", RETIREMENTS, ids=str)
def test_power_cut_at_every_call_leaves_what_verifies_and_is_finished_later(
    retirement: Retirement, ram_path: Path
) -> None:
    scenario = retirement.scenario()
    answers = prepared(scenario, ram_path / "here")
    cuts = cuts_of(scenario, ram_path / "here", answers)
    assert len(cuts) > (5 if retirement.interrupted else 15)
    for where, cut in after_cuts(cuts, [*LOSSES, by_chance(1)], ram_path):
        retirement.check(where, cut.answers)
