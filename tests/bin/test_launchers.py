"""The launchers in bin/, run as a user runs them."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .stub_checkout import BASE_PYTHON, REPOSITORY, Checkout, make_tools, write_script


def test_the_first_use_sets_up_and_the_next_says_nothing(checkout: Checkout) -> None:
    first, second = checkout.run(), checkout.run()
    assert first.returncode == second.returncode == 0
    assert first.stderr == f"hbuf: first use: making {checkout.root}/.venv\n"
    assert second.stderr == ""
    assert checkout.can_run_without_set_up()


def test_a_set_up_leaves_the_pipe_alone(needy: Checkout) -> None:
    result = needy.run(input="a\n")
    assert json.loads(result.stdout) == {"argv": ["hbuf-append"], "stdin": "a\n"}
    assert "Collecting" not in result.stderr
    assert "fetching about" in result.stderr


def test_of_two_first_runs_in_one_pipe_one_sets_up_and_one_waits(needy: Checkout) -> None:
    needy.env["PIP_STUB"] = "sleep 0.5"
    result = needy.run("sh", "-c", '"$0/hbuf-tail" | "$0/hbuf-append"', needy.root / "bin")
    assert json.loads(json.loads(result.stdout)["stdin"])["argv"] == ["hbuf-tail"]
    assert needy.pip_log.read_text().count("started") == 1
    assert result.stderr.count("first use") == 1
    assert result.stderr.count("waiting for another run") == 1


def test_a_set_up_killed_half_way_is_done_again(needy: Checkout) -> None:
    needy.env["PIP_STUB"] = "sleep 60"
    process = needy.start()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert (needy.root / ".venv/hbuf-lock").exists()
    assert not needy.can_run_without_set_up()

    needy.env["PIP_STUB"] = ""
    assert needy.is_set_up_again()
    assert needy.can_run_without_set_up()


def test_a_pip_left_behind_by_a_killed_set_up_is_waited_for(needy: Checkout) -> None:
    needy.env["PIP_STUB"] = "sleep 0.5"
    process = needy.start()
    set_up = int(needy.pip_log.read_text().split()[-1])
    os.kill(set_up, signal.SIGKILL)
    assert process.wait() == 128 + signal.SIGKILL

    assert needy.is_set_up_again()
    assert [line.split()[0] for line in needy.pip_log.read_text().splitlines()] == ["started", "ended"] * 2


def test_a_changed_requirement_is_set_up_again(needy: Checkout) -> None:
    needy.run()
    needy.require("something", "something-else")
    assert needy.is_set_up_again()
    assert needy.pip_log.read_text().splitlines()[-1].endswith("install something something-else")
    assert not needy.is_set_up_again()


def test_another_change_of_pyproject_fetches_nothing(needy: Checkout) -> None:
    needy.run()
    pyproject = needy.root / "pyproject.toml"
    pyproject.write_text(pyproject.read_text().replace("1.2.3", "1.2.4") + "[tool.ruff]\n")
    assert not needy.can_run_without_set_up()

    assert not needy.is_set_up_again()
    assert needy.can_run_without_set_up()
    assert [path.name for path in needy.root.glob(".venv/lib/*/site-packages/hbuf-*")] == ["hbuf-1.2.4.dist-info"]


def test_a_touched_pyproject_is_not_a_changed_one(checkout: Checkout) -> None:
    checkout.run()
    os.utime(checkout.root / "pyproject.toml", (0, 0))
    assert checkout.can_run_without_set_up()


def test_a_moved_checkout_is_set_up_again(checkout: Checkout) -> None:
    checkout.run()
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))
    assert checkout.is_set_up_again()
    assert not checkout.is_set_up_again()


def test_a_python_that_has_gone_is_replaced(checkout: Checkout) -> None:
    checkout.run()
    python = checkout.root / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/no/longer/python3.11")
    assert checkout.is_set_up_again()


@pytest.fixture
def everyones_directory() -> Iterator[Path]:
    """One that any user can reach, which pytest's are not."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def test_a_read_only_checkout_is_set_up_in_the_users_cache(everyones_directory: Path) -> None:
    other_user: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    for python in (BASE_PYTHON, "/usr/bin/python3"):
        try:
            subprocess.run([python, "-c", "import tomllib, venv"], check=True, **other_user)
            break
        except (OSError, subprocess.CalledProcessError):
            continue
    else:
        pytest.skip("the other user can run no Python")
    checkout = Checkout(everyones_directory / "a checkout", make_tools(everyones_directory / "tools", python))
    cache = everyones_directory / "cache"
    cache.mkdir()
    if other_user:
        os.chown(cache, 65534, 65534)
    checkout.env["XDG_CACHE_HOME"] = str(cache)
    checkout.root.chmod(0o555)
    try:
        first, second = checkout.run(**other_user), checkout.run(**other_user)
        assert first.stderr == f"hbuf: first use: making {cache}/hbuf{checkout.root}/.venv\n"
        assert (first.returncode, second.returncode, second.stderr) == (0, 0, "")
        assert not (checkout.root / ".venv").exists()

        test = checkout.run(checkout.root / "bin/test", **other_user)
        assert (test.returncode, len(test.stderr.splitlines())) == (69, 1)
    finally:
        checkout.root.chmod(0o755)


