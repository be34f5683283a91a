"""The units of the daemon: what systemd makes of them, how much they let it do, and what the timers run."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import NewKey

import hbuf

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "contrib" / "systemd"
NAMES = ["hbufd.service", "hbufd.socket"] + [
    f"hbuf-{verb}.{kind}" for verb in ("retire", "verify") for kind in ("service", "timer")
]
SERVICES = [name for name in NAMES if name.endswith(".service")]
needs_analyze = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def unit(name: str) -> str:
    return (UNITS / name).read_text()


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


@needs_analyze
def test_units_are_what_systemd_understands(tmp_path: Path) -> None:
    for name in NAMES:
        # The programs need not be installed here.
        (tmp_path / name).write_text(re.sub(r"/usr/local/bin/[a-z-]+", "/bin/true", unit(name)))
    done = analyze("verify", "--man=no", *(tmp_path / name for name in NAMES))
    ours = [line for line in done.stderr.splitlines() if "hbuf" in line]
    assert (done.returncode, ours) == (0, [])


@needs_analyze
def test_unit_with_a_word_that_systemd_does_not_know_is_found(tmp_path: Path) -> None:
    (tmp_path / "hbufd.service").write_text(unit("hbufd.service").replace("NoNewPrivileges", "NoNewPrivilege"))
    assert "NoNewPrivilege" in analyze("verify", "--man=no", tmp_path / "hbufd.service").stderr


@needs_analyze
@pytest.mark.parametrize("name", SERVICES)
def test_service_may_do_little(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(unit(name))
    done = analyze("security", "--offline=true", "--threshold=20", tmp_path / name)
    assert done.returncode == 0, done.stdout
    assert re.search(r"Overall exposure level for .*: [\d.]+ (OK|SAFE)", done.stdout)


@needs_analyze
def test_service_that_may_do_more_is_found(tmp_path: Path) -> None:
    open_to_all = re.sub(
        r"^(Capability|System|Protect|Restrict|User).*$", "", unit("hbufd.service"), flags=re.MULTILINE
    )
    (tmp_path / "hbufd.service").write_text(open_to_all)
    assert analyze("security", "--offline=true", "--threshold=20", tmp_path / "hbufd.service").returncode != 0


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="systemd-sysusers is not installed")
def test_user_is_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    done = subprocess.run(
        ["systemd-sysusers", f"--root={tmp_path}", UNITS / "hbuf.sysusers"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^hbuf:", (tmp_path / "etc/passwd").read_text(), re.MULTILINE)
    assert re.search(r"^hbuf:", (tmp_path / "etc/group").read_text(), re.MULTILINE)


def test_sockets_and_directories_are_those_of_the_service() -> None:
    socket_unit, directories = unit("hbufd.socket"), unit("hbuf.tmpfiles")
    assert "SocketMode=0660" in socket_unit
    for path in ("/var/lib/hbuf", "/etc/hbuf", "/run/hbuf"):
        assert re.search(rf"^d {path} 07", directories, re.MULTILINE)
    assert "--root /var/lib/hbuf" in unit("hbufd.service")
    assert "ListenStream=/run/hbuf/" in socket_unit


def test_all_buffers_of_a_root_are_retired_and_signed_with_its_keys(
    tmp_path: Path, new_key: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{ROOT / 'bin'}:/usr/bin:/bin")
    key, _ = new_key("orders", "sign")
    for tenant, name, signed in (("shop", "orders", True), ("bank", "plain", False)):
        path = tmp_path / "tenants" / tenant / "buffers" / name
        path.parent.mkdir(parents=True)
        settings = {"segment_messages": "1", "retention_messages": "1"}
        with hbuf.create(path, sign=key if signed else None, **settings) as buffer:
            for body in (b"one", b"two", b"three"):
                buffer.append(body)
    kept = tmp_path / "keys" / "shop" / "orders.key"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(key.read_bytes())
    kept.chmod(0o600)
    done = subprocess.run(
        [ROOT / "contrib/hbuf-retire-all.sh", tmp_path], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for path in tmp_path.glob("tenants/*/buffers/*"):
        with hbuf.open(path) as buffer:
            assert [message.body for message in buffer.read()] == [b"three"]


def test_retiring_without_a_root_is_2() -> None:
    done = subprocess.run([ROOT / "contrib/hbuf-retire-all.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
