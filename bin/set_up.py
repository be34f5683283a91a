"""Makes the environment launch.sh runs hbuf in. What has no mark is not ready, and the mark is written last.

    python -E -P set_up.py CHECKOUT ENVIRONMENT [EXTRA]

The mark, ENVIRONMENT/hbuf-ready (hbuf-ready-EXTRA for the one that has an extra's requirements too), holds
CHECKOUT's path on one line and then the pyproject.toml it was made from, byte for byte. An extra's requirements
are added to what is there. Where one that is there has changed, the environment is made again from nothing, never
mended: only so does a requirement dropped from pyproject.toml disappear.
Nothing is written into CHECKOUT but ENVIRONMENT, if that is there: CHECKOUT may be read-only.
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import IO, Any, NoReturn

# What pip fetches for CPython on x86-64 Linux, rounded up.
MEGABYTES = {"": 23, "java": 36, "spark": 530, "test": 635}

OFFLINE = re.compile(r"connection broken|connection ?error|connect ?timeout|name ?resolution|dns error", re.I)


def say(line: str) -> None:
    sys.stderr.write(f"hbuf: {line}\n")


def fail(line: str) -> NoReturn:
    say(line)
    sys.exit(69)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ^C ends it without a traceback
    checkout, environment = Path(sys.argv[1]), Path(sys.argv[2])
    extra = sys.argv[3] if len(sys.argv) > 3 else ""
    try:
        with locked(environment) as lock:
            set_up(checkout, environment, extra, lock)
    except OSError as error:
        fail(f"cannot set up {environment}: {error.strerror or error} (XDG_CACHE_HOME can name another place)")
    except tomllib.TOMLDecodeError as error:
        fail(f"cannot read {checkout}/pyproject.toml: {error}")


def locked(environment: Path) -> IO[str]:
    """Waits for its turn. The kernel frees the lock when its last holder ends, however that ends."""
    environment.mkdir(parents=True, exist_ok=True)
    lock = environment / "hbuf-lock"
    if any(environment.iterdir()) and not lock.exists():
        fail(f"{environment} was not made by hbuf: move it out of the way")
    file = lock.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"waiting for another run that is setting up {environment}")
        fcntl.flock(file, fcntl.LOCK_EX)
    return file


def set_up(checkout: Path, environment: Path, extra: str, lock: IO[str]) -> None:
    pyproject = (checkout / "pyproject.toml").read_bytes()
    project = tomllib.loads(pyproject.decode())["project"]
    place = os.fsencode(checkout)

    made_from = marks(environment, place) if works(str(environment / "bin/python"), "-c", "") else {}
    if made_from.get(extra) == pyproject:
        return  # by the run we waited for

    needed = requirements(project, extra)
    there = {had: requirements(tomllib.loads(made.decode())["project"], had) for had, made in made_from.items()}
    if extra not in there and there.get("") == requirements(project, ""):
        # Another extra that is there may have all of it: bin/test's has Spark.
        if not any(set(needed) <= set(packages) for packages in there.values()):
            say(f"adding what '{extra}' needs to {environment}{fetching(extra)}")
            install(environment, needed, lock)
    elif there.get(extra) != needed:
        changed = any(environment.glob("hbuf-ready*"))
        reason = "something it was made from has changed" if changed else "first use"
        say(f"{reason}: making {environment}{fetching(extra) if needed else ''}")
        clear(environment)
        make(environment, needed, lock)
    describe(checkout, project, environment)
    for name in {"hbuf-ready", mark_name(extra)}:
        unfinished = environment / "unfinished-mark"
        unfinished.write_bytes(place + b"\n" + pyproject)
        unfinished.replace(environment / name)


def mark_name(extra: str) -> str:
    return f"hbuf-ready-{extra}" if extra else "hbuf-ready"


def marks(environment: Path, place: bytes) -> dict[str, bytes]:
    """The pyproject.toml that each extra's part of the environment was made from; "" is what every part has."""
    made = {}
    for mark in environment.glob("hbuf-ready*"):
        made_for, _, made_from = mark.read_bytes().partition(b"\n")
        if made_for == place:
            made[mark.name.removeprefix("hbuf-ready").removeprefix("-")] = made_from
    return made