def test_a_place_that_cannot_be_written_is_one_line(checkout: Checkout) -> None:
    (checkout.root / ".venv").write_text("not a directory")
    result = checkout.run()
    assert (result.returncode, len(result.stderr.splitlines())) == (69, 1)


def test_an_environment_made_by_others_is_left_alone(checkout: Checkout) -> None:
    theirs = checkout.root / ".venv/pyvenv.cfg"
    theirs.parent.mkdir()
    theirs.write_text("theirs")
    result = checkout.run()
    assert (result.returncode, len(result.stderr.splitlines())) == (69, 1)
    assert [*theirs.parent.iterdir()] == [theirs]


def test_no_python_is_one_line(checkout: Checkout) -> None:
    (checkout.root.parent / "tools/python3").unlink()
    result = checkout.run()
    assert (result.returncode, result.stdout) == (69, "")
    assert len(result.stderr.splitlines()) == 1
    assert "apt-get install python3" in result.stderr


def test_a_python_too_old_is_passed_over(checkout: Checkout) -> None:
    tools = checkout.root.parent / "tools"
    (tools / "python3").rename(tools / "python3.12")
    write_script(tools / "python3", "#!/bin/sh\nexit 0\n")
    assert checkout.is_set_up_again()


def test_no_pip_at_all_is_one_line(needy: Checkout) -> None:
    (needy.root.parent / "tools/pip3").unlink()
    result = needy.run()
    assert result.returncode == 69
    assert [line for line in result.stderr.splitlines() if "first use" not in line] == [
        f"hbuf: there is no pip for {os.path.realpath(needy.root.parent / 'tools/python3')}"
        " (Debian: apt-get install python3-venv)"
    ]


def test_without_pip_uv_does_its_work(needy: Checkout) -> None:
    tools = needy.root.parent / "tools"
    (tools / "pip3").rename(tools / "uv")
    assert needy.is_set_up_again()
    python = needy.root / ".venv/bin/python"
    assert needy.pip_log.read_text().endswith(f"ended with pip install --python {python} something\n")


def test_an_index_out_of_reach_is_one_line(needy: Checkout) -> None:
    needy.env["PIP_STUB"] = "echo 'Retrying after connection broken by NewConnectionError'; exit 1"
    result = needy.run()
    assert result.returncode == 69
    assert len(result.stderr.splitlines()) == 2
    assert "needs the network once" in result.stderr


def test_a_failed_installation_shows_why_and_is_tried_again(needy: Checkout) -> None:
    needy.env["PIP_STUB"] = "echo 'ERROR: no such thing' >&2; exit 1"
    result = needy.run()
    assert (result.returncode, result.stdout) == (69, "")
    assert result.stderr.endswith("last lines:\nCollecting noise\nERROR: no such thing\n")

    needy.env["PIP_STUB"] = ""
    assert needy.is_set_up_again()


