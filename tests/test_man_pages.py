"""Every program has a man page that renders, has its sections, and names exactly the options that there are."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import typer.main

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "man").glob("*.[157]"))
PROGRAMS = sorted(path.name for path in (ROOT / "bin").glob("hbuf*"))
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]
# `hbuf` hands its arguments to other programs: it has no options to compare.
COMMANDS = [name for name in PROGRAMS if name != "hbuf"]


def options_of_page(text: str) -> set[str]:
    """The `--long` names on the lines that follow a `.TP` of the section OPTIONS."""
    section = re.search(r"^\.SH OPTIONS\n(.*?)(?=^\.SH )", text, re.MULTILINE | re.DOTALL)
    tagged = re.findall(r"^\.TP\n(.*)$", section[1] if section else "", re.MULTILINE)
    return {name for line in tagged for name in re.findall(r"--[a-z][a-z-]*", line.replace(r"\-", "-"))}


def options_of_command(program: str) -> set[str]:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module = importlib.import_module(scripts[program].partition(":")[0])
    command = typer.main.get_command(module.app)
    names = (name for param in command.params for name in [*param.opts, *param.secondary_opts])
    return {name for name in names if name.startswith("--")}


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
    assert (ROOT / "man" / f"{program}.1").is_file()


def test_overview_and_format_have_pages() -> None:
    assert {"hbuf.7", "hbuf-segment.5"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_renders_without_warnings(page: Path) -> None:
    assert rendering_warnings(page) == ""


def test_broken_page_is_reported(tmp_path: Path) -> None:
    page = tmp_path / "broken.1"
    page.write_text(".TH BROKEN 1\n.SH NAME\nbroken \\- has a macro that does not exist\n.NOSUCH macro\n")
    assert rendering_warnings(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_has_its_sections_in_order(page: Path) -> None:
    found = re.findall(r"^\.SH (.*)$", page.read_text(), re.MULTILINE)
    assert [section for section in found if section in SECTIONS] == SECTIONS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_refers_to_pages_that_exist(page: Path) -> None:
    referred = re.findall(r"\b(hbuf(?:-[a-z]+)?) \(([157])\)", page.read_text().replace(r"\-", "-"))
    assert referred
    assert [
        f"{name}.{section}" for name, section in referred if not (ROOT / "man" / f"{name}.{section}").exists()
    ] == []


@pytest.mark.parametrize("program", COMMANDS)
def test_page_names_exactly_the_options_of_its_program(program: str) -> None:
    documented = options_of_page((ROOT / "man" / f"{program}.1").read_text())
    assert "--help" in documented
    # --help is implicit: not every version lists it among a command's parameters.
    assert documented - {"--help"} == options_of_command(program) - {"--help"}


def test_options_are_read_from_tagged_lines_only() -> None:
    text = (
        ".SH DESCRIPTION\n.TP\n.B \\-\\-elsewhere\n.SH OPTIONS\n.TP\n"
        '.BR \\-k ", " \\-\\-key " \\fIKEY\\fR"\nSee \\-\\-other.\n.TP\n.BR \\-\\-no\\-create\n.SH EXIT STATUS\n'
    )
    assert options_of_page(text) == {"--key", "--no-create"}
