"""contrib/cron/hbuf-backup and hbuf-retire: their lines, run as cron runs them, on buffers in a temporary place."""

import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import hbuf
from hbuf.ops.set import set_settings

REPOSITORY = Path(__file__).parents[2]
CRON_FILES = [REPOSITORY / "contrib" / "cron" / name for name in ("hbuf-backup", "hbuf-retire")]


class Cron:
    """Runs the lines of the files with their two directories moved under `root`."""

    def __init__(self, root: Path) -> None:
        self.data, self.backups = root / "lib", root / "backups"
        self.backups.mkdir()
        self._lines = [line for file in CRON_FILES for line in file.read_text().splitlines()]

    def jobs(self) -> list[tuple[list[str], str]]:
        """Five fields of time and the user, and the command as the shell gets it."""
        jobs = []
        for line in self._lines:
            if line[:1].isdigit():
                *when, command = line.split(maxsplit=6)
                assert "%" not in command.replace(r"\%", ""), "cron would end the line there"
                jobs.append((when, command.replace(r"\%", "%")))
        return jobs

    def run(self, program: str) -> subprocess.CompletedProcess[str]:
        (command,) = [command for _, command in self.jobs() if program in command]
        command = command.replace("/var/lib/hbuf", str(self.data)).replace("/var/backups/hbuf", str(self.backups))
        environment = os.environ | {"PATH": f"{REPOSITORY / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        return subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.data,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def cron(tmp_path: Path) -> Cron:
    return Cron(tmp_path)


@pytest.fixture
def buffers(cron: Cron) -> list[Path]:
    paths = [cron.data / "tenants" / tenant / "buffers" / "orders" for tenant in ("north", "south")]
    for path in paths:
        path.parent.mkdir(parents=True)
        with hbuf.create(path) as buffer:
            buffer.append_many([b"first", b"second"])
    return paths


def test_every_line_is_a_time_a_user_and_a_command(cron: Cron) -> None:
    assert [when[5] for when, _ in cron.jobs()] == ["hbuf", "hbuf", "hbuf"]
    for when, _ in cron.jobs():
        minute, hour, *days = when[:5]
        assert 0 <= int(minute) < 60
        assert 0 <= int(hour) < 24
        assert days == ["*", "*", "*"]


def test_the_backup_line_leaves_an_archive_that_verifies_when_it_is_restored(
    cron: Cron, buffers: list[Path], tmp_path: Path
) -> None:
    before = datetime.now(UTC).astimezone()
    done = cron.run("hbuf-pause")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    days = {f"{day:%F}.tar" for day in (before, before + timedelta(days=1))}
    (archive,) = cron.backups.iterdir()
    assert archive.name in days
    (tmp_path / "restored").mkdir()
    subprocess.run(["tar", "xf", archive, "-C", tmp_path / "restored"], check=True)
    for path in buffers:
        restored = tmp_path / "restored" / path.relative_to(cron.data)
        with hbuf.open(restored) as buffer:
            assert [message.body for message in buffer.read()] == [b"first", b"second"]
            assert buffer.append(b"third").seq == 3
            assert buffer.verify().ok
        assert hbuf.open(path).append(b"the pause is over").seq == 3


def test_the_backup_line_leaves_no_archive_when_a_buffer_cannot_be_paused(cron: Cron, buffers: list[Path]) -> None:
    (buffers[0].parent / "not-a-buffer").mkdir()
    done = cron.run("hbuf-pause")
    assert done.returncode == 66
    assert "not-a-buffer" in done.stderr
    assert not list(cron.backups.iterdir())


def test_the_verify_line_is_silent_when_all_is_well_and_else_names_the_place(cron: Cron, buffers: list[Path]) -> None:
    done = cron.run("hbuf-verify")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (segment,) = (buffers[1] / "segments").glob("*.http")
    segment.write_bytes(segment.read_bytes().replace(b"second", b"secood"))
    done = cron.run("hbuf-verify")
    assert f"{buffers[1]}: NOT INTACT" in done.stdout
    assert "message 2" in done.stdout


def test_the_retire_line_removes_what_the_settings_do_not_keep_and_is_silent(cron: Cron, buffers: list[Path]) -> None:
    set_settings(str(buffers[0]), {"retention_messages": "1"}, timeout_seconds=20)
    with hbuf.open(buffers[0]) as buffer:
        buffer.append(b"third")
    done = cron.run("hbuf-retire")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [[message.body for message in hbuf.open(path).read()] for path in buffers] == [
        [b"third"],
        [b"first", b"second"],
    ]
