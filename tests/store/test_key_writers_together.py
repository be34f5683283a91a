"""Several processes at one key file: one of them makes it, and whoever reads it finds a whole key."""

import contextlib
import fcntl
import functools
import io
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from hbuf.errors import CannotCreate, HbufError
from hbuf.format.keys import KeyFile, new_key_file
from hbuf.store import fsops, keyring
from hbuf.store.keyring import create_key, load_key, save_key

from .dying import fork

KEYS = [new_key_file("sign", bytes([n]) * 32) for n in range(1, 5)]
ROUNDS = 20
SAVES = 300


class Channel:
    """A pipe by which one process lets others go on. It is at its end when the last who could tell is gone."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()

    def tell(self, count: int = 1) -> None:
        os.write(self._writing, b"." * count)

    def wait(self) -> None:
        os.close(self._writing)
        assert os.read(self._reading, 1), "nobody is left to tell"

    def close(self) -> None:
        for fd in (self._reading, self._writing):
            with contextlib.suppress(OSError):
                os.close(fd)


@pytest.fixture
def channels() -> Iterator[list[Channel]]:
    opened = [Channel(), Channel()]
    yield opened
    for channel in opened:
        channel.close()


def start(work: Callable[[], None]) -> int:
    """Does `work` in a child, which exits with the code that a command would."""
    child = fork()
    if child == 0:
        _work_and_exit(work)
    return child


def _work_and_exit(work: Callable[[], None]) -> NoReturn:
    code = 70
    try:
        work()
        code = 0
    except HbufError as error:
        code = error.exit_code
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_who_comes_while_a_key_is_made_waits_and_is_refused(ram_path: Path, channels: list[Channel]) -> None:
    """The first stands right before the name appears; the second has seen that there is none."""
    path = ram_path / "keys" / "audit.key"
    first_is_there, second_is_there = channels

    def first() -> None:
        rename = fsops.rename

        def rename_when_told(source: Path, target: Path) -> None:
            first_is_there.tell()
            second_is_there.wait()
            rename(source, target)

        fsops.rename = rename_when_told
        create_key(path, KEYS[0])

    def second() -> None:
        flock = fcntl.flock

        def tell_and_lock(fd: Any, operation: int) -> None:
            second_is_there.tell()
            flock(fd, operation)

        fcntl.flock = tell_and_lock
        first_is_there.wait()
        create_key(path, KEYS[1])

    children = [start(first), start(second)]
    for channel in channels:
        channel.close()
    assert [ended(child) for child in children] == [0, CannotCreate.exit_code]
    assert load_key(path) == KEYS[0]
    assert os.listdir(path.parent) == ["audit.key"]


def test_of_many_who_make_one_key_one_does(ram_path: Path) -> None:
    for number in range(ROUNDS):
        path = ram_path / f"keys {number}" / "audit.key"
        gun = Channel()

        def make(key: KeyFile, path: Path = path, gun: Channel = gun) -> None:
            gun.wait()
            create_key(path, key)

        children = [start(functools.partial(make, key)) for key in KEYS]
        gun.tell(len(KEYS))
        codes = [ended(child) for child in children]
        gun.close()
        assert sorted(codes) == [0] + [CannotCreate.exit_code] * (len(KEYS) - 1)
        assert load_key(path) == KEYS[codes.index(0)]
        assert os.listdir(path.parent) == ["audit.key"]


def test_key_that_is_replaced_while_it_is_read_is_read_again(ram_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was opened is overwritten by then."""
    path = ram_path / "audit.key"
    create_key(path, KEYS[0])

    def replace_what_was_opened(*arguments: Any) -> Any:
        file = io.FileIO(*arguments)
        monkeypatch.delattr(keyring, "open")
        save_key(path, KEYS[1])
        return file

    monkeypatch.setattr(keyring, "open", replace_what_was_opened, raising=False)
    assert load_key(path) == KEYS[1]


def test_key_is_whole_whenever_it_is_read_while_two_save_it(ram_path: Path) -> None:
    path = ram_path / "audit.key"
    create_key(path, KEYS[0])

    def save_again_and_again() -> None:
        for number in range(SAVES):
            save_key(path, KEYS[number % 2])

    children = [start(save_again_and_again) for _ in range(2)]
    found = set()
    for child in children:
        while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            found.add(load_key(path).public)
        assert ended(child) == 0
    assert found <= {KEYS[0].public, KEYS[1].public}
    assert found
    assert load_key(path) == KEYS[(SAVES - 1) % 2]
    assert os.listdir(ram_path) == ["audit.key"]
