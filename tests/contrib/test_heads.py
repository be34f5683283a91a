"""contrib/hbuf-heads.sh on signed buffers, as cron and systemd run it: what is kept, what is refused, what is said."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hbuf.format.note import parse_note
from hbuf.ops.create import create
from hbuf.ops.head import head
from hbuf.ops.key import new
from hbuf.ops.verify import expected_head, verify
from hbuf.store.directory import BufferDirectory
from hbuf.store.outgoing import Outgoing
from hbuf.store.signing import Signer
from hbuf.store.writer import Writer

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "contrib" / "hbuf-heads.sh"
CRON_FILE = ROOT / "contrib" / "cron" / "hbuf-heads"
UNITS = ROOT / "contrib" / "systemd"


class Site:
    """Buffers, their keys, and a place for heads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.keys = root / "keys"
        self.heads = root / "heads"
        self.heads.mkdir()
        self.programs = root / "programs"
        self.programs.mkdir()

    def make(self, name: str, *, signed: bool = True) -> Path:
        path = self.root / "buffers" / name
        signer = None
        if signed:
            new(name, "sign", self.keys)
            signer = self.signer(name)
        create(str(path), {}, signer=signer)
        return path

    def append(self, path: Path, body: bytes, key: str | None = None) -> None:
        signer = self.signer(key) if key else None
        with Writer(BufferDirectory(str(path)), signer=signer) as writer:
            writer.append(Outgoing([body]))

    def signer(self, name: str) -> Signer:
        return Signer(self.keys / f"{name}.key")

    def kept(self, path: Path) -> list[Path]:
        return sorted((self.heads / path.relative_to("/")).glob("*"))

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return self.shell([str(SCRIPT), *map(str, arguments)])

    def shell(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        search = [str(self.programs), str(ROOT / "bin"), os.environ["PATH"]]
        return subprocess.run(
            command,
            cwd=self.root,
            env=os.environ | {"PATH": os.pathsep.join(search)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def keep(self, path: Path) -> None:
        assert_silent(self.run(self.heads, path))

    def refusal(self, path: Path) -> str:
        """The one line that is said, behind the names of program and buffer."""
        before = {each: each.read_bytes() for each in self.kept(path)}
        done = self.run(self.heads, path)
        assert (done.returncode, done.stdout) == (1, "")
        assert {each: each.read_bytes() for each in self.kept(path)} == before
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"hbuf-heads: {path}: ")
        return line.removeprefix(f"hbuf-heads: {path}: ")


def assert_silent(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path.resolve())


@pytest.fixture
def orders(site: Site) -> Path:
    path = site.make("orders")
    site.append(path, b"one", "orders")
    return path


def test_head_is_kept_as_a_note_that_verifies(site: Site, orders: Path) -> None:
    site.keep(orders)
    (note,) = site.kept(orders)
    assert note.name == f"{1:020}.note"
    assert note.read_text() == head(str(orders))
    assert verify(str(orders), head=expected_head(str(note))).ok


def test_newer_head_is_added_and_the_older_note_stays(site: Site, orders: Path) -> None:
    site.keep(orders)
    site.keep(orders)
    site.append(orders, b"two", "orders")
    site.keep(orders)
    assert [parse_note(note.read_bytes()).seq for note in site.kept(orders)] == [1, 2]


def test_buffer_that_was_cut_is_refused_and_the_newer_head_stays(site: Site, orders: Path) -> None:
    shutil.copytree(orders, site.root / "older")
    site.append(orders, b"two", "orders")
    site.keep(orders)
    shutil.rmtree(orders)
    (site.root / "older").rename(orders)
    assert site.refusal(orders) == f"ends with message {1:020}, and {2:020}.note is kept"


def test_buffer_with_another_message_of_the_same_number_is_refused(site: Site, orders: Path) -> None:
    shutil.copytree(orders, site.root / "older")
    site.append(orders, b"two", "orders")
    site.keep(orders)
    shutil.rmtree(orders)
    (site.root / "older").rename(orders)
    site.append(orders, b"two, but not the same", "orders")
    assert site.refusal(orders) == f"has another head than {2:020}.note"


def test_another_buffer_in_the_same_place_is_refused(site: Site, orders: Path) -> None:
    site.keep(orders)
    forged = site.make("forged")
    for body in (b"one", b"two"):
        site.append(forged, body, "forged")
    shutil.rmtree(orders)
    forged.rename(orders)
    assert site.refusal(orders) == f"is another buffer than that of {1:020}.note"


def test_unsigned_buffer_in_the_place_of_a_signed_one_is_refused(site: Site, orders: Path) -> None:
    site.keep(orders)
    plain = site.make("plain", signed=False)
    site.append(plain, b"one")
    shutil.rmtree(orders)
    plain.rename(orders)
    assert site.refusal(orders) == f"has no head any more, and {1:020}.note is kept"


def test_buffers_without_a_signature_or_a_message_are_passed_over(site: Site, orders: Path) -> None:
    plain = site.make("plain", signed=False)
    site.append(plain, b"one")
    empty = site.make("empty")
    assert_silent(site.run(site.heads, plain, empty, orders))
    assert [site.kept(plain), site.kept(empty), len(site.kept(orders))] == [[], [], 1]


def test_missing_buffer_is_named_and_the_others_are_kept(site: Site, orders: Path) -> None:
    done = site.run(site.heads, "nothing", orders)
    assert (done.returncode, done.stderr) == (1, "hbuf-heads: nothing: there is no such buffer\n")
    assert len(site.kept(orders)) == 1


def test_missing_place_is_an_error_and_is_not_made(site: Site, orders: Path) -> None:
    site.heads.rmdir()
    site.refusal(orders)
    assert not site.heads.exists()


def test_paths_with_blanks_and_quotes_are_kept_as_they_are(site: Site, orders: Path) -> None:
    odd = site.root / 'it\'s $(odd) "here"'
    odd.mkdir()
    orders.rename(odd / "orders")
    site.keep(odd / "orders")
    assert len(site.kept(odd / "orders")) == 1


def test_command_line_that_is_wrong_is_told_how_it_goes(site: Site, orders: Path) -> None:
    for arguments in ([], [site.heads], ["-x", site.heads, orders], ["-e", "", site.heads, orders]):
        done = site.run(*arguments)
        assert done.returncode == 2
        assert done.stderr.endswith("usage: hbuf-heads [-e COMMAND] DIR BUF...\n")


def install_ssh(site: Site, script: str) -> None:
    """A program that is called as ssh is, and runs its command here."""
    ssh = site.programs / "ssh"
    ssh.write_text(f"#!/bin/sh\n{script}\n")
    ssh.chmod(0o755)


def cron_line(site: Site) -> list[str]:
    """The line's command as cron hands it to a shell, with its directories moved to the site's."""
    (line,) = [line for line in CRON_FILE.read_text().splitlines() if line[:1].isdigit()]
    *when, user, command = line.split(maxsplit=6)
    assert (when, user) == (["5", "*", "*", "*", "*"], "hbuf")
    assert "%" not in command, "cron would end the line there"
    moved = command.replace("/var/lib/hbuf/tenants/*/buffers", str(site.root / "buffers"))
    return ["/bin/sh", "-c", moved.replace("/srv/heads", str(site.heads)).replace("hbuf-heads ", f"{SCRIPT} ", 1)]


def test_cron_line_keeps_heads_through_ssh(site: Site, orders: Path) -> None:
    install_ssh(site, 'echo "$@" > "$0.arguments"\n[ $# -eq 4 ] && exec /bin/sh -c "$4"')
    assert_silent(site.shell(cron_line(site)))
    assert (site.programs / "ssh.arguments").read_text().startswith("-o BatchMode=yes vault target=")
    assert [note.read_text() for note in site.kept(orders)] == [head(str(orders))]


def test_machine_that_cannot_be_reached_is_said_in_one_line(site: Site, orders: Path) -> None:
    install_ssh(site, "echo 'ssh: connect to host vault: No route to host' >&2; echo again >&2; exit 255")
    done = site.shell(cron_line(site))
    assert done.returncode == 1
    assert done.stderr == f"hbuf-heads: {orders}: ssh: connect to host vault: No route to host again\n"


def unit(name: str) -> str:
    return (UNITS / f"hbuf-heads.{name}").read_text()


def test_service_s_command_keeps_heads(site: Site, orders: Path) -> None:
    (command,) = re.findall(r"^ExecStart=/bin/sh -c '(.*)'$", unit("service"), re.MULTILINE)
    command = command.replace("/var/lib/hbuf/tenants/*/buffers", str(site.root / "buffers"))
    command = command.replace("/mnt/heads", str(site.heads)).replace("/usr/local/bin/hbuf-heads", str(SCRIPT))
    assert_silent(site.shell(["/bin/sh", "-c", command]))
    assert len(site.kept(orders)) == 1


def test_service_cannot_reach_keys_and_writes_to_the_heads_alone() -> None:
    assert {
        "ProtectSystem=strict",
        "ReadWritePaths=/mnt/heads",
        "InaccessiblePaths=-/etc/hbuf/keys",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
    } <= set(unit("service").splitlines())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_units_are_what_systemd_understands(tmp_path: Path) -> None:
    for name in ("service", "timer"):
        (tmp_path / f"hbuf-heads.{name}").write_text(unit(name))
    done = subprocess.run(
        ["systemd-analyze", "verify", *(tmp_path / f"hbuf-heads.{name}" for name in ("service", "timer"))],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "hbuf-heads" in line]
    assert (done.returncode, ours) == (0, [])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_unit_with_a_word_that_systemd_does_not_know_is_found(tmp_path: Path) -> None:
    (tmp_path / "hbuf-heads.service").write_text(unit("service").replace("NoNewPrivileges", "NoNewPrivilege"))
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "hbuf-heads.service"], capture_output=True, text=True, check=False
    )
    assert "NoNewPrivilege" in done.stderr
