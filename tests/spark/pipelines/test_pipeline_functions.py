"""Which modules go to the workers together with a stage's function."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hbuf
from hbuf.spark.pipelines.functions import modules_beside

if TYPE_CHECKING:
    from spark.pipelines.conftest import Load, Module

STAGE = """
[stages.clean]
input = "orders"
sql = "select body from input"
output = "out/clean"
"""


def test_module_beside_the_file_goes_along_and_what_every_machine_has_does_not(
    load: Load, module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = module("")
    monkeypatch.syspath_prepend(str(tmp_path))
    beside = importlib.import_module(name)
    monkeypatch.setitem(sys.modules, name, beside)
    pipeline = load(STAGE)
    assert list(modules_beside(pipeline)) == [beside]
    # A file in / has the whole machine beside it.
    found = list(modules_beside(replace(pipeline, file=Path("/shop.toml"))))
    assert beside in found
    assert json not in found
    assert hbuf not in found
    assert pytest not in found
