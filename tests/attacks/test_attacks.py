"""Each way to tamper is noticed by a verifier, on each kind of buffer; or docs/security.md says that it is not."""

from __future__ import annotations

import importlib
import re
import shutil
from pathlib import Path

import pytest

from .buffers import KINDS, Target, make_aged, make_target
from .registry import TAMPERINGS, Tampering

for module in ("attacks_on_records", "attacks_on_chains", "attacks_on_files", "attacks_on_remains"):
    importlib.import_module(f"{__package__}.{module}")

SECURITY = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
TRIED = [(tampering, (kind, tampering.aged)) for tampering in TAMPERINGS.values() for kind in tampering.kinds]
Base = tuple[str, bool]  # kind, and whether it is an aged one
BASES: list[Base] = [(kind, aged) for kind in KINDS for aged in (False, True)]


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[Base, Target]:
    makers = {False: make_target, True: make_aged}
    return {(kind, aged): makers[aged](tmp_path_factory.mktemp(kind), kind) for kind, aged in BASES}


@pytest.fixture
def attacked(targets: dict[Base, Target], tmp_path: Path, request: pytest.FixtureRequest) -> Target:
    base: Base = request.param
    shutil.copytree(targets[base].root, tmp_path / "target")
    return Target(tmp_path / "target", base[0])


@pytest.mark.parametrize("attacked", BASES, indirect=True)
def test_buffer_that_nobody_attacked_is_intact(attacked: Target) -> None:
    attacked.finish()
    report = attacked.verify()
    assert report.ok, report.faults


@pytest.mark.parametrize(
    ("tampering", "attacked"),
    TRIED,
    ids=[f"{tampering.name}-{kind}" for tampering, (kind, _) in TRIED],
    indirect=["attacked"],
)
def test_tampering_is_noticed_or_said_to_go_unnoticed(tampering: Tampering, attacked: Target) -> None:
    before = {file: file.read_bytes() for file in attacked.path.rglob("*") if file.is_file()}
    tampering.tamper(attacked)
    attacked.finish()
    assert before != {file: file.read_bytes() for file in attacked.path.rglob("*") if file.is_file()}
    report = attacked.verify()
    assert report.ok == (attacked.kind in tampering.unnoticed), [str(fault) for fault in report.faults]


def test_there_are_forty_ways_and_the_document_has_each() -> None:
    assert len(TAMPERINGS) >= 40
    table = SECURITY.partition("| what is done |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \| ([^|]*?) \|$", table, re.MULTILINE)
    told = {name: (kinds, unnoticed) for name, kinds, unnoticed in rows}
    assert told.keys() - {"---"} == TAMPERINGS.keys()
    for tampering in TAMPERINGS.values():
        assert told.get(tampering.name) == (_said(tampering.kinds), _said(tampering.unnoticed)), tampering.name


def _said(kinds: tuple[str, ...]) -> str:
    return "all" if kinds == KINDS else ", ".join(kinds) or "-"
