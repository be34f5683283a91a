"""What all commands have in common: help, version, errors of one line, silence, and what closed pipes do."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hbuf.cli.ls

if TYPE_CHECKING:
    from cli.conftest import Bodies, MakeBuffer, Run

ROOT = Path(__file__).parents[2]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
PROGRAMS = sorted(name for name in SCRIPTS if name != "hbuf")
TAKE_A_BUFFER = [name for name in PROGRAMS if name not in ("hbuf-key", "hbuf-pipeline", "hbuf-user", "hbufd")]
# What each needs besides its buffer.
BEFORE = {"hbuf-grep": ["pattern"], "hbuf-erase": ["--key", "user-17", "--reason", "asked for"]}
AFTER = {"hbuf-export": ["exported", "--to", "jsonl"], "hbuf-import": [os.devnull]}
TAKES_TIMEOUT = [
    "hbuf-append",
    "hbuf-close",
    "hbuf-compress",
    "hbuf-erase",
    "hbuf-import",
    "hbuf-pause",
    "hbuf-reindex",
    "hbuf-retire",
    "hbuf-set",
]
# These make what is missing, the others need it.
MAKERS = ["hbuf-append", "hbuf-create", "hbuf-import"]
READERS = [name for name in TAKE_A_BUFFER if name not in MAKERS]
SAYS_SOMETHING = [
    ["hbuf-tail", "orders"],
    ["hbuf-tail", "--json", "orders"],
    ["hbuf-tail", "--http", "orders"],
    ["hbuf-grep", "", "orders"],
    ["hbuf-grep", "-c", "", "orders"],
    ["hbuf-grep", "-l", "", "orders"],
    ["hbuf-grep", "--json", "", "orders"],
    ["hbuf-ls", "orders"],
    ["hbuf-ls", "--json", "orders"],
    ["hbuf-verify", "orders"],
    ["hbuf-verify", "--json", "orders"],
    ["hbuf-set", "orders"],
    ["hbuf-append", "-v", "orders"],
    ["hbuf-erase", "--list", "orders"],
    ["hbuf-erase", "--dry-run", "orders", "1-2"],
    ["hbuf-erase", "--dry-run", "--json", "orders", "1-2"],
    ["hbuf-head", "signed"],
    ["hbuf-retire", "--dry-run", "orders"],
    ["hbuf-retire", "--json", "orders"],
    ["hbuf-key", "list"],
    ["hbuf-key", "list", "--json"],
    ["hbuf-key", "show", "audit"],
    ["hbuf-key", "export", "audit"],
    ["hbuf-key", "new", "--help"],
    ["hbuf-user", "list", "--root", "srv"],
    ["hbuf-user", "list", "--json", "--root", "srv"],
    ["hbuf-user", "token", "alice", "--root", "srv"],
    ["hbuf-tail", "--help"],
    ["hbuf-tail", "--version"],
    ["hbuf", "--help"],
]
SAYS_NOTHING = [
    ["hbuf-create", "new"],
    ["hbuf-append", "orders"],
    ["hbuf-set", "orders", "segment_messages=9"],
    ["hbuf-pause", "orders"],
    ["hbuf-pause", "--resume", "orders"],
    ["hbuf-pause", "orders", "--", "true"],
    ["hbuf-compress", "orders"],
    ["hbuf-erase", "orders", "1", "--reason", "asked"],
    ["hbuf-export", "orders", "exported", "--to", "jsonl"],
    ["hbuf-export", "orders", "exported", "--to", "parquet", "--by", "buffer"],
    ["hbuf-import", "orders", os.devnull],
    ["hbuf-reindex", "orders"],
    ["hbuf-retire", "orders"],
    ["hbuf-verify", "--quiet", "orders"],
    ["hbuf-close", "orders"],
    ["hbuf-close", "--reopen", "orders"],
    ["hbuf-key", "new", "other", "--kind", "sign"],
    ["hbuf-key", "import", "other", "friend.pub"],
    ["hbuf-user", "add", "bob", "reader:orders", "--root", "srv"],
    ["hbuf-user", "grant", "alice", "admin", "--root", "srv"],
    ["hbuf-user", "revoke", "alice", "--root", "srv"],
    ["hbuf-user", "certificate", "alice", "--root", "srv"],
]


@pytest.fixture
def orders(make_buffer: MakeBuffer) -> Path:
    return make_buffer("orders", [b"one", b"two", b"three"], segment_messages="2")


@pytest.fixture
def supplies(run: Run, orders: Path) -> None:
    """What the commands below want: the buffer orders, keys, a public key, a buffer that is signed, and a user."""
    for command in (["new", "audit", "--kind", "sign"], ["new", "friend", "--kind", "encrypt"]):
        assert run("hbuf-key", *command) == (0, b"", "")
    Path("friend.pub").write_bytes(run("hbuf-key", "export", "friend").out)
    assert run("hbuf-append", "--sign", "audit", "signed", stdin=b"one\n") == (0, b"", "")
    Path("srv").mkdir()
    assert run("hbuf-user", "add", "alice", "reader:orders", "--root", "srv") == (0, b"", "")


def command_on(program: str, path: str) -> list[str]:
    return [program, *BEFORE.get(program, []), path, *AFTER.get(program, [])]


def test_the_programs_are_those_that_are_tested_here() -> None:
    tested = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert {name.removeprefix("hbuf-") for name in PROGRAMS} <= tested


@pytest.mark.parametrize("columns", ["80", "200"])
@pytest.mark.parametrize("program", [*PROGRAMS, "hbuf", "hbuf demo"])
def test_help_fits_a_screen_and_has_an_example(
    run: Run, monkeypatch: pytest.MonkeyPatch, program: str, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    done = run(*program.split(), "--help")
    assert (done.code, done.err) == (0, "")
    assert done.lines[0].startswith(f"Usage: {program.replace(' ', '-')} ")
    assert len(done.lines) <= 40
    assert max(map(len, done.lines)) <= min(100, int(columns))
    examples = [line for line in done.lines if line.strip().startswith("Example: ")]
    assert len(examples) == 1
    assert program in examples[0] or program == "hbuf"


@pytest.mark.parametrize("program", [*PROGRAMS, "hbuf", "hbuf demo"])
def test_version(run: Run, program: str) -> None:
    done = run(*program.split(), "--version")
    assert (done.code, done.err) == (0, "")
    assert done.out.decode() == f"hbuf {tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['version']}\n"


@pytest.mark.parametrize("program", [*PROGRAMS, "hbuf demo"])
def test_unknown_option_is_2_with_one_line_and_a_hint(run: Run, program: str) -> None:
    done = run(*program.split(), "--no-such-option", "orders")
    name = program.replace(" ", "-")
    assert (done.code, done.out) == (2, b"")
    line, hint = done.err.splitlines()
    assert line.startswith(f"{name}: ")
    assert "--no-such-option" in line
    assert hint == f"hint: {name} --help"
    assert not Path("orders").exists()


@pytest.mark.parametrize("program", [name for name in PROGRAMS if name not in ("hbuf-ls", "hbufd")])
def test_missing_argument_is_2_with_one_line_and_a_hint(run: Run, program: str) -> None:
    done = run(program)
    assert (done.code, done.out) == (2, b"")
    assert [line.partition(":")[0] for line in done.err.splitlines()] == [program, "hint"]


@pytest.mark.parametrize("program", READERS)
def test_missing_buffer_is_66(run: Run, program: str) -> None:
    done = run(*command_on(program, "missing"))
    assert done == (66, b"", f"{program}: missing: there is no such buffer\n")
    assert not Path("missing").exists()


@pytest.mark.parametrize("program", TAKE_A_BUFFER)
def test_file_is_no_buffer_and_stays_as_it_is(run: Run, program: str) -> None:
    Path("file").write_bytes(b"content")
    done = run(*command_on(program, "file"), stdin=b"one\n")
    assert (done.code, done.out) == (73 if program in MAKERS else 66, b"")
    assert done.err.startswith(f"{program}: file: ")
    assert "Traceback" not in done.err
    assert Path("file").read_bytes() == b"content"


@pytest.mark.parametrize("program", [name for name in TAKE_A_BUFFER if name != "hbuf-ls"])
def test_directory_that_is_no_buffer_stays_as_it_is(run: Run, program: str) -> None:
    Path("photos").mkdir()
    Path("photos/cat.jpg").write_bytes(b"cat")
    done = run(*command_on(program, "photos"), stdin=b"one\n")
    assert (done.code, done.out) == (73 if program in MAKERS else 66, b"")
    assert done.err.startswith(f"{program}: photos: ")
    assert "is not a buffer" in done.err
    assert os.listdir("photos") == ["cat.jpg"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("program", TAKE_A_BUFFER)
def test_buffer_without_permission_is_77_with_one_line(run: Run, orders: Path, program: str) -> None:
    (orders / "segments").chmod(0)
    try:
        done = run(*command_on(program, "orders"), stdin=b"one\n")
    finally:
        (orders / "segments").chmod(0o755)
    assert (done.code, done.out) == (77, b"")
    assert done.err.startswith(f"{program}: ")
    assert "Permission denied" in done.err


@pytest.mark.parametrize("program", TAKES_TIMEOUT)
def test_time_that_is_none_is_2(run: Run, orders: Path, program: str) -> None:
    arguments = {**AFTER, "hbuf-set": ["segment_messages=9"], "hbuf-erase": ["1", "--reason", "asked"]}.get(program, [])
    done = run(program, "orders", *arguments, "--timeout", "soon")
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith(f"{program}: ")
    assert "'soon' is not a length of time\nhint: " in done.err


@pytest.mark.parametrize("name", ["no\nsuch", "\x1b[31mred", "caf\udce9"], ids=["newline", "escape", "no UTF-8"])
@pytest.mark.parametrize("program", ["hbuf-ls", "hbuf-tail"])
def test_error_is_one_line_whatever_the_name_is(run: Run, program: str, name: str) -> None:
    done = run(*command_on(program, name))
    assert (done.code, done.out) == (66, b"")
    assert len(done.err.splitlines()) == 1
    # What a name holds must not steer a terminal.
    assert "\x1b" not in done.err


@pytest.mark.parametrize("program", TAKE_A_BUFFER)
def test_empty_name_is_no_buffer_not_even_where_one_is(
    run: Run, orders: Path, bodies: Bodies, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """As from a script whose variable is not set."""
    monkeypatch.chdir(orders)
    done = run(*command_on(program, ""), stdin=b"one\n")
    assert done.code in (2, 66)
    assert done.err.startswith(f"{program}: ")
    assert bodies(orders) == [b"one", b"two", b"three"]
    assert not (orders / "closed").exists()


@pytest.mark.parametrize("program", TAKE_A_BUFFER)
def test_url_is_not_taken_for_a_directory(run: Run, tmp_path: Path, program: str) -> None:
    done = run(*command_on(program, "https://localhost:1/b/orders"), stdin=b"one\n")
    assert done.code != 0
    assert done.err.startswith(f"{program}: ")
    assert os.listdir(tmp_path) == ["script-cwd"]


@pytest.mark.usefixtures("supplies")
@pytest.mark.parametrize("command", SAYS_NOTHING, ids=" ".join)
def test_success_is_silent(run: Run, command: list[str]) -> None:
    go = run.real if "--" in command else run
    assert go(*command) == (0, b"", "")


def with_closed_stdout(command: list[str]) -> tuple[int, bytes]:
    """Runs it with a pipe for stdout that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            command, input=b"one\n" * 3, stdout=writing, stderr=subprocess.PIPE, timeout=30, check=False
        )
    finally:
        os.close(writing)
    return done.returncode, done.stderr


