"""hbuf-verify: intact is 0; anything that was changed, cut, swapped or left out is 65, and the place is named."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hbuf

if TYPE_CHECKING:
    from cli.conftest import MakeBuffer, Run, Terminal

KINDS = ["bytes", "chain", "completeness", "settings", "index"]


@pytest.fixture
def orders(make_buffer: MakeBuffer) -> Path:
    """Ten messages with keys, four in a segment."""
    messages = [hbuf.draft(b"body %d" % i, key=f"k{i}", tags=["all"]) for i in range(1, 11)]
    return make_buffer("orders", messages, segment_messages="4")


def ids(path: Path) -> dict[int, str]:
    with hbuf.open(path) as buffer:
        return {message.seq: message.id for message in buffer.read()}


def report(run: Run, *arguments: str, code: int) -> dict[str, Any]:
    done = run("hbuf-verify", "--json", *arguments)
    assert (done.code, done.err, len(done.lines)) == (code, "", 1)
    found: dict[str, Any] = json.loads(done.out)
    return found


def places(found: dict[str, Any], kind: str) -> list[tuple[str, int, int | None]]:
    return [(place["file"], place["byte"], place["seq"]) for place in found["faults"][kind]["places"]]


def segment(first: int) -> Path:
    return Path(f"orders/segments/{first:020d}.http")


def start_of(number: int, content: bytes) -> int:
    return content.index(b"POST /b/orders HTTP/1.1\r\nhost: hbuf\r\nx-hbuf-seq: %d\r\n" % number)


@pytest.mark.over_https
def test_intact_buffer_is_0_with_a_report(run: Run, orders: Path) -> None:
    done = run("hbuf-verify", "orders")
    assert (done.code, done.err) == (0, "")
    assert done.lines[0].startswith("orders: intact: 10 messages, ")
    assert ids(orders)[10] in done.lines[0]
    size = sum(path.stat().st_size for path in orders.glob("segments/*.http"))
    assert re.search(rf"bytes: +{size} in 3 segments: ok", done.out.decode())
    for kind in KINDS:
        assert re.search(rf"^ +{kind}: .*: ok$", done.out.decode(), re.MULTILINE)


@pytest.mark.over_https
def test_intact_buffer_as_json(run: Run, orders: Path) -> None:
    found = report(run, "orders", code=0)
    settings = json.loads((orders / "buffer.json").read_text())
    assert (found["ok"], found["buffer"], found["uuid"]) == (True, "orders", settings["uuid"])
    assert {"program", "version", "date", "signatures", "not_checked", "notes"} <= found.keys()
    assert found["not_checked"] == {}
    scope = found["scope"]
    assert (scope["segments"], scope["messages"], scope["first"], scope["last"]) == (3, 10, 1, 10)
    assert scope["last_id"] == ids(orders)[10]
    assert [found["faults"][kind] for kind in KINDS] == [{"count": 0, "places": []}] * 5


@pytest.mark.over_https
def test_empty_buffer_is_intact(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("empty")
    assert run("hbuf-verify", "empty").code == 0


@pytest.mark.over_https
@pytest.mark.parametrize("hash_name", ["blake3", "sha256"])
@pytest.mark.parametrize("erasable", ["true", "false"])
def test_each_kind_of_buffer_can_be_verified(run: Run, make_buffer: MakeBuffer, hash_name: str, erasable: str) -> None:
    make_buffer("orders", [b"one", b"two"], hash=hash_name, erasable=erasable)
    assert run("hbuf-verify", "--quiet", "orders") == (0, b"", "")
    segment(1).write_bytes(segment(1).read_bytes().replace(b"\r\n\r\ntwo", b"\r\n\r\ntoo"))
    assert run("hbuf-verify", "--quiet", "orders") == (65, b"", "")


@pytest.mark.over_https
@pytest.mark.parametrize(
    ("old", "new"),
    [(b"body 6", b"b0dy 6"), (b"x-hbuf-key: k6", b"x-hbuf-key: k9"), (b"x-hbuf-tag: all\r\n", b"x-hbuf-tag: ill\r\n")],
    ids=["body", "key", "tag"],
)
def test_changed_message_is_named_by_number_and_byte(run: Run, orders: Path, old: bytes, new: bytes) -> None:
    content = segment(5).read_bytes()
    start = start_of(6, content)
    segment(5).write_bytes(content[:start] + content[start:].replace(old, new, 1))
    found = report(run, "orders", code=65)
    assert not found["ok"]
    assert places(found, "chain") == [(segment(5).name, start, 6)]
    text = run("hbuf-verify", "orders")
    assert text.code == 65
    assert text.lines[0].startswith("orders: NOT INTACT: ")
    assert f"    {segment(5).name}: byte {start}: message 6: " in text.out.decode()


@pytest.mark.over_https
@pytest.mark.parametrize("number", [b"1", b"5", b"7", b"9"])
def test_changed_number_of_a_message_is_found(run: Run, orders: Path, number: bytes) -> None:
    content = segment(5).read_bytes()
    start = start_of(6, content)
    segment(5).write_bytes(content.replace(b"x-hbuf-seq: 6\r\n", b"x-hbuf-seq: %b\r\n" % number))
    found = report(run, "orders", code=65)
    named = [place[:2] for kind in ("bytes", "chain", "completeness") for place in places(found, kind)]
    assert (segment(5).name, start) in named


@pytest.mark.over_https
@pytest.mark.parametrize("position", [b"x-hbuf-time: 2", b"x-hbuf-salt: ", b"x-hbuf-id: "])
def test_changed_head_salt_or_id_is_found(run: Run, orders: Path, position: bytes) -> None:
    content = segment(5).read_bytes()
    start = start_of(6, content)
    at = content.index(position, start) + len(position)
    changed = b"1" if content[at : at + 1] == b"0" else b"0"
    segment(5).write_bytes(content[:at] + changed + content[at + 1 :])
    found = report(run, "orders", code=65)
    assert (segment(5).name, start, 6) in places(found, "chain") + places(found, "bytes")


@pytest.mark.over_https
def test_garbage_between_records_is_named_by_its_byte(run: Run, orders: Path) -> None:
    content = segment(5).read_bytes()
    start = start_of(6, content)
    segment(5).write_bytes(content[:start] + b"garbage\r\n" + content[start:])
    found = report(run, "orders", code=65)
    assert (segment(5).name, start, 6) in places(found, "bytes")


@pytest.mark.over_https
def test_message_taken_out_of_the_middle_is_found(run: Run, orders: Path) -> None:
    content = segment(5).read_bytes()
    segment(5).write_bytes(content[: start_of(6, content)] + content[start_of(7, content) :])
    found = report(run, "orders", code=65)
    assert found["faults"]["chain"]["count"] + found["faults"]["completeness"]["count"] > 0
    assert (segment(5).name, start_of(6, content), 7) in places(found, "chain") + places(found, "completeness")


@pytest.mark.over_https
def test_missing_segment_is_named_with_the_numbers_that_are_gone(run: Run, orders: Path) -> None:
    for path in orders.glob("segments/00000000000000000005.*"):
        path.unlink()
    done = run("hbuf-verify", "orders")
    assert done.code == 65
    assert f"    {segment(9).name}: byte 0: message 9: messages 5 to 8 are missing" in done.lines


@pytest.mark.over_https
def test_swapped_segments_are_found(run: Run, orders: Path) -> None:
    for suffix in (".http", ".idx", ".tags"):
        first, second = (segment(number).with_suffix(suffix) for number in (1, 5))
        first.rename("between")
        second.rename(first)
        Path("between").rename(second)
    found = report(run, "orders", code=65)
    assert found["faults"]["completeness"]["count"] > 0
    assert {file for file, _, _ in places(found, "completeness")} >= {segment(1).name, segment(5).name}


@pytest.mark.over_https
def test_segment_of_another_buffer_is_found(run: Run, orders: Path, make_buffer: MakeBuffer) -> None:
    messages = [hbuf.draft(b"body %d" % i, key=f"k{i}", tags=["all"]) for i in range(1, 11)]
    make_buffer("other", messages, segment_messages="4")
    for suffix in (".http", ".idx", ".tags"):
        name = segment(5).with_suffix(suffix).name
        shutil.copy(Path("other/segments") / name, Path("orders/segments") / name)
    found = report(run, "orders", code=65)
    assert found["faults"]["completeness"]["count"] > 0


@pytest.mark.over_https
def test_first_segments_that_are_gone_are_missed_unless_the_auditor_says_from(run: Run, orders: Path) -> None:
    known = ids(orders)
    for path in orders.glob("segments/00000000000000000001.*"):
        path.unlink()
    done = run("hbuf-verify", "orders")
    assert done.code == 65
    assert "begins with message 5" in done.out.decode()
    assert run("hbuf-verify", "-q", "--from", f"5:{known[5]}", "orders").code == 0
    assert run("hbuf-verify", "-q", "--from", f"5:{known[6]}", "orders").code == 65
    assert run("hbuf-verify", "-q", "--from", f"6:{known[6]}", "orders").code == 65


@pytest.mark.over_https
def test_head_that_is_there_is_0(run: Run, orders: Path) -> None:
    for number, known in ids(orders).items():
        assert run("hbuf-verify", "-q", "--head", f"{number}:{known}", "orders") == (0, b"", "")


def test_cut_tail_is_intact_by_itself_and_named_against_a_head(run: Run, orders: Path) -> None:
    known = ids(orders)
    content = segment(9).read_bytes()
    segment(9).write_bytes(content[: start_of(10, content)])
    segment(9).with_suffix(".idx").unlink()
    assert run("hbuf-verify", "-q", "orders").code == 0
    done = run("hbuf-verify", "--head", f"10:{known[10]}", "orders")
    assert done.code == 65
    assert "message 10: --head: message 10 is not there" in done.out.decode()
    assert run("hbuf-verify", "-q", "--head", f"9:{known[9]}", "orders").code == 0
    assert run("hbuf-verify", "-q", "--head", f"9:{known[10]}", "orders").code == 65


@pytest.mark.over_https
def test_cut_tail_is_found_by_an_index_that_knew_more(run: Run, orders: Path) -> None:
    content = segment(9).read_bytes()
    segment(9).write_bytes(content[: start_of(10, content)])
    found = report(run, "orders", code=65)
    assert places(found, "completeness") == [(segment(9).name, start_of(10, content), 10)]


def test_half_a_record_at_the_end_is_named(run: Run, orders: Path) -> None:
    content = segment(9).read_bytes()
    segment(9).write_bytes(content[:-5])
    segment(9).with_suffix(".idx").unlink()
    found = report(run, "orders", code=65)
    assert places(found, "bytes") == [(segment(9).name, start_of(10, content), 10)]


@pytest.mark.over_https
def test_changed_settings_file_is_found(run: Run, orders: Path) -> None:
    settings = orders / "buffer.json"
    settings.write_text(settings.read_text().replace('"segment_messages": 4', '"segment_messages": 5'))
    found = report(run, "orders", code=65)
    assert [file for file, _, _ in places(found, "settings")] == ["buffer.json"]


@pytest.mark.over_https
def test_missing_settings_file_is_a_note_since_the_chain_has_the_settings(run: Run, orders: Path) -> None:
    (orders / "buffer.json").unlink()
    found = report(run, "orders", code=0)
    assert [note for note in found["notes"] if "buffer.json" in note]


@pytest.mark.over_https
@pytest.mark.parametrize("suffix", [".idx", ".tags"])
def test_index_and_tags_are_compared_and_may_be_missing(run: Run, orders: Path, suffix: str) -> None:
    path = segment(1).with_suffix(suffix)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert report(run, "orders", code=65)["faults"]["index"]["count"] == 1
    path.unlink()
    found = report(run, "orders", code=0)
    assert [note for note in found["notes"] if path.name in note]


@pytest.mark.over_https
def test_damaged_opening_is_named_and_what_is_behind_it_is_not_called_right(run: Run, orders: Path) -> None:
    segment(5).write_bytes(b"X" + segment(5).read_bytes()[1:])
    found = report(run, "orders", code=65)
    assert (segment(5).name, 0, None) in places(found, "bytes")
    assert found["not_checked"]


@pytest.mark.over_https
def test_several_buffers_are_all_reported_and_the_worst_is_the_exit_code(
    run: Run, orders: Path, make_buffer: MakeBuffer
) -> None:
    make_buffer("payments", [b"1"])
    segment(1).write_bytes(segment(1).read_bytes().replace(b"body 2", b"body X"))
    done = run("hbuf-verify", "payments", "orders", "payments")
    assert done.code == 65
    verdicts = [line.split(":")[:2] for line in done.lines if not line.startswith(" ")]
    assert verdicts == [["payments", " intact"], ["orders", " NOT INTACT"], ["payments", " intact"]]
    as_json = run("hbuf-verify", "--json", "payments", "orders")
    assert [json.loads(line)["ok"] for line in as_json.lines] == [True, False]


@pytest.mark.over_https
@pytest.mark.parametrize("option", ["-q", "--quiet"])
def test_quiet_says_nothing_either_way(run: Run, orders: Path, option: str) -> None:
    assert run("hbuf-verify", option, "orders") == (0, b"", "")
    segment(1).write_bytes(segment(1).read_bytes().replace(b"body 2", b"body X"))
    assert run("hbuf-verify", option, "orders") == (65, b"", "")


@pytest.mark.over_https
@pytest.mark.parametrize("jobs", ["1", "2", "100"])
def test_number_of_jobs_makes_no_difference(run: Run, make_buffer: MakeBuffer, jobs: str) -> None:
    """Large enough that processes are worth their start."""
    path = make_buffer("orders", [b"x" * 1_000_000] * 20, segment_bytes="4MiB")
    damaged = sorted(path.glob("segments/*.http"))[2]
    damaged.write_bytes(damaged.read_bytes().replace(b"x\r\nPOST", b"y\r\nPOST", 1))
    done = run.real("hbuf-verify", "--json", "--jobs", jobs, "orders")
    assert (done.code, done.err) == (65, "")
    found = json.loads(done.out)
    assert found["scope"]["messages"] == 20
    assert [file for file, _, _ in places(found, "chain")] == [damaged.name]


def test_progress_is_shown_on_a_terminal_unless_quiet_and_never_in_the_data(
    run: Run, orders: Path, terminal: Terminal
) -> None:
    process = run.start("hbuf-verify", "orders", stderr=terminal.theirs)
    progress = terminal.read_all()
    assert process.stdout
    assert process.stdout.read() == run("hbuf-verify", "orders").out
    assert "0:00:00" in progress  # the time that is left


@pytest.mark.over_https
def test_quiet_shows_no_progress_on_a_terminal(run: Run, orders: Path, terminal: Terminal) -> None:
    process = run.start("hbuf-verify", "-q", "orders", stdout=terminal.theirs, stderr=terminal.theirs)
    assert terminal.read_all() == ""
    assert process.wait(timeout=30) == 0


@pytest.mark.parametrize("head", ["10", "10:abc", ":" + "0" * 64, "ten:" + "0" * 64, "10:" + "X" * 64])
@pytest.mark.parametrize("option", ["--head", "--from"])
def test_head_that_is_no_head_is_2(run: Run, orders: Path, option: str, head: str) -> None:
    done = run("hbuf-verify", option, head, "orders")
    assert (done.code, done.out) == (2, b"")
    assert "is not SEQ:ID" in done.err


@pytest.mark.over_https
def test_it_changes_nothing(run: Run, orders: Path) -> None:
    segment(9).write_bytes(segment(9).read_bytes()[:-5])
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in orders.rglob("*") if path.is_file()}
    assert run("hbuf-verify", "orders").code == 65
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in before} == before
    assert {path for path in orders.rglob("*") if path.is_file()} == before.keys()


@pytest.mark.over_https
def test_missing_one_of_several_is_66_and_the_others_are_reported(run: Run, orders: Path) -> None:
    done = run("hbuf-verify", "missing", "orders")
    assert (done.code, done.err) == (66, "hbuf-verify: missing: there is no such buffer\n")
    assert done.lines[0].startswith("orders: intact: ")
    segment(1).write_bytes(segment(1).read_bytes().replace(b"body 2", b"body X"))
    assert run("hbuf-verify", "missing", "orders").code == 65