def test_pip_installs_what_pyproject_requires(checkout: Checkout, tmp_path: Path) -> None:
    if subprocess.run([BASE_PYTHON, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("this Python has no pip")
    with zipfile.ZipFile(tmp_path / "something-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("something.py", "")
        wheel.writestr("something-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: something\nVersion: 1\n")
        wheel.writestr("something-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("something-1.dist-info/RECORD", "something.py,,\n")
    (checkout.root / "hbuf/cli/append.py").write_text(
        "from importlib.metadata import version\nimport something\ndef main(): print(version('hbuf'))\n"
    )
    checkout.require("something")
    misleading = {"PIP_TARGET": str(tmp_path), "PIP_USER": "1", "PYTHONPATH": str(tmp_path)}
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}
    result = checkout.run(env=checkout.env | misleading | settings)
    assert (result.returncode, result.stdout) == (0, "1.2.3\n"), result.stderr


def test_a_launcher_works_through_symlinks(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to(checkout.append)
    (tmp_path / "two").symlink_to("one")
    (tmp_path / "directory").symlink_to(checkout.root)
    assert json.loads(checkout.run(tmp_path / "two").stdout)["argv"] == ["hbuf-append"]
    by_directory = checkout.run(tmp_path / "directory/bin/hbuf-append")
    assert (by_directory.returncode, by_directory.stderr) == (0, "")


def test_arguments_reach_the_program_as_they_are(checkout: Checkout) -> None:
    arguments = ["two words", "two\nlines", "", "-c", "--help", "*", "'$HOME'"]
    assert json.loads(checkout.run(checkout.append, *arguments).stdout)["argv"] == ["hbuf-append", *arguments]


@pytest.mark.parametrize(("env", "status"), [({"EXITS_WITH": "75"}, 75), ({"KILLED_BY": "15"}, -15)])
def test_how_the_program_ends_is_how_the_launcher_ends(checkout: Checkout, env: dict[str, str], status: int) -> None:
    assert checkout.run(env=checkout.env | env).returncode == status


def test_the_users_own_python_settings_do_not_mislead_it(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "hbuf").mkdir()
    (tmp_path / "hbuf/__init__.py").write_text("raise SystemExit('the wrong hbuf')")
    misleading = {"PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nowhere", "VIRTUAL_ENV": str(tmp_path)}
    for _ in ("set-up", "use"):
        result = checkout.run(env=checkout.env | misleading, cwd=tmp_path)
        assert result.returncode == 0, result.stderr


def test_each_program_of_pyproject_has_its_launcher() -> None:
    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]
    launchers = {path.name: path for path in (REPOSITORY / "bin").glob("hbuf*")}
    assert launchers.keys() == scripts.keys()
    for name, target in scripts.items():
        assert os.access(launchers[name], os.X_OK)
        assert f"run_program {name} {target.removesuffix(':main')} " in launchers[name].read_text()


@pytest.fixture
def checked(checkout: Checkout) -> Checkout:
    """One whose test tools are stubs that say how they were called; $FAILS names the one that fails."""
    for tool in ("ruff", "mypy", "lint-imports", "pytest"):
        stub = f'#!/bin/sh\necho "{tool}" "$@"\n[ "$FAILS" != {tool} ] || exit 3\n'
        write_script(checkout.root.parent / "tools" / tool, stub)
    return checkout


def test_bin_test_runs_every_check(checked: Checkout) -> None:
    result = checked.run(checked.root / "bin/test")
    assert result.returncode == 0
    *checks, tests = result.stdout.splitlines()
    assert checks == ["ruff check", "ruff format --check", "mypy", "lint-imports"]
    assert tests == "pytest -n auto --maxprocesses 4 --dist loadgroup"


def test_bin_test_stops_at_the_first_check_that_fails(checked: Checkout) -> None:
    result = checked.run(checked.root / "bin/test", env=checked.env | {"FAILS": "mypy"})
    assert result.returncode == 3
    assert result.stdout.splitlines()[-1] == "mypy"


def test_bin_test_with_arguments_runs_only_pytest(checked: Checkout) -> None:
    assert checked.run(checked.root / "bin/test", "-k", "a b").stdout == "pytest -k a b\n"


def test_bin_test_and_the_programs_share_one_set_up(checked: Checkout) -> None:
    checked.run(checked.root / "bin/test")
    assert checked.can_run_without_set_up()


def test_bin_test_needs_the_test_extra_too(needy: Checkout) -> None:
    needy.run()
    pyproject = needy.root / "pyproject.toml"
    pyproject.write_text(pyproject.read_text().replace("test = []", 'test = ["a-tool"]'))
    write_script(needy.root.parent / "tools/pytest", "#!/bin/sh\n")
    assert needy.run(needy.root / "bin/test", "-x").returncode == 0
    assert needy.pip_log.read_text().endswith("install something a-tool\n")