@pytest.mark.usefixtures("supplies")
@pytest.mark.parametrize("command", SAYS_SOMETHING, ids=" ".join)
def test_pipe_that_nobody_reads_is_quiet_success(command: list[str]) -> None:
    assert with_closed_stdout(command) == (0, b"")


@pytest.mark.parametrize(
    "command",
    [
        "hbuf-tail -o first big",
        "hbuf-tail -o first --http big",
        "hbuf-tail -o first --json big",
        "hbuf-grep x big",
        "hbuf-grep --json x big",
        "hbuf-append -v other <lines",
        "hbuf-ls --json big big big",
        "hbuf-verify big big big",
    ],
)
def test_reader_that_goes_away_early_is_quiet_success(run: Run, make_buffer: MakeBuffer, command: str) -> None:
    """More is written than a pipe holds, so most of it is written when nobody reads any more."""
    make_buffer("big", [b"x" * 100] * 5000)
    Path("lines").write_bytes(b"line\n" * 5000)
    done = run.shell(f"{command} | head -1 >first; echo ${{PIPESTATUS[0]}}")
    assert (done.out, done.err) == (b"0\n", "")
    assert len(Path("first").read_bytes().splitlines()) == 1


def test_append_stores_all_although_nobody_reads_its_receipts(run: Run, orders: Path, bodies: Bodies) -> None:
    assert with_closed_stdout(["hbuf-append", "-v", "orders", "--fsync", "always"]) == (0, b"")
    assert bodies("orders")[3:] == [b"one"] * 3


