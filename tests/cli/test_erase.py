"""hbuf-erase: messages go for good, by number or by key, and what went can be listed and applied to a backup."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hbuf

if TYPE_CHECKING:
    from cli.conftest import MakeBuffer, Run, Terminal

REASON = ("--reason", "asked for, case 311")


@pytest.fixture
def orders(make_buffer: MakeBuffer) -> Path:
    """Ten messages of three users, in segments of four."""
    drafts = [hbuf.draft(b"order %d" % i, key=f"user-{i % 3}", tags=[f"shop={i}"]) for i in range(1, 11)]
    return make_buffer("orders", drafts, segment_messages="4")


def erased_in(path: Path) -> list[int]:
    with hbuf.open(path) as buffer:
        return [message.seq for message in buffer.read() if message.erased]


@pytest.mark.over_https
def test_numbers_and_ranges_are_erased_in_silence(run: Run, orders: Path) -> None:
    assert run("hbuf-erase", "orders", "2", "4-6", "5", *REASON) == (0, b"", "")
    assert erased_in(orders) == [2, 4, 5, 6]
    assert run("hbuf-verify", "--quiet", "orders").code == 0


def test_rows_that_spark_has_staged_are_told_of(run: Run, orders: Path) -> None:
    (orders / "staging").mkdir()
    assert run("hbuf-erase", "orders", "2", *REASON) == (0, b"", "")
    (orders / "staging/left").touch()
    done = run("hbuf-erase", "orders", "3", *REASON)
    assert done.code == 0
    assert done.err.startswith("hbuf-erase: orders: staging/ has rows of a write that")
    assert erased_in(orders) == [2, 3]


@pytest.mark.over_https
def test_report_of_the_verifier_counts_what_was_erased(run: Run, orders: Path) -> None:
    run("hbuf-erase", "orders", "2", "3", *REASON)
    assert "  chain:        10 messages, 2 erased: ok" in run("hbuf-verify", "orders").lines
    assert json.loads(run("hbuf-verify", "--json", "orders").out)["verdicts"]["chain"]["erased"] == 2


@pytest.mark.over_https
def test_log_says_who_erased_it_and_why(run: Run, orders: Path) -> None:
    run("hbuf-erase", "orders", "2", *REASON)
    log = b"".join(file.read_bytes() for file in sorted(orders.glob("segments/*.http")))
    [delete] = [record for record in log.split(b"\r\n\r\n") if b"x-hbuf-erases: " in record]
    assert b"\r\nx-hbuf-erases: 2 " in delete
    assert b"\r\nx-hbuf-reason: asked for, case 311\r\n" in delete
    [by] = [line for line in delete.split(b"\r\n") if line.startswith(b"x-hbuf-by: ")]
    assert by.count(b"@") == 1


@pytest.mark.over_https
def test_all_messages_of_a_key_are_erased(run: Run, orders: Path) -> None:
    assert run("hbuf-erase", "orders", "--key", "user-1", *REASON) == (0, b"", "")
    assert erased_in(orders) == [1, 4, 7, 10]
    assert [path for path in orders.rglob("*") if path.is_file() and b"user-1" in path.read_bytes()] == []
    assert run("hbuf-tail", "--key", "user-1", "-o", "first", "orders") == (0, b"", "")


@pytest.mark.over_https
def test_key_that_no_message_has_is_nothing_to_do(run: Run, orders: Path) -> None:
    assert run("hbuf-erase", "orders", "--key", "user-9", *REASON) == (0, b"", "")
    assert erased_in(orders) == []


@pytest.mark.over_https
def test_erased_again_is_nothing_to_do(run: Run, orders: Path) -> None:
    run("hbuf-erase", "orders", "2", *REASON)
    last = run("hbuf-verify", "orders").lines[0]
    assert run("hbuf-erase", "orders", "2", *REASON) == (0, b"", "")
    assert run("hbuf-verify", "orders").lines[0] == last


@pytest.mark.over_https
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["11", *REASON], 66, "message 11 is not there"),
        (["1", "9-12", *REASON], 66, "message 12 is not there"),
        (["1-999999999999999999", *REASON], 66, "message 999999999999999999 is not there"),
        (["1"], 2, "a --reason is needed to erase"),
        (["1", "--reason", ""], 2, "the reason cannot be empty"),
        (["1", "--reason", "two\nlines"], 2, "the reason must be one line of text"),
        (["0", *REASON], 2, "'0' is not a number or a range"),
        (["3-2", *REASON], 2, "'3-2' is not a number or a range"),
        (["one", *REASON], 2, "'one' is not a number or a range"),
        ([*REASON], 2, "choose one of SEQ, --key, --list and --apply"),
        (["1", "--key", "user-1", *REASON], 2, "choose one of SEQ, --key, --list and --apply"),
        (["1", "--json", *REASON], 2, "--json goes with --dry-run"),
        (["--list", "--dry-run"], 2, "--dry-run goes with SEQ or --key"),
        (["--apply", "missing.txt", *REASON], 66, "missing.txt: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_refused_with_one_line_and_nothing_is_erased(
    run: Run, orders: Path, arguments: list[str], code: int, said: str
) -> None:
    done = run("hbuf-erase", "orders", *arguments)
    assert (done.code, done.out) == (code, b"")
    assert said in done.err.splitlines()[0]
    assert erased_in(orders) == []


@pytest.mark.over_https
def test_record_that_says_what_was_erased_cannot_be_erased_but_is_passed_over_in_a_range(
    run: Run, orders: Path
) -> None:
    run("hbuf-erase", "orders", "2", *REASON)
    done = run("hbuf-erase", "orders", "11", *REASON)
    assert (done.code, done.err) == (
        77,
        "hbuf-erase: orders: 11 says what was erased or retired, and cannot be erased itself\n",
    )
    assert run("hbuf-erase", "orders", "9-11", *REASON) == (0, b"", "")
    assert erased_in(orders) == [2, 9, 10]


@pytest.mark.over_https
def test_buffer_that_is_not_erasable_is_77(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("fixed", [b"one"], erasable="false")
    for arguments in (["1", *REASON], ["1", "--dry-run"]):
        done = run("hbuf-erase", "fixed", *arguments)
        assert (done.code, done.out) == (77, b"")
        assert "erasable=false" in done.err


@pytest.mark.over_https
def test_paused_buffer_is_75_and_closed_one_77(run: Run, orders: Path) -> None:
    run("hbuf-pause", "orders")
    assert run("hbuf-erase", "orders", "1", *REASON, "--timeout", "10ms").code == 75
    run("hbuf-pause", "--resume", "orders")
    run("hbuf-close", "orders")
    assert run("hbuf-erase", "orders", "1", *REASON, "--timeout", "10ms").code == 77
    assert erased_in(orders) == []


def test_signed_buffer_needs_its_key(run: Run) -> None:
    run("hbuf-key", "new", "audit", "--kind", "sign")
    run("hbuf-append", "--sign", "audit", "signed", stdin=b"one\ntwo\n")
    assert run("hbuf-erase", "signed", "1", *REASON).code == 77
    assert erased_in(Path("signed")) == []
    assert run("hbuf-erase", "signed", "1", *REASON, "--sign", "audit") == (0, b"", "")
    assert erased_in(Path("signed")) == [1]
    assert run("hbuf-verify", "--quiet", "--signer", "audit", "signed").code == 0


# Reading


@pytest.mark.over_https
def test_tail_passes_over_what_is_erased_and_says_so_where_it_was_asked_for(run: Run, orders: Path) -> None:
    run("hbuf-erase", "orders", "2", "9", *REASON)
    assert run("hbuf-tail", "-o", "2", "-c", "1", "orders") == (0, b"", "hbuf-tail: orders: message 2 is erased\n")
    assert run("hbuf-tail", "-o", "1", "-c", "3", "orders") == (0, b"order 1\norder 3\n", "")
    assert run("hbuf-tail", "-o", "8", "-c", "3", "-D", "|", "orders") == (0, b"order 8|order 10|", "")


@pytest.mark.over_https
def test_json_says_that_it_is_erased_and_nothing_else_of_it(run: Run, orders: Path) -> None:
    run("hbuf-erase", "orders", "2", *REASON)
    [line] = run("hbuf-tail", "-o", "2", "-c", "1", "--json", "orders").lines
    values = json.loads(line)
    assert (values["seq"], values["erased"], values["body"]) == (2, True, None)
    assert (values["key"], values["tags"], values["headers"]) == (None, [], [])


@pytest.mark.over_https
def test_records_are_written_as_they_are_stored_and_not_stored_again(run: Run, orders: Path) -> None:
    run("hbuf-erase", "orders", "2", *REASON)
    records = run("hbuf-tail", "-o", "first", "--http", "orders").out
    assert records.count(b"\r\nx-hbuf-gone: ") == 1
    assert run("hbuf-append", "--http", "copy", stdin=records) == (0, b"", "")
    assert run("hbuf-tail", "-o", "first", "copy").lines == [f"order {i}" for i in range(1, 11) if i != 2]


@pytest.mark.over_https
@pytest.mark.parametrize("options", [[], ["-v"], ["-F"], ["-i"]])
def test_grep_never_finds_what_is_erased(run: Run, orders: Path, options: list[str]) -> None:
    run("hbuf-erase", "orders", "2", *REASON)
    for pattern in ("order 2", "user-2", "", "zzz", "-", "\\x00"):
        lines = run("hbuf-grep", "-n", *options, pattern, "orders").lines
        assert not [line for line in lines if line.startswith("2:")]


# Looking first


@pytest.mark.over_https
def test_dry_run_lists_what_would_go_and_erases_nothing(run: Run, orders: Path) -> None:
    run("hbuf-erase", "orders", "4", *REASON)
    done = run("hbuf-erase", "orders", "--key", "user-1", "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert [(line.split("\t")[0], line.split("\t")[2]) for line in done.lines] == [
        ("1", "user-1"),
        ("7", "user-1"),
        ("10", "user-1"),
    ]
    assert erased_in(orders) == [4]


@pytest.mark.over_https
def test_dry_run_as_json(run: Run, orders: Path) -> None:
    lines = run("hbuf-erase", "orders", "3", "1", "--dry-run", "--json").lines
    found = [json.loads(line) for line in lines]
    assert [(each["seq"], each["key"]) for each in found] == [(1, "user-1"), (3, "user-0")]
    assert all(set(each) == {"seq", "time", "key"} for each in found)


def test_dry_run_on_a_terminal_is_a_table(run: Run, orders: Path, terminal: Terminal) -> None:
    process = run.start("hbuf-erase", "orders", "1-2", "--dry-run", stdout=terminal.theirs)
    process.wait()
    head, *rows = terminal.read_all().splitlines()
    assert head.split() == ["SEQ", "TIME", "KEY"]
    assert [row.split()[0] for row in rows] == ["1", "2"]


# Lists


@pytest.mark.over_https
def test_list_names_what_was_erased_and_nothing_of_what_it_said(run: Run, orders: Path) -> None:
    assert len(run("hbuf-erase", "--list", "orders").lines) == 1
    with hbuf.open(orders) as buffer:
        ids = {message.seq: message.id for message in buffer.read()}
    run("hbuf-erase", "orders", "9", *REASON)
    run("hbuf-erase", "orders", "2", *REASON)
    head, *lines = run("hbuf-erase", "--list", "orders").lines
    uuid = json.loads(run("hbuf-verify", "--json", "orders").out)["uuid"]
    assert head == f"hbuf erased {uuid}"
    assert [(line.split()[0], line.split()[1]) for line in lines] == [("2", ids[2]), ("9", ids[9])]


@pytest.mark.over_https
def test_restored_backup_is_erased_again_after_the_list(run: Run, orders: Path) -> None:
    """The backup is older than the erase; messages came in between, and one of them was erased, too."""
    shutil.copytree(orders, "backup")
    run("hbuf-append", "orders", stdin=b"order 11\n")
    run("hbuf-erase", "orders", "2", "7", "11", *REASON)
    Path("erased.txt").write_bytes(run("hbuf-erase", "--list", "orders").out)
    shutil.rmtree("orders")
    shutil.copytree("backup", "orders")
    assert erased_in(orders) == []
    done = run("hbuf-erase", "orders", "--apply", "erased.txt", *REASON)
    assert (done.code, done.out) == (0, b"")
    assert done.err == "hbuf-erase: orders: 1 of the 3 messages that the list names are not in this buffer\n"
    assert erased_in(orders) == [2, 7]
    assert run("hbuf-verify", "--quiet", "orders").code == 0
    last = run("hbuf-verify", "orders").lines[0]
    assert run("hbuf-erase", "orders", "--apply", "-", *REASON, stdin=Path("erased.txt").read_bytes()).code == 0
    assert run("hbuf-verify", "orders").lines[0] == last


@pytest.mark.over_https
def test_backup_that_has_the_deletes_but_came_back_unerased_gets_no_second_ones(run: Run, orders: Path) -> None:
    """As when segments are restored one by one."""
    segment = orders / "segments" / f"{1:020d}.http"
    before = segment.read_bytes()
    run("hbuf-erase", "orders", "2", *REASON)
    segment.write_bytes(before)
    assert run("hbuf-verify", "--quiet", "orders").code == 65
    Path("erased.txt").write_bytes(run("hbuf-erase", "--list", "orders").out)
    assert run("hbuf-erase", "orders", "--apply", "erased.txt", *REASON) == (0, b"", "")
    assert run("hbuf-verify", "orders").lines[0].startswith("orders: intact: 10 messages, last 11 ")


@pytest.mark.over_https
def test_list_of_another_buffer_is_refused(run: Run, orders: Path, make_buffer: MakeBuffer) -> None:
    other = make_buffer("other", [b"one", b"two"])
    run("hbuf-erase", "orders", "2", *REASON)
    Path("erased.txt").write_bytes(run("hbuf-erase", "--list", "orders").out)
    done = run("hbuf-erase", "other", "--apply", "erased.txt", *REASON)
    assert (done.code, done.out) == (77, b"")
    assert "the list is of another buffer" in done.err
    assert erased_in(other) == []


@pytest.mark.over_https
def test_message_that_is_another_one_than_the_list_names_stays(run: Run, orders: Path) -> None:
    shutil.copytree(orders, "backup")
    run("hbuf-append", "orders", stdin=b"order 11\n")
    run("hbuf-erase", "orders", "2", "11", *REASON)
    Path("erased.txt").write_bytes(run("hbuf-erase", "--list", "orders").out)
    shutil.rmtree("orders")
    shutil.copytree("backup", "orders")
    run("hbuf-append", "orders", stdin=b"another order 11\n")
    done = run("hbuf-erase", "orders", "--apply", "erased.txt", *REASON)
    assert (done.code, done.out) == (0, b"")
    assert done.err == "hbuf-erase: orders: 1 of the 2 messages that the list names are not in this buffer\n"
    assert erased_in(orders) == [2]


@pytest.mark.over_https
def test_list_that_is_cut_is_65(run: Run, orders: Path) -> None:
    run("hbuf-erase", "orders", "2", *REASON)
    done = run("hbuf-erase", "orders", "--apply", "-", *REASON, stdin=run("hbuf-erase", "--list", "orders").out[:-1])
    assert (done.code, done.err) == (65, "hbuf-erase: the list of erased messages is cut short\n")


def test_interrupted_erase_is_finished_by_the_same_command(run: Run, orders: Path) -> None:
    segment = orders / "segments" / f"{1:020d}.http"
    before = segment.read_bytes()
    run("hbuf-erase", "orders", "2", *REASON)
    segment.write_bytes(before)
    (orders / "erasing").write_bytes(b"2\n")
    assert run("hbuf-verify", "--quiet", "orders").code == 65
    done = run("hbuf-erase", "orders", "2", *REASON)
    assert done.code == 0
    assert "an erase was interrupted" in done.err
    assert run("hbuf-verify", "--quiet", "orders").code == 0


def test_backup_while_messages_are_erased_restores_whole(run: Run, orders: Path) -> None:
    """hbuf-pause holds an erase off, as any writer."""
    erasing = subprocess.Popen(
        [
            "hbuf-pause",
            "orders",
            "--",
            "sh",
            "-c",
            "hbuf-erase orders 2 --reason x --timeout 50ms; tar cf orders.tar orders",
        ]
    )
    assert erasing.wait(30) == 0
    shutil.rmtree("orders")
    subprocess.run(["tar", "xf", "orders.tar"], check=True)
    assert erased_in(orders) == []
    assert run("hbuf-verify", "--quiet", "orders").code == 0


@pytest.mark.over_https
def test_last_messages_are_messages_and_not_what_says_that_some_were_erased(run: Run, orders: Path) -> None:
    run("hbuf-erase", "orders", "1-6", *REASON)
    assert run("hbuf-tail", "-n", "2", "orders") == (0, b"order 9\norder 10\n", "")
    assert run("hbuf-tail", "-o", "last", "orders") == (0, b"order 10\n", "")
    assert run("hbuf-tail", "-o", "-4", "-c", "1", "orders") == (0, b"order 7\n", "")
    assert run("hbuf-tail", "orders") == (0, b"order 7\norder 8\norder 9\norder 10\n", "")
    assert len(run("hbuf-tail", "-n", "99", "--json", "orders").lines) == 10
    assert run("hbuf-tail", "-n", "0", "orders") == (0, b"", "")
    run("hbuf-append", "orders", stdin=b"order 17\n")
    assert run("hbuf-tail", "-n", "2", "orders") == (0, b"order 10\norder 17\n", "")


def test_head_of_a_signed_buffer_covers_the_erase(run: Run) -> None:
    run("hbuf-key", "new", "audit", "--kind", "sign")
    run("hbuf-append", "--sign", "audit", "signed", stdin=b"one\ntwo\n")
    run("hbuf-erase", "signed", "1", *REASON, "--sign", "audit")
    Path("signed.note").write_bytes(run("hbuf-head", "signed").out)
    assert run("hbuf-verify", "--quiet", "--signer", "audit", "--head", "signed.note", "signed").code == 0
