"""Every program has a man page that renders, has its sections, and tells the options and exit codes that there are."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main

from hbuf import errors

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "man").glob("*.[1578]"))
PROGRAMS = sorted(path.name for path in (ROOT / "bin").glob("hbuf*"))
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]
# `hbuf` hands its arguments to other programs: it has no options to compare.
COMMANDS = [name for name in PROGRAMS if name != "hbuf"]
DAEMONS = ["hbufd"]

Spellings = frozenset[str]  # of one option: {"-k", "--key"}


def page_name(program: str) -> str:
    return f"{program}.{8 if program in DAEMONS else 1}"


def page_of(name: str) -> str:
    return (ROOT / "man" / name).read_text()


def tagged(text: str, section: str) -> dict[str, str]:
    """What stands behind each `.TP` of a section: its tag line, and the text up to the next one."""
    found = re.search(rf"^\.SH {section}\n(.*?)(?=^\.SH |\Z)", text, re.MULTILINE | re.DOTALL)
    entries = re.split(r"^\.TP\n", found[1] if found else "", flags=re.MULTILINE)[1:]
    return dict(entry.replace(r"\-", "-").split("\n", 1) for entry in entries)


def options_of_page(text: str) -> dict[Spellings, str]:
    """Each option by its spellings, with what its tag line names behind them and its text."""
    options = {}
    for line, about in tagged(text, "OPTIONS").items():
        words = re.sub(r'"|,|\\f[A-Z]|^\.[A-Z]+ ', " ", line).split()
        spellings = frozenset(word for word in words if re.fullmatch(r"-[0-9a-zA-Z]|--[a-z][a-z-]*", word))
        options[spellings] = " ".join(words[len(spellings) :]) + "\n" + about
    return options


def command_of(program: str) -> Any:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module = importlib.import_module(scripts[program].partition(":")[0])
    return typer.main.get_command(module.app)


def subcommands_of(command: Any) -> dict[str, Any]:
    """By name; of a program that has none, itself without a name."""
    return dict(getattr(command, "commands", None) or {"": command})


def options_of(command: Any) -> dict[Spellings, Any]:
    options = {frozenset([*param.opts, *param.secondary_opts]): param for param in command.params}
    return {names: param for names, param in options.items() if all(name.startswith("-") for name in names)}


def options_of_command(program: str) -> dict[Spellings, Any]:
    """Its own, and those of its subcommands."""
    command = command_of(program)
    options = options_of(command)
    for subcommand in subcommands_of(command).values():
        for spellings, param in options_of(subcommand).items():
            # A page tells of an option once, so it is the same wherever it is.
            other = options.setdefault(spellings, param)
            assert (other.metavar, other.is_flag, other.default) == (param.metavar, param.is_flag, param.default)
    return options


def exit_codes(text: str) -> list[int]:
    tags = tagged(text, "EXIT STATUS")
    return [int(code) for tag in tags for code in re.findall(r"\d+", tag)]


def rendering_warnings(page: Path) -> str:
    if shutil.which("groff"):
        command = ["groff", "-man", "-ww", "-Tutf8", "-Kutf8", "-z", str(page)]
    elif shutil.which("man"):
        command = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(page)]
    else:
        pytest.skip("neither groff nor man is installed")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr if done.stderr or done.returncode == 0 else f"exit status {done.returncode}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_has_a_page(program: str) -> None:
    assert (ROOT / "man" / page_name(program)).is_file()


def test_every_page_of_sections_1_and_8_is_that_of_a_program() -> None:
    assert sorted(page.stem for page in PAGES if page.suffix in (".1", ".8")) == PROGRAMS


def test_overview_and_format_have_pages() -> None:
    assert {"hbuf.7", "hbuf-segment.5"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_renders_without_warnings(page: Path) -> None:
    assert rendering_warnings(page) == ""


def test_broken_page_is_reported(tmp_path: Path) -> None:
    page = tmp_path / "broken.1"
    page.write_text(".TH BROKEN 1\n.SH NAME\nbroken \\- has a macro that does not exist\n.NOSUCH macro\n")
    assert rendering_warnings(page)


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_mandoc_finds_no_fault_with_a_page(page: Path) -> None:
    command = ["mandoc", "-Tlint", "-Wwarning", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_has_its_sections_in_order(page: Path) -> None:
    found = re.findall(r"^\.SH (.*)$", page.read_text(), re.MULTILINE)
    assert [section for section in found if section in SECTIONS] == SECTIONS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_refers_to_pages_that_exist(page: Path) -> None:
    referred = re.findall(r"\b(hbufd?(?:-[a-z]+)?) \(([1578])\)", page.read_text().replace(r"\-", "-"))
    assert referred
    assert [
        f"{name}.{section}" for name, section in referred if not (ROOT / "man" / f"{name}.{section}").exists()
    ] == []


@pytest.mark.parametrize("program", COMMANDS)
def test_page_names_exactly_the_options_of_its_program_short_and_long(program: str) -> None:
    documented = set(options_of_page(page_of(page_name(program))))
    helping = frozenset(["--help"])
    assert helping in documented
    # --help is implicit: not every version lists it among a command's parameters.
    assert documented - {helping} == set(options_of_command(program)) - {helping}


@pytest.mark.parametrize("program", COMMANDS)
def test_page_names_the_value_and_the_default_of_each_option(program: str) -> None:
    documented = options_of_page(page_of(page_name(program)))
    for spellings, param in options_of_command(program).items():
        text = documented[spellings]
        value = "" if param.is_flag else str(param.metavar)
        # 'NAME: VALUE' is written as curl's own page does.
        assert text.partition("\n")[0].lower() == value.lower(), sorted(spellings)
        if not param.is_flag and param.default not in (None, "") and not callable(param.default):
            assert f"{param.default}" in text, f"{sorted(spellings)}: the default is not told"


def test_options_are_read_from_tagged_lines_only() -> None:
    text = (
        ".SH DESCRIPTION\n.TP\n.B \\-\\-elsewhere\n.SH OPTIONS\n.TP\n"
        '.BR \\-k ", " \\-\\-key " \\fIKEY\\fR"\nSee \\-\\-other.\n.TP\n.BR \\-\\-no\\-create\nIt.\n.SH EXIT STATUS\n'
    )
    assert options_of_page(text) == {
        frozenset({"-k", "--key"}): "KEY\nSee --other.\n",
        frozenset({"--no-create"}): "\nIt.\n",
    }


def synopses(text: str) -> list[str]:
    """The lines of a page's SYNOPSIS, as a reader sees them."""
    section = re.search(r"^\.SH SYNOPSIS\n(.*?)(?=^\.SH )", text, re.MULTILINE | re.DOTALL)
    plain = re.sub(r"\\f[A-Z]|^\.B ", "", section[1].replace(r"\-", "-") if section else "", flags=re.MULTILINE)
    return [" ".join(part.split()) for part in plain.split(".br\n")]