@pytest.mark.usefixtures("supplies")
@pytest.mark.parametrize("command", [each for each in SAYS_SOMETHING if each[0] != "hbuf-append"], ids=" ".join)
def test_full_disk_behind_stdout_is_74_with_one_line(run: Run, command: list[str]) -> None:
    done = run.shell(" ".join(part or "''" for part in command) + " >/dev/full")
    assert (done.code, done.out) == (74, b"")
    assert done.err.startswith(f"{command[0]}: ")
    assert len(done.err.splitlines()) == 1


@pytest.mark.usefixtures("supplies")
@pytest.mark.parametrize("command", [each for each in SAYS_NOTHING if "--" not in each], ids=" ".join)
def test_closed_stdout_does_not_matter_to_who_says_nothing(run: Run, command: list[str]) -> None:
    assert run.shell(f"{' '.join(command)} </dev/null >&-") == (0, b"", "")


@pytest.mark.parametrize("where", ["&-", "/dev/full"])
def test_stderr_that_takes_nothing_does_not_change_the_exit_code(run: Run, where: str) -> None:
    assert run.shell(f"hbuf-tail missing 2>{where}").code == 66
    assert run.shell(f"hbuf-tail --wrong missing 2>{where}").code == 2


@pytest.mark.parametrize("argument", ["", "-"])
def test_closed_stdin_is_an_end_or_an_error_and_stores_nothing(
    run: Run, make_buffer: MakeBuffer, bodies: Bodies, argument: str
) -> None:
    make_buffer("orders")
    done = run.shell(f"timeout -s KILL 20 hbuf-append orders {argument} <&-")
    assert done.code in (0, 2, 66, 74)
    assert "Traceback" not in done.err
    assert [body for body in bodies("orders") if body] == []


@pytest.mark.parametrize("debug", ["", "1"])
def test_fault_of_hbuf_itself_is_one_line_unless_debugging(
    run: Run, orders: Path, monkeypatch: pytest.MonkeyPatch, debug: str
) -> None:
    def fail(place: object, notice: object) -> object:
        raise RuntimeError("this cannot be")

    monkeypatch.setattr(hbuf.cli.ls, "find_listings", fail)
    monkeypatch.setenv("HBUF_DEBUG", debug)
    done = run("hbuf-ls", "orders")
    if debug:
        assert "Traceback (most recent call last)" in done.err
    else:
        assert done == (70, b"", "hbuf-ls: RuntimeError: this cannot be\n")
