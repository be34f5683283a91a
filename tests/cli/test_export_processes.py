"""Exports and imports as real processes: beside writers, killed, interrupted, and on a terminal."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .exported_files import bodies as exported_bodies
from .exported_files import files, manifest

if TYPE_CHECKING:
    from cli.conftest import Bodies, MakeBuffer, Run, Terminal, WaitUntil

FORMS = pytest.mark.parametrize("form", ["jsonl", "parquet"])
# Message n goes to z only after message n of a is stored.
ONE_AFTER_THE_OTHER = """
import itertools, hbuf
with hbuf.open("all/a") as a, hbuf.open("all/z") as z:
    for n in itertools.count(1):
        a.append(b"%d" % n)
        z.append(b"%d" % n)
"""
# Runs a command that kills itself at call number N of a function of fsops.
DYING = """
import importlib, os, signal, sys
from hbuf.store import fsops
module, name, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
del sys.argv[1:4]
call = getattr(fsops, name)
def dying(*arguments):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return call(*arguments)
setattr(fsops, name, dying)
importlib.import_module(module).main()
"""


@FORMS
def test_cut_beside_a_writer_has_no_message_without_those_stored_before_it(
    run: Run, make_buffer: MakeBuffer, bodies: Bodies, wait_until: WaitUntil, form: str
) -> None:
    # Those between are there for the time that it takes to look at them.
    for name in ("a", "z", *(f"m{i}" for i in range(50))):
        make_buffer(f"all/{name}")
    writer = run.start(sys.executable, "-c", ONE_AFTER_THE_OTHER)
    counts = []
    for number in range(8):
        so_far = len(bodies("all/z"))

        def goes_on(so_far: int = so_far) -> bool:
            return len(bodies("all/z")) > so_far

        wait_until(goes_on, "the writer goes on")
        assert run("hbuf-export", "all", f"out{number}", "--to", form) == (0, b"", "")
        in_a, *_, in_z = (buffer["messages"] for buffer in manifest(f"out{number}")["buffers"])
        wanted = [*range(1, in_a + 1), *range(1, in_z + 1)]
        assert exported_bodies(f"out{number}") == [b"%d" % n for n in wanted]
        assert 0 <= in_a - in_z <= 1
        counts.append(in_a)
    assert counts == sorted(set(counts))
    assert writer.poll() is None


@FORMS
@pytest.mark.parametrize(("call", "number"), [("write_all_at", 1), ("rename", 1), ("rename", 2), ("unlink", 1)])
def test_killed_export_is_known_to_be_half_unless_it_has_its_manifest(
    run: Run, make_buffer: MakeBuffer, call: str, number: int, form: str
) -> None:
    make_buffer("orders", [b"one", b"two"])
    command = [sys.executable, "-c", DYING, "hbuf.cli.export", call, str(number)]
    done = run.real(*command, "orders", "out", "--to", form)
    assert done == (-signal.SIGKILL, b"", "")
    whole = "_export.json" in files("out")
    assert whole == (call == "unlink")
    assert "_unfinished" in files("out")
    done = run("hbuf-export", "orders", "out", "--to", form)
    assert (done.code, done.err.splitlines()[0]) == (73, "hbuf-export: out: holds an export that was not finished")
    assert run("hbuf-import", "copy", "out").code == (0 if whole else 65)


@FORMS
def test_killed_import_run_again_stores_each_message_once(
    run: Run, make_buffer: MakeBuffer, bodies: Bodies, form: str
) -> None:
    wanted = [b"%d" % i for i in range(40)]
    make_buffer("orders", wanted)
    make_buffer("copy", segment_messages="7")
    assert run("hbuf-export", "orders", "out", "--to", form).code == 0
    arguments = ["copy", "out", "--producer", "p"]
    for number in (5, 9):
        command = [sys.executable, "-c", DYING, "hbuf.cli.import_messages", "sync_data", str(number)]
        assert run.real(*command, *arguments).code == -signal.SIGKILL
    so_far = bodies("copy")
    assert 0 < len(so_far) < 40
    assert so_far == wanted[: len(so_far)]
    assert run("hbuf-import", *arguments).code == 0
    assert bodies("copy") == wanted
    assert run("hbuf-verify", "--quiet", "copy").code == 0


def test_interrupted_export_takes_away_what_it_wrote(run: Run, make_buffer: MakeBuffer, wait_until: WaitUntil) -> None:
    make_buffer("orders", [os.urandom(50_000) for _ in range(2000)])
    process = run.start("hbuf-export", "orders", "new/out", "--to", "jsonl")
    wait_until(lambda: list(Path("new/out").rglob("_new-part*")), "the first file")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert not Path("new").exists()


def test_terminal_shows_progress_on_stderr_unless_quiet(run: Run, make_buffer: MakeBuffer, terminal: Terminal) -> None:
    make_buffer("orders", [b"x"] * 1000)
    export, import_it = ["hbuf-export", "orders", "--to", "jsonl"], ["hbuf-import", "copy"]
    for command in ([*export, "quiet", "-q"], [*import_it, "quiet", "-q"]):
        assert run.start(*command, stderr=terminal.theirs).wait(30) == 0
    os.write(terminal.theirs, b"until here nothing|")
    for command in ([*export, "out"], [*import_it, "out"]):
        assert run.start(*command, stderr=terminal.theirs).wait(30) == 0
    before, _, shown = terminal.read_all().partition("until here nothing|")
    assert before == ""
    assert "1000/1000" in shown  # messages
    assert "kB" in shown
