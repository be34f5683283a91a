"""The first start: killed before any of its steps and started again, it ends well; and what it makes it makes once."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hbuf.daemon import first_start
from hbuf.daemon.callers import Callers
from hbuf.daemon.config import Config, Tls
from hbuf.daemon.tls import new_context
from hbuf.errors import HbufError, Locked, Unauthorized
from hbuf.format.users import Grant
from hbuf.ops.user import add_user, list_users, revoke_user
from hbuf.store import fsops


class Killed(BaseException):
    """The process ends here."""


def start(root: Path) -> bool:
    first_start.make_root(root)
    config = Config.of_root(root)
    with first_start.only_daemon(root):
        made = first_start.prepare(config)
    new_context(config)
    return made


def works(root: Path) -> bool:
    """The token that was written lets the administrator in, and it is the only one."""
    token = (root / "admin.token").read_text().strip()
    caller = Callers(root).by_token(token)
    [admin] = list_users(root, None)
    return (
        caller.name == "admin"
        and caller.may("erase", "any", "any")
        and (root / "admin.header").read_text() == f"authorization: Bearer {token}\n"
        and [stat.S_IMODE((root / name).stat().st_mode) for name in ("admin.token", "admin.header")] == [0o600] * 2
        and len(admin.tokens) == 1
        and new_context(Config.of_root(root)) is not None
    )


class Dying:
    """Counts the steps that change the disk, and is killed before one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int = 0) -> None:
        self.steps = 0
        self._at = at
        for name in ("replace_durably", "rename", "unlink", "sync_directory", "make_directory", "write_all_at"):
            monkeypatch.setattr(fsops, name, self._counted(getattr(fsops, name)))

    def _counted(self, step: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.steps += 1
            if self.steps == self._at:
                raise Killed
            return step(*arguments, **options)

        return counted


def test_start_that_is_killed_before_any_step_is_ended_by_the_next_one(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patching:
        dying = Dying(patching)
        assert start(tmp_path / "whole")
        steps = dying.steps
    assert works(tmp_path / "whole")
    assert steps > 10
    for at in range(1, steps + 1):
        root = tmp_path / f"killed-{at}"
        with pytest.MonkeyPatch.context() as patching:
            Dying(patching, at)
            with pytest.raises(Killed):
                start(root)
        start(root)
        assert works(root), f"killed before step {at}"


def test_administrator_is_made_once(tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert start(root)
    token = (root / "admin.token").read_text().strip()
    assert not start(root)
    for name in ("admin.token", "admin.header"):
        (root / name).unlink()
    add_user(root, None, "chief", [Grant("admin", "*")])
    revoke_user(root, None, "admin")
    assert not start(root)
    assert not (root / "admin.token").exists()
    assert [user.name for user in list_users(root, None)] == ["chief"]
    with pytest.raises(Unauthorized):
        Callers(root).by_token(token)


def test_token_of_users_that_are_gone_is_not_taken_for_that_of_new_ones(tmp_path: Path) -> None:
    root = tmp_path / "root"
    start(root)
    before = (root / "admin.token").read_text()
    (root / "users.json").unlink()
    assert start(root)
    assert (root / "admin.token").read_text() != before
    assert works(root)


def test_root_is_for_its_user_alone_and_one_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    first_start.make_root(tmp_path / "a" / "new")
    assert stat.S_IMODE((tmp_path / "a" / "new").stat().st_mode) == 0o700
    (tmp_path / "there").mkdir(mode=0o750)
    first_start.make_root(tmp_path / "there")
    assert stat.S_IMODE((tmp_path / "there").stat().st_mode) == 0o750
    (tmp_path / "file").write_text("")
    with pytest.raises(HbufError):
        first_start.make_root(tmp_path / "file")


def test_root_is_served_once(tmp_path: Path) -> None:
    with first_start.only_daemon(tmp_path), pytest.raises(Locked), first_start.only_daemon(tmp_path):
        pass
    with first_start.only_daemon(tmp_path):
        pass


def test_certificate_is_for_every_name_and_is_made_anew_for_another(tmp_path: Path) -> None:
    config = replace(Config.of_root(tmp_path), listen=("[::1]:1", "*:2", "0.0.0.0:3", "10.1.2.3:4", "web1.example:5"))
    names = first_start.certificate_names(config)
    assert {"localhost", "127.0.0.1", "::1", "10.1.2.3", "web1.example", os.uname().nodename} <= set(names)
    assert not {"", "*", "0.0.0.0", "::"} & set(names)
    first_start.prepare(config)
    assert not first_start.renew_certificate(config)
    assert first_start.renew_certificate(replace(config, tls=Tls(names=("another.example",))))


def test_certificate_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    config = replace(Config.of_root(tmp_path), tls=Tls("some.pem", "some.key"))
    first_start.prepare(config)
    assert not first_start.renew_certificate(config)
    assert not (tmp_path / "server.pem").exists()
