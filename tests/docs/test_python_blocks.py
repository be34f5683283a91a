"""The Python in README.md and docs/library.md runs as it is printed, block after block, in an empty directory."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hbuf
from hbuf import errors
from hbuf.ops.report import Report

ROOT = Path(__file__).parents[2]
LIBRARY = (ROOT / "docs" / "library.md").read_text()


def python_blocks(document: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)


def run(code: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("document", ["README.md", "docs/library.md"])
def test_python_of_a_document_runs(document: str, tmp_path: Path) -> None:
    blocks = python_blocks(document)
    assert blocks
    printed = run("\n".join(blocks), tmp_path).splitlines()
    assert re.fullmatch(r"1 [0-9a-f]{64}", printed[0])
    assert re.fullmatch(r"1 \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}\+00:00 b'.*'", printed[1])


def documented_signatures() -> dict[str, str]:
    """`name(parameters)` of everything that docs/library.md describes as a call."""
    found = re.findall(r"^`((?:hbuf|Buffer)\.[a-z_]+)\((.*?)\) -> [^`]+`$", LIBRARY, re.MULTILINE)
    return dict(found)


def callables() -> dict[str, object]:
    functions: dict[str, object] = {f"hbuf.{name}": getattr(hbuf, name) for name in ("create", "draft", "open")}
    methods = {
        f"Buffer.{name}": method
        for name, method in inspect.getmembers(hbuf.Buffer, inspect.isfunction)
        if not name.startswith("_")
    }
    return functions | methods


def test_library_document_names_every_function_and_method() -> None:
    assert set(documented_signatures()) == set(callables())


@pytest.mark.parametrize("name", sorted(callables()))
def test_documented_parameters_are_those_of_the_function(name: str) -> None:
    called = callables()[name]
    assert callable(called)
    parameters = [each for each in inspect.signature(called).parameters.values() if each.name != "self"]
    texts = []
    for each in parameters:
        given = "" if each.default is inspect.Parameter.empty else f"={each.default!r}"
        texts.append(("**" if each.kind is inspect.Parameter.VAR_KEYWORD else "") + each.name + given)
    documented = documented_signatures()[name].replace('"', "'").replace("*, ", "")
    assert documented == ", ".join(texts)


def table_below(heading: str) -> set[str]:
    """The names in the first column of the table that follows a text."""
    rows = LIBRARY[LIBRARY.index(heading) :].split("| --- |", 1)[1].split("\n\n", 1)[0]
    cells = re.findall(r"^\| (.*?) \|", rows, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([A-Za-z_]+)`", cell)}


def test_tables_name_the_fields_of_what_is_returned() -> None:
    def names(kind: type) -> set[str]:
        return set(inspect.signature(kind).parameters)

    assert table_below("A `Receipt` ") == names(hbuf.Receipt)
    assert table_below("A `Message` ") == names(hbuf.Message) | {"time"}
    assert table_below("A `Report` ") <= names(Report) | {"ok"}


def test_table_of_errors_names_every_one() -> None:
    def names(kind: type[errors.HbufError]) -> set[str]:
        # What Spark's part has of its own is not the library's.
        own = [each for each in kind.__subclasses__() if each.__module__ == errors.__name__]
        return {kind.__name__}.union(*map(names, own))

    named = table_below("## Errors") | table_below("These come from the daemon")
    assert named == names(errors.HbufError) - {"HbufError"}
