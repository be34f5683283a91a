"""A table of what users get wrong: the exit code, and what is said of it. Nothing is made, nothing is on stdout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.conftest import MakeBuffer, Run

USAGE = [
    ("hbuf-append new --null --json", "choose one of --null, --separator, --http and --json"),
    ("hbuf-append new --http -D x", "choose one of --null, --separator, --http and --json"),
    ("hbuf-append new -D ''", "--separator cannot be empty here"),
    ("hbuf-append new -D \\x", "'\\x' is not a separator"),
    ("hbuf-append new --fsync sometimes", "'sometimes' is not always, batch or never"),
    ("hbuf-append new --linger soon", "'soon' is not a length of time"),
    ("hbuf-append new --http -k key", "do not go with --http or --json"),
    ("hbuf-append new --json --tag t", "do not go with --http or --json"),
    ("hbuf-append new --json -H x-a:b", "do not go with --http or --json"),
    ("hbuf-append new --http FILE", "are for standard input"),
    ("hbuf-append new --atomic FILE", "are for standard input"),
    ("hbuf-append new -k ''", "a key cannot be empty"),
    ("hbuf-append new -k TAB", "the value of 'key' has a control character in it"),
    ("hbuf-append new -k BYTE", "the value of 'key' is not UTF-8"),
    ("hbuf-append new --tag BLANK", "the value of 'tag' has a blank at its start or end"),
    ("hbuf-append new -H nocolon", "'nocolon' is not a field"),
    ("hbuf-append new -H :value", "field '' cannot be kept"),
    ("hbuf-append new -H cookie:a", "field 'cookie' cannot be kept with a message"),
    ("hbuf-append new -H authorization:a", "field 'authorization' cannot be kept with a message"),
    ("hbuf-append new -H transfer-encoding:chunked", "field 'transfer-encoding' cannot be kept with a message"),
    ("hbuf-append new -H content-length:5", "field 'content-length' cannot be kept with a message"),
    ("hbuf-append new -H x-hbuf-id:1", "field 'x-hbuf-id' is reserved"),
    ("hbuf-append new -H X-Hbuf-Key:1", "field 'X-Hbuf-Key' is reserved"),
    ("hbuf-append New", "'New' cannot be a buffer's name"),
    ("hbuf-tail orders -o 0", "'0' is not a place"),
    ("hbuf-tail orders -o soon", "'soon' is not a place"),
    ("hbuf-tail orders -o @soon", "'soon' is not a time"),
    ("hbuf-tail orders -o @2026-13-01", "'2026-13-01' is not a time"),
    ("hbuf-tail orders -o consumer:", "'consumer:' is not a place"),
    ("hbuf-tail orders -n -1", "negative"),
    ("hbuf-tail orders -n ten", "--lines"),
    ("hbuf-tail orders -c -1", "negative"),
    ("hbuf-tail orders --since soon", "'soon' is not a time"),
    ("hbuf-tail orders --until soon", "'soon' is not a time"),
    ("hbuf-tail orders -g (", "'(' is not a regular expression"),
    ("hbuf-tail orders --http --json", "choose one of --raw, --http and --json"),
    ("hbuf-tail orders --raw --json", "choose one of --raw, --http and --json"),
    ("hbuf-tail orders -f -e", "--follow and --exit-at-end contradict each other"),
    ("hbuf-tail orders -D \\xzz", "'\\xzz' is not a separator"),
    ("hbuf-tail orders other", "other"),
    ("hbuf-verify orders --jobs 0", "--jobs"),
    ("hbuf-verify orders --head 1", "'1' is not SEQ:ID"),
    ("hbuf-create new --set a", "'a' is not NAME=VALUE"),
    ("hbuf-set orders a", "'a' is not NAME=VALUE"),
    ("hbuf-create new other", "other"),
    ("hbuf-close orders other", "other"),
]
PLACEHOLDERS = {"''": "", "TAB": "a\tb", "BYTE": "a\udcff", "BLANK": " a"}


@pytest.mark.parametrize(("line", "said"), USAGE)
def test_wrong_usage_is_2_and_makes_nothing(run: Run, make_buffer: MakeBuffer, line: str, said: str) -> None:
    make_buffer("orders", [b"one"])
    program, *arguments = (PLACEHOLDERS.get(word, word) for word in line.split())
    before = sorted(os.listdir())
    done = run(program, *arguments, stdin=b"one\n")
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith(f"{program}: ")
    assert said in done.err
    assert len(done.err.splitlines()) <= 2
    assert [each for each in done.err.splitlines()[1:] if not each.startswith("hint: ")] == []
    assert sorted(os.listdir()) == before


def test_consumer_that_is_not_there_is_66(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("orders", [b"one"])
    done = run("hbuf-tail", "orders", "-o", "consumer:nobody")
    assert (done.code, done.out) == (66, b"")
    assert "nobody" in done.err


def test_buffer_of_a_later_format_is_65_and_is_not_touched(run: Run, make_buffer: MakeBuffer) -> None:
    path = make_buffer("orders", [b"one"])
    segment = path / "segments/00000000000000000001.http"
    segment.write_bytes(segment.read_bytes().replace(b"x-hbuf-format: 1\r\n", b"x-hbuf-format: 2\r\n"))
    before = segment.read_bytes()
    for command in (["hbuf-append", "orders"], ["hbuf-set", "orders"], ["hbuf-verify", "-q", "orders"]):
        done = run(*command, stdin=b"two\n")
        assert done.code == 65
        assert len(done.err.splitlines()) <= 2
    assert segment.read_bytes() == before


def test_buffer_whose_only_segment_is_garbage_is_65_everywhere(run: Run, make_buffer: MakeBuffer) -> None:
    path = make_buffer("orders", [b"one"])
    segment = path / "segments/00000000000000000001.http"
    for garbage in (b"", b"\0" * 4096, b"not a record", segment.read_bytes()[:100]):
        segment.write_bytes(garbage)
        for command in (
            ["hbuf-tail", "orders"],
            ["hbuf-grep", "", "orders"],
            ["hbuf-verify", "orders"],
            ["hbuf-append", "orders"],
            ["hbuf-set", "orders"],
            ["hbuf-set", "orders", "segment_messages=9"],
        ):
            done = run(*command, stdin=b"two\n")
            assert done.code == 65, (garbage[:20], command, done)
            assert "Traceback" not in done.err
        assert segment.read_bytes() == garbage
        assert run("hbuf-ls", "orders").lines[0].endswith("\tdamaged")


def test_segment_that_is_a_directory_is_one_line(run: Run, make_buffer: MakeBuffer) -> None:
    path = make_buffer("orders", [b"one"])
    segment = path / "segments/00000000000000000001.http"
    segment.unlink()
    segment.mkdir()
    for command in (["hbuf-tail", "orders"], ["hbuf-append", "orders"], ["hbuf-verify", "orders"]):
        done = run(*command, stdin=b"two\n")
        assert done.code in (65, 74), (command, done)
        assert len(done.err.splitlines()) == 1
    assert list(segment.iterdir()) == []


def test_other_files_in_a_buffer_are_left_alone(run: Run, make_buffer: MakeBuffer) -> None:
    path = make_buffer("orders", [b"one"], segment_messages="1")
    strangers = [path / "notes.txt", path / "segments/README", path / "segments/1.http", path / "segments/.new-thing"]
    for stranger in strangers:
        stranger.write_bytes(b"mine")
    assert run("hbuf-append", "orders", stdin=b"two\nthree\n") == (0, b"", "")
    assert run("hbuf-reindex", "orders").code == 0
    assert run("hbuf-verify", "-q", "orders").code == 0
    assert run("hbuf-tail", "orders").out == b"one\ntwo\nthree\n"
    assert [Path(stranger).read_bytes() for stranger in strangers] == [b"mine"] * 4
