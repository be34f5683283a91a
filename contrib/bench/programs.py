"""hbuf's programs, as the launchers in bin/ start them once the environment is ready."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

# What every command has to do before anything else.
IMPORT_TYPER = "python -c 'import typer'"
CHECKOUT = Path(__file__).resolve().parents[2]
YARDSTICKS = Path(__file__).resolve().parent / "yardsticks"


def program_names() -> list[str]:
    return sorted(_scripts())


def hbuf_program(name: str, *arguments: str | Path) -> list[str | Path]:
    module = _scripts()[name].partition(":")[0]
    code = f"import sys\nsys.argv[0] = '{name}'\nfrom {module} import main\nmain()"
    return [sys.executable, "-P", "-c", code, *arguments]


def python_code(code: str) -> list[str | Path]:
    return [sys.executable, "-P", "-c", code]


def yardstick(name: str, *arguments: str | Path) -> list[str | Path]:
    return [sys.executable, "-P", YARDSTICKS / f"{name}.py", *arguments]


def _scripts() -> dict[str, str]:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    scripts: dict[str, str] = project["scripts"]
    return scripts