@pytest.mark.parametrize("program", COMMANDS)
def test_synopsis_names_the_arguments_of_its_program(program: str) -> None:
    found = synopses(page_of(page_name(program)))
    commands = subcommands_of(command_of(program))
    for name, command in commands.items():
        arguments = [str(param.metavar) for param in command.params if not param.opts[0].startswith("-")]
        assert " ".join([*program.split(), *name.split(), "[OPTION]...", *arguments]) in found
    if "" not in commands:
        assert len(found) == len(commands), "the page has a subcommand that is not there"


@pytest.mark.parametrize("program", COMMANDS)
def test_page_says_which_subcommands_take_an_option(program: str) -> None:
    commands = subcommands_of(command_of(program))
    documented = options_of_page(page_of(page_name(program)))
    everywhere = {*options_of(command_of(program)), frozenset(["--help"])}
    for spellings, text in documented.items():
        said = re.match(r"With ([a-z]+(?:(?:, | and )[a-z]+)*): ", text.partition("\n")[2])
        takers = [name for name, command in commands.items() if spellings in options_of(command)]
        expected = [] if spellings in everywhere else takers
        assert (re.split(", | and ", said[1]) if said else []) == expected, sorted(spellings)


@pytest.mark.parametrize("program", COMMANDS)
def test_page_describes_every_subcommand(program: str) -> None:
    names = {name for name in subcommands_of(command_of(program)) if name}
    tags = {re.sub(r"^\.BR? ", "", tag).split()[0] for tag in tagged(page_of(page_name(program)), "DESCRIPTION")}
    assert names <= tags


def test_synopses_are_read_line_by_line() -> None:
    text = (
        ".SH SYNOPSIS\n.B hbuf\\-a new\n[\\fIOPTION\\fR]... \\fINAME\\fR\n"
        ".br\n.B hbuf\\-a list\n[\\fIOPTION\\fR]...\n.SH DESCRIPTION\n"
    )
    assert synopses(text) == ["hbuf-a new [OPTION]... NAME", "hbuf-a list [OPTION]..."]


def test_overview_tells_every_exit_code_that_an_error_has() -> None:
    def codes(kind: type[errors.HbufError]) -> set[int]:
        return {kind.exit_code}.union(*(codes(each) for each in kind.__subclasses__()))

    documented = exit_codes(page_of("hbuf.7"))
    # 0 done, 1 nothing matched, 69 the launcher, 70 a mistake in hbuf, 130 interrupted.
    assert documented == sorted({0, 1, 69, 70, 130} | codes(errors.HbufError))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_exit_codes_of_a_page_are_in_order_and_those_of_the_overview(page: Path) -> None:
    codes = exit_codes(page.read_text())
    own = {126, 127} if page.name == "hbuf-pause.1" else set()
    assert codes == sorted(set(codes))
    assert set(codes) - own <= set(exit_codes(page_of("hbuf.7")))
    if page.suffix in (".1", ".8"):
        assert {0, 2, 130} <= set(codes)


def test_verbs_are_the_same_in_every_list() -> None:
    from hbuf.cli.dispatch import VERBS

    verbs = {name.removeprefix("hbuf-") for name in COMMANDS if name not in DAEMONS}
    page = page_of("hbuf.1").replace(r"\-", "-")
    listed = re.search(r"The verbs are\n(.*?)\.\n", page, re.DOTALL)
    assert listed is not None
    assert set(re.findall(r"[a-z]+", listed[1])) - {"and"} == verbs
    assert set(re.findall(r"^\.BR hbuf-([a-z]+) \(1\)$", page_of("hbuf.7").replace(r"\-", "-"), re.MULTILINE)) == verbs
    readme = (ROOT / "README.md").read_text()
    assert set(re.findall(r"^\| `hbuf-([a-z]+)` \|", readme, re.MULTILINE)) == verbs
    assert set(VERBS) == verbs | {"demo"}


def test_page_of_the_daemon_tells_every_limit_and_its_default() -> None:
    from dataclasses import fields

    from hbuf.daemon.config import Limits
    from hbuf.daemon.config_file import encode_limit

    told = {tag.removeprefix(".B "): about for tag, about in tagged(page_of("hbufd.8"), "SETTINGS").items()}
    limits = {f"limits.{each.name}": encode_limit(each.name, getattr(Limits(), each.name)) for each in fields(Limits)}
    assert {name for name in told if name.startswith("limits.")} == set(limits)
    for name, default in limits.items():
        found = re.search(r"^The default is (\S+?)[.,]", told[name], re.MULTILINE)
        assert found is not None, name
        assert found[1] == default.strip('"'), name
