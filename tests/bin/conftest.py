"""Checkouts to run the launchers of."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from .stub_checkout import BASE_PYTHON, STUB_PIP, Checkout, make_tools, write_script


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """One that needs no packages."""
    make_tools(tmp_path / "no-python", python=None)
    return Checkout(tmp_path / "a checkout", make_tools(tmp_path / "tools", BASE_PYTHON))


@pytest.fixture(scope="session")
def python_without_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This Python as Debian has it without python3-pip and python3-venv."""
    prefix = tmp_path_factory.mktemp("python")
    stdlib = Path(sysconfig.get_path("stdlib"))
    copy = prefix / "lib" / stdlib.name
    copy.mkdir(parents=True)
    for entry in stdlib.iterdir():
        if entry.name not in ("ensurepip", "site-packages", "dist-packages"):
            (copy / entry.name).symlink_to(entry)
    python = prefix / "bin" / Path(BASE_PYTHON).name
    python.parent.mkdir()
    shutil.copy(BASE_PYTHON, python)
    found = subprocess.run(
        [python, "-E", "-c", "from importlib.util import find_spec as f; print(f('pip'), f('ensurepip'), f('venv'))"],
        capture_output=True,
        text=True,
        check=False,
    )
    if not found.stdout.startswith("None None ModuleSpec"):
        pytest.skip("this Python cannot be copied without its pip")
    return python


@pytest.fixture
def needy(tmp_path: Path, python_without_pip: Path) -> Checkout:
    """One that needs a package, on a machine whose only pip is a stub."""
    make_tools(tmp_path / "no-python", python=None)
    checkout = Checkout(tmp_path / "a checkout", make_tools(tmp_path / "tools", python_without_pip))
    checkout.require("something")
    write_script(tmp_path / "tools/pip3", STUB_PIP)
    return checkout
