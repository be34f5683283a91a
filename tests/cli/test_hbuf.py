"""hbuf VERB runs hbuf-VERB, as git does."""

from __future__ import annotations

import importlib.metadata
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.conftest import Run

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"])
VERBS = [name.removeprefix("hbuf-") for name in PROGRAMS if name not in ("hbuf", "hbufd")]


def test_verbs_do_what_their_programs_do(run: Run) -> None:
    assert run("hbuf", "create", "orders") == (0, b"", "")
    assert run("hbuf", "append", "orders", "-k", "k", stdin=b"one\n") == (0, b"", "")
    assert run("hbuf", "tail", "orders") == run("hbuf-tail", "orders") == (0, b"one\n", "")
    assert run("hbuf", "grep", "two", "orders").code == 1
    assert run("hbuf", "verify", "--quiet", "orders") == (0, b"", "")
    assert run("hbuf", "set", "orders").out == Path("orders/buffer.json").read_bytes()
    assert run("hbuf", "ls").out == run("hbuf-ls").out
    assert run("hbuf", "reindex", "orders") == (0, b"", "")
    assert run("hbuf", "close", "orders") == (0, b"", "")
    assert run("hbuf", "append", "orders", stdin=b"two\n").code == 77
    assert run.real("hbuf", "pause", "orders", "--", "sh", "-c", "exit 3").code == 3


def test_errors_name_the_program_that_was_run(run: Run) -> None:
    assert run("hbuf", "tail", "missing") == (66, b"", "hbuf-tail: missing: there is no such buffer\n")


@pytest.mark.parametrize("ask", [["--help"], ["help"]], ids=str)
def test_help_lists_every_verb_and_an_example(run: Run, ask: list[str]) -> None:
    done = run("hbuf", *ask)
    assert (done.code, done.err) == (0, "")
    listed = [line.split()[0] for line in done.lines if line.startswith("  ")]
    assert set(listed) == {*VERBS, "demo"}
    assert "Example: " in done.out.decode()


def test_no_verb_shows_the_help_with_2(run: Run) -> None:
    done = run("hbuf")
    assert done.code == 2
    assert "Usage: hbuf VERB" in done.out.decode() + done.err


def test_version_is_that_of_the_package(run: Run) -> None:
    assert run("hbuf", "--version") == (0, f"hbuf {importlib.metadata.version('hbuf')}\n".encode(), "")


@pytest.mark.parametrize("verb", ["nothing", "Append", "--wrong", "", "tail/../tail"])
def test_unknown_verb_is_2_with_a_hint(run: Run, verb: str) -> None:
    done = run("hbuf", verb)
    assert (done.code, done.out) == (2, b"")
    assert done.err == f"hbuf: there is no '{verb}'\nhint: hbuf --help\n"


def test_program_of_somebody_else_on_the_path_is_a_verb_too(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "hbuf-hello"
    program.write_text('#!/bin/sh\necho "hello $*"\nexit 5\n')
    program.chmod(0o755)
    done = run.real("hbuf", "hello", "a b", env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"})
    assert done == (5, b"hello a b\n", "")