def fetching(extra: str) -> str:
    return f" and fetching about {MEGABYTES[extra]} MB of packages from PyPI"


def requirements(project: dict[str, Any], extra: str) -> list[str]:
    return [*project.get("dependencies", []), *(project["optional-dependencies"][extra] if extra else [])]


def works(*command: str) -> bool:
    try:
        return subprocess.run(command, env=pip_environment(), capture_output=True).returncode == 0
    except OSError:
        return False


def clear(environment: Path) -> None:
    """Empties it, its marks first. The lock stays: others may be waiting for it."""
    for mark in environment.glob("hbuf-ready*"):
        mark.unlink()
    for entry in environment.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != "hbuf-lock":
            entry.unlink()


def make(environment: Path, needed: list[str], lock: IO[str]) -> None:
    try:
        import venv
    except ImportError:
        fail(f"{sys.executable} has no venv module (Debian: apt-get install python3-venv)")
    # Without pip in it: where another pip can fill it, that saves the seconds ensurepip takes.
    venv.create(environment, symlinks=True, with_pip=False)
    if needed:
        install(environment, needed, lock)


def install(environment: Path, needed: list[str], lock: IO[str]) -> None:
    # pip holds the lock too, so that a pip left behind when we are killed is waited for.
    installation = subprocess.run(
        [*installer(environment), *needed],
        env=pip_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=[lock.fileno()],
    )
    if installation.returncode == 0:
        return
    if OFFLINE.search(installation.stdout):
        fail("set-up needs the network once, and the package index cannot be reached: try again online")
    last_lines = "\n".join(installation.stdout.splitlines()[-8:])
    fail(f"the packages could not be installed; the installer's last lines:\n{last_lines}")


def installer(environment: Path) -> list[str]:
    """A command that installs into the environment, by whatever this machine has."""
    python = str(environment / "bin/python")
    # Any pip since 22.3 can fill another environment than its own.
    for pip in ([sys.executable, "-m", "pip"], ["pip3"], ["pip"]):
        if works(*pip, "--python", python, "--version"):
            return [*pip, "--python", python, "install"]
    if works(python, "-m", "ensurepip") or works("virtualenv", "--python", sys.executable, str(environment)):
        return [python, "-m", "pip", "install"]
    if works("uv", "--version"):
        return ["uv", "pip", "install", "--python", python]
    fail(f"there is no pip for {sys.executable} (Debian: apt-get install python3-venv)")


def pip_environment() -> dict[str, str]:
    """The user's, whose pip settings count (index, proxy, certificates), but for what would lead pip elsewhere."""
    elsewhere = {"PIP_PREFIX", "PIP_PYTHON", "PIP_ROOT", "PIP_TARGET"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    kept = {name: value for name, value in kept.items() if name not in elsewhere}
    return kept | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_USER": "0"}


def describe(checkout: Path, project: dict[str, Any], environment: Path) -> None:
    """Does what an editable install would, without the build tools it fetches and the files it leaves behind."""
    [packages] = environment.glob("lib/*/site-packages")
    for outdated in packages.glob("hbuf-*.dist-info"):
        shutil.rmtree(outdated)
    (packages / "hbuf.pth").write_bytes(os.fsencode(checkout) + b"\n")
    about = packages / f"hbuf-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: hbuf\nVersion: {project['version']}\n")
    scripts = project.get("scripts", {})
    lines = "".join(f"{name} = {target}\n" for name, target in scripts.items())
    (about / "entry_points.txt").write_text(f"[console_scripts]\n{lines}")
    for name in scripts:
        command = environment / "bin" / name
        command.unlink(missing_ok=True)
        command.symlink_to(checkout / "bin" / name)


if __name__ == "__main__":
    main()
