"""The commands on a buffer that has everything: signed, encrypted, compressed, with messages erased and retired."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.conftest import Ran, Run, WaitUntil

INTACT = (0, b"", "")
AUDIT = Path(__file__).parents[2] / "contrib" / "hbuf-audit.sh"
LEFT = [4, 5, 6, 7, 8, 9, 13]  # 1 to 3 are retired; 10 and 11 say that 2 and 5 were erased, 12 says what was retired
WHOLE = [seq for seq in LEFT if seq != 5]


def append(run: Run, number: int) -> None:
    fields = ["-k", f"user-{number}", "--tag", "even" if number % 2 == 0 else "odd"]
    command = ["hbuf-append", "orders", "--sign", "audit", *fields]
    assert run(*command, stdin=b"body %d\n" % number) == INTACT


@pytest.fixture
def orders(run: Run) -> Path:
    for name, kind in (("audit", "sign"), ("alice", "encrypt")):
        assert run("hbuf-key", "new", name, "--kind", kind) == INTACT
    Path("audit.pub").write_bytes(run("hbuf-key", "export", "audit").out)
    rules = ["segment_messages=3", "hash=sha256", "compress=true", "retention_messages=5"]
    settings = [part for rule in rules for part in ("--set", rule)]
    assert run("hbuf-create", "orders", "--sign", "audit", "--encrypt-to", "alice", *settings) == INTACT
    for number in range(1, 10):
        append(run, number)
    assert run("hbuf-erase", "orders", "2", "5", "--reason", "asked for", "--sign", "audit") == INTACT
    assert run("hbuf-retire", "orders", "--sign", "audit").code == 0
    append(run, 13)
    stems = [file.name.lstrip("0") for file in sorted(Path("orders/segments").glob("*.http*"))]
    assert stems == ["4.http.zst", "7.http.zst", "10.http.zst", "13.http"]
    return Path("orders")


def tail(run: Run, *options: str) -> Ran:
    return run("hbuf-tail", "orders", "--identity", "alice", *options)


def numbers(ran: Ran) -> list[int]:
    """Of a command that wrote JSON."""
    assert (ran.code, ran.err) == (0, "")
    return [json.loads(line)["seq"] for line in ran.lines]


def check_verifies(run: Run, path: str = "orders") -> None:
    done = run("hbuf-verify", path, "--signer", "audit.pub", "--quiet")
    assert (done.code, done.err) == (0, ""), done


def test_it_verifies_and_tells_what_is_erased_and_retired(run: Run, orders: Path) -> None:
    done = run("hbuf-verify", orders, "--signer", "audit.pub", "--json")
    assert done.code == 0
    said = json.loads(done.out)
    assert said["ok"]
    assert {kind: found["count"] for kind, found in said["faults"].items() if found["count"]} == {}
    assert said["verdicts"]["chain"]["erased"] == 1
    assert said["verdicts"]["completeness"]["retired"] == 3


def test_tail_shows_what_is_left_in_every_form(run: Run, orders: Path) -> None:
    objects = [json.loads(line) for line in tail(run, "-o", "first", "--json").lines]
    assert [each["seq"] for each in objects] == LEFT
    assert [each["seq"] for each in objects if each["erased"]] == [5]
    assert all(each["key"] == f"user-{each['seq']}" for each in objects if not each["erased"])
    assert [each["body"] for each in objects if not each["erased"]] == [f"body {seq}" for seq in WHOLE]
    assert tail(run, "-o", "first").lines == [f"body {seq}" for seq in WHOLE]
    records = tail(run, "-o", "first", "--http").out
    assert [b"x-hbuf-seq: %d\r\n" % seq in records for seq in range(1, 14)] == [seq in LEFT for seq in range(1, 14)]
    assert b"user-5" not in records


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        (["-n", "3"], [8, 9, 13]),
        (["-n", "99"], LEFT),
        (["-o", "-5"], [6, 7, 8, 9, 13]),
        (["-o", "6"], [6, 7, 8, 9, 13]),
        (["-o", "10"], [13]),
        (["-o", "5", "-c", "2"], [5, 6]),
        (["-o", "first", "--key", "user-8"], [8]),
        (["-o", "first", "--key", "user-5"], []),
        (["-o", "first", "--tag", "odd"], [7, 9, 13]),
        (["-o", "first", "-g", "body [4-6]"], [4, 6]),
        (["-o", "first", "--since", "2000-01-01"], LEFT),
        (["-o", "first", "--until", "2000-01-01"], []),
        (["-o", "@1h"], LEFT),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_places_and_filters_find_what_is_there(run: Run, orders: Path, options: list[str], seqs: list[int]) -> None:
    assert numbers(tail(run, "--json", *options)) == seqs


def test_since_the_time_of_a_message_finds_it_in_a_compressed_segment(run: Run, orders: Path) -> None:
    [line] = tail(run, "-o", "8", "-c", "1", "--json").lines
    since = json.loads(line)["time"]
    assert numbers(tail(run, "-o", "first", "--since", since, "--json")) == [8, 9, 13]


def test_place_that_is_retired_is_said_and_what_is_left_is_shown(run: Run, orders: Path) -> None:
    done = tail(run, "-o", "2", "--json")
    assert [json.loads(line)["seq"] for line in done.lines] == LEFT
    assert "retired" in done.err


def test_grep_finds_what_is_left_and_nothing_of_what_went(run: Run, orders: Path) -> None:
    found = run("hbuf-grep", "-n", "body", orders, "--identity", "alice")
    assert (found.code, len(found.lines)) == (0, len(WHOLE))
    for what in (["body 5"], ["body 2"], ["--key", "user-5", "body"]):
        assert run("hbuf-grep", *what, orders, "--identity", "alice").code == 1
    assert run("hbuf-grep", "-c", "--tag", "even", "body", orders, "--identity", "alice").lines == ["3"]


def test_list_counts_from_the_first_that_is_there(run: Run, orders: Path) -> None:
    [said] = [json.loads(line) for line in run("hbuf-ls", "--json", orders).lines]
    assert (said["first"], said["last"], said["segments"], said["state"]) == (4, 13, 4, "open")
    assert said["bytes"] == sum(file.stat().st_size for file in orders.glob("segments/*.http*"))


def test_indexes_that_are_made_anew_are_the_same(run: Run, orders: Path) -> None:
    files = sorted([*orders.glob("segments/*.idx"), *orders.glob("segments/*.tags")])
    before = {file: file.read_bytes() for file in files if not file.name.endswith("13.idx")}
    assert len(before) == 6
    for file in files:
        file.unlink()
    assert run("hbuf-reindex", orders).code == 0
    for file, content in before.items():
        if file.suffix == ".idx":
            # Only the erase counter begins anew.
            assert (file.read_bytes()[:24], file.read_bytes()[32:]) == (content[:24], content[32:])
        else:
            assert file.read_bytes() == content
    assert numbers(tail(run, "-o", "first", "--json")) == LEFT
    check_verifies(run)
    append(run, 14)
    check_verifies(run)


def test_list_of_what_was_erased_erases_again_in_a_restored_backup(run: Run, orders: Path) -> None:
    shutil.copytree(orders, "backup")
    shutil.copytree("keys", "old-keys")
    assert run("hbuf-erase", orders, "8", "--reason", "asked for", "--sign", "audit") == INTACT
    told = run("hbuf-erase", orders, "--list").out
    Path("list").write_bytes(told)
    shutil.rmtree(orders)
    Path("backup").rename(orders)
    shutil.rmtree("keys")
    Path("old-keys").rename("keys")
    apply = ["hbuf-erase", "orders", "--apply", "list", "--reason", "asked for"]
    assert run(*apply).code == 77
    assert numbers(tail(run, "--key", "user-8", "--json")) == [8]
    done = run(*apply, "--sign", "audit")
    assert (done.code, done.out) == (0, b"")
    assert numbers(tail(run, "--key", "user-8", "--json")) == []
    assert run("hbuf-erase", orders, "--list").out == told
    check_verifies(run)


def test_shell_audits_it_without_hbuf(run: Run, orders: Path) -> None:
    for program in ("sha256sum", "zstdcat"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program}")
    done = run.real(AUDIT, orders)
    assert done.code == 0, done.err
    assert done.out.startswith(b"orders: ")
    [line] = tail(run, "-n", "1", "--json").lines
    assert done.lines[0].endswith(f"last 13 {json.loads(line)['id']}")
    assert "erased" in done.err


# Following


def read_lines(process: subprocess.Popen[bytes], wait_until: WaitUntil, shown: bytearray, count: int) -> list[int]:
    """The numbers that it has shown, once they are `count`."""
    assert process.stdout
    os.set_blocking(process.stdout.fileno(), False)

    def are_there() -> bool:
        assert process.stdout
        shown.extend(process.stdout.read() or b"")
        return shown.count(b"\n") >= count

    wait_until(are_there, f"{count} lines")
    return [json.loads(line)["seq"] for line in shown.splitlines()]


@pytest.mark.parametrize("options", [[], ["--poll"]], ids=["inotify", "poll"])
def test_follower_goes_on_while_segments_are_compressed_erased_in_and_retired(
    run: Run, orders: Path, wait_until: WaitUntil, options: list[str]
) -> None:
    follow = ["hbuf-tail", "-f", *options, "-o", "first", "--json", "--identity", "alice", "orders"]
    process = run.start(*follow)
    shown = bytearray()
    seqs = read_lines(process, wait_until, shown, len(LEFT))
    assert seqs == LEFT
    assert run("hbuf-erase", orders, "7", "13", "--reason", "asked for", "--sign", "audit") == INTACT  # 14, 15
    append(run, 16)
    assert read_lines(process, wait_until, shown, len(LEFT) + 1)[-1] == 16
    assert run("hbuf-compress", orders).code == 0
    append(run, 17)
    append(run, 18)
    append(run, 19)
    assert run("hbuf-retire", orders, "--sign", "audit").code == 0  # 20
    append(run, 21)
    assert read_lines(process, wait_until, shown, len(LEFT) + 5) == [*LEFT, 16, 17, 18, 19, 21]
    assert process.poll() is None
    check_verifies(run)
