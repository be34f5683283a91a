"""contrib/bench: with small numbers it measures everything and prints every row. What it measures is not judged."""

import importlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CONTRIB = Path(__file__).parents[2] / "contrib"
PROGRAMS = ("append", "close", "create", "grep", "ls", "pause", "reindex", "set", "tail", "verify")
TYPER = "python -c 'import typer'"


def run_bench(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CONTRIB / "bench" / "run", *arguments],
        env=os.environ | ({"PATH": path} if path else {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(CONTRIB))
    return importlib.import_module("bench.table")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("bench")
    done = run_bench("local", "--messages", "300", "--repeat", "1", "--json", "--dir", str(directory))
    assert done.returncode == 0, done.stderr
    assert not list(directory.iterdir()), "it leaves nothing behind"
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def rows_of(measured: dict[str, Any], group: str) -> dict[tuple[str, str, str], dict[str, Any]]:
    rows = [row for row in measured["rows"] if row["group"] == group]
    found = {(row["what"], row["beside"], row["unit"]): row for row in rows}
    assert len(found) == len(rows), "no row is there twice"
    return found


def test_the_machine_is_named(measured: dict[str, Any]) -> None:
    about = measured["machine"]
    assert {"hbuf", "python", "cores", "file system"} <= set(about)
    assert int(about["cores"]) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("lines", ["300 lines of 100 bytes", "30 lines of 1000 bytes"])
def test_appending_a_stream_has_a_row_for_each_yardstick(measured: dict[str, Any], lines: str) -> None:
    rows = rows_of(measured, "append a stream")
    what = f"hbuf-append, {lines}"
    for beside in ("cat + sync", "Python minimum", "s6-log", "svlogd"):
        row = rows[what, beside, "messages/s"]
        installed = beside not in ("s6-log", "svlogd") or shutil.which(beside) is not None
        assert (row["beside_value"] is not None) == installed
        assert row["value"] > 0
    assert rows[what, "cat + sync", "MB/s"]["ratio"] > 0
    assert rows[f"{what}, peak memory", TYPER, "MB"]["ratio"] > 1


def test_appending_a_line_has_a_row_for_each_yardstick(measured: dict[str, Any]) -> None:
    besides = {beside for _, beside, _ in rows_of(measured, "append a line")}
    assert besides == {"python -c pass", TYPER, "sh -c 'echo >> f; sync f'"}


def test_bytes_on_disk_add_up(measured: dict[str, Any]) -> None:
    rows = [row["value"] for row in rows_of(measured, "disk").values()]
    assert len(rows) == 4
    assert rows[0] > 100
    assert sum(rows[:3]) == pytest.approx(rows[3])


def test_reading_and_searching_stand_beside_cat_and_grep(measured: dict[str, Any]) -> None:
    assert set(rows_of(measured, "read")) == {
        ("hbuf-tail -o first", "cat *.http, from the cache", "messages/s"),
        ("hbuf-tail -o first, of segments", "cat *.http, from the cache", "MB/s"),
        ("hbuf-tail -o first --json", "cat *.http, from the cache", "messages/s"),
        ("hbuf-tail -o first, peak memory", TYPER, "MB"),
    }
    assert set(rows_of(measured, "search")) == {
        ("hbuf-grep -c WORD", "grep -a -c WORD *.http, from the cache", "messages/s")
    }


def test_verifying_is_measured_with_one_process_and_with_all_cores(measured: dict[str, Any]) -> None:
    cores = f"all {len(os.sched_getaffinity(0))} cores"
    name = "b3sum" if shutil.which("b3sum") else "blake3 in Python (b3sum is not installed)"
    assert {(what, beside) for what, beside, unit in rows_of(measured, "verify") if unit == "MB/s"} == {
        ("hbuf-verify, 1 process", f"{name}, 1 process"),
        (f"hbuf-verify, {cores}", f"{name}, {cores}"),
        (f"hbuf-verify, {cores}", "hbuf-verify, 1 process"),
    }


def test_following_has_percentiles_from_both_moments(measured: dict[str, Any]) -> None:
    rows = rows_of(measured, "follow")
    for percent in (50, 95, 99):
        since_receipt = rows[f"hbuf-tail -f, p{percent} from its receipt", "tail -f of a file", "ms"]
        since_before = rows[f"hbuf-tail -f, p{percent} from before the append", "tail -f of a file", "ms"]
        assert since_receipt["value"] < since_before["value"], "an append takes some time"
    assert len(rows) == 7


def test_opening_is_measured_for_short_and_long_buffers(measured: dict[str, Any]) -> None:
    said = [what.partition(" (")[0] for what, _, _ in rows_of(measured, "open")]
    assert said == ["open and append to 1,000", "open and append to 30", "open and append to 300"]


def test_each_program_is_started(measured: dict[str, Any]) -> None:
    rows = rows_of(measured, "start")
    for program in PROGRAMS:
        assert rows[f"hbuf-{program} --help", TYPER, "ms"]["ratio"] > 0
    assert rows[TYPER, "python -c pass", "ms"]["ratio"] > 1


def test_text_shows_every_row_with_its_yardstick_and_ratio(table: Any) -> None:
    rows = [
        table.Row("append", "hbuf-append", 2000.0, "messages/s", "cat", 8000.0, 0.1, 0.255),
        table.Row("append", "hbuf-append", 2000.0, "messages/s", "s6-log", None),
        table.Row("follow", "hbuf-tail -f", 0.25, "ms", "tail -f", -0.1),
    ]
    assert table.as_text({"cores": "2"}, rows).splitlines()[-6:] == [
        "append",
        "  hbuf-append   2,000 messages/s ±10%  | cat      8,000 messages/s ±26%  | 0.25",
        "  hbuf-append   2,000 messages/s       | s6-log      not installed       |",
        "",
        "follow",
        "  hbuf-tail -f           0.25 ms       | tail -f          -0.10 ms       |",
    ]


def test_one_group_alone_can_be_measured(tmp_path: Path) -> None:
    done = run_bench("local", "--messages", "10", "--repeat", "1", "--only", "open", "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "open and append to 1,000 " in done.stdout
    assert "hbuf-verify" not in done.stdout


def test_an_area_that_does_not_exist_is_refused_with_the_list_of_those_that_do() -> None:
    done = run_bench("nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert "  local " in done.stderr
    helped = run_bench("--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "  local " in helped.stdout


def test_trust_has_a_row_for_each_kind_of_buffer(tmp_path: Path) -> None:
    done = run_bench("trust", "--messages", "200", "--repeat", "1", "--json", "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"
    rows = json.loads(done.stdout)["rows"]
    kinds = {"plain", "signed", "encrypted", "signed and encrypted", "compressed"}
    for what in ("hbuf-append", "hbuf-verify, 1 process", "hbuf-tail", "on disk"):
        assert {row["what"].removeprefix(f"{what}, ") for row in rows if row["what"].startswith(f"{what}, ")} == kinds
    assert all(row["value"] > 0 and row["beside"] == "plain" for row in rows)
