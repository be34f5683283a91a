"""hbuf-pipeline as a shell uses it, as far as that needs no Spark; tests/spark/pipelines has the rest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hbuf.spark.pipelines.run_lock import RunLock

if TYPE_CHECKING:
    from cli.conftest import MakeBuffer, Run, Terminal

SHOP = """
[stages.clean]
input = "orders"
sql = "select body from input"
output = "out/clean"

[stages.totals]
input = "stage:clean"
sql = "select body from input"
output = "out/totals"
"""


@pytest.fixture
def shop(make_buffer: MakeBuffer) -> Path:
    make_buffer("orders", [b"one", b"two"])
    Path("shop.toml").write_text(SHOP)
    return Path("shop.toml")


@pytest.mark.usefixtures("shop")
def test_plan_is_drawn_on_stdout(run: Run) -> None:
    done = run("hbuf-pipeline", "plan", "shop.toml")
    assert (done.code, done.err) == (0, "")
    assert done.lines == [
        "pipeline shop",
        "state    .shop-state",
        "log      .shop-state/_pipelines",
        "",
        "1  orders ------> clean (SQL) --> out/clean",
        "",
        "2  clean -------> totals (SQL) --> out/totals",
    ]
    assert sorted(path.name for path in Path().iterdir()) == ["orders", "script-cwd", "shop.toml"]


@pytest.mark.usefixtures("shop")
def test_status_of_a_pipeline_that_never_ran(run: Run) -> None:
    done = run("hbuf-pipeline", "status", "shop.toml")
    assert (done.code, done.err) == (0, "")
    assert done.lines == ["clean\twaiting\tdefault/orders\t1\t2\t0\t-\t-", "totals\twaiting\t-\t-\t0\t0\t-\t-"]
    done = run("hbuf-pipeline", "status", "--json", "shop.toml")
    assert [json.loads(line) for line in done.lines] == [
        {
            "stage": "clean",
            "state": "waiting",
            "reason": "",
            "time": None,
            "rows": 0,
            "seconds": 0,
            "lag": 2,
            "inputs": [{"buffer": "default/orders", "next": 1, "lag": 2}],
        },
        {
            "stage": "totals",
            "state": "waiting",
            "reason": "",
            "time": None,
            "rows": 0,
            "seconds": 0,
            "lag": 0,
            "inputs": [],
        },
    ]


@pytest.mark.parametrize("command", [["check"], ["plan"], ["run"], ["run", "--once"], ["status"]])
def test_every_fault_of_a_file_is_a_line_and_2(run: Run, command: list[str]) -> None:
    Path("shop.toml").write_text(SHOP.replace("stage:clean", "stage:cleen").replace("sql", "sqll"))
    done = run("hbuf-pipeline", *command, "shop.toml")
    known = "input, function, sql, output, after, dependencies, output_mode, input_options, output_options"
    assert (done.code, done.out) == (2, b"")
    assert done.err.splitlines() == [
        f"hbuf-pipeline: shop.toml: stage clean: there is no 'sqll' here: {known}",
        "hbuf-pipeline: shop.toml: stage clean: needs a function or sql",
        f"hbuf-pipeline: shop.toml: stage totals: there is no 'sqll' here: {known}",
        "hbuf-pipeline: shop.toml: stage totals: needs a function or sql",
        "hbuf-pipeline: shop.toml: stage totals: input: there is no stage 'cleen'",
    ]
    assert not Path(".shop-state").exists()


@pytest.mark.parametrize("command", ["check", "plan", "run", "status"])
def test_missing_file_is_66(run: Run, command: str) -> None:
    done = run("hbuf-pipeline", command, "missing.toml")
    assert done == (66, b"", "hbuf-pipeline: missing.toml: No such file or directory\n")


@pytest.mark.usefixtures("shop")
def test_second_run_is_refused_before_spark_is_started(run: Run, tmp_path: Path) -> None:
    with RunLock(tmp_path / ".shop-state", "shop.toml") as lock:
        lock.acquire()
        done = run("hbuf-pipeline", "run", "--once", "shop.toml")
    assert (done.code, done.out) == (75, b"")
    assert done.err.startswith("hbuf-pipeline: shop.toml: is being run by process ")
    assert len(done.err.splitlines()) == 1


@pytest.mark.usefixtures("shop")
def test_rerun_while_a_run_is_under_way_is_left_to_it(run: Run, tmp_path: Path) -> None:
    with RunLock(tmp_path / ".shop-state", "shop.toml") as lock:
        lock.acquire()
        done = run("hbuf-pipeline", "rerun", "shop.toml", "clean", "--from", "-1")
    assert done == (
        0,
        b"",
        "hbuf-pipeline: shop.toml: the run that is under way, or the next one, reruns stage clean\n",
    )
    asked = json.loads((tmp_path / ".shop-state/stages/clean/rerun.json").read_bytes())
    assert (asked["place"], asked["start"]) == ("-1", {"default/orders": 2})


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nobody", "--from", "first"], "shop.toml: there is no stage 'nobody'\nhint: stages: clean, totals\n"),
        (["clean", "--from", "soon"], "'soon' is not a place\nhint: "),
        (["clean"], "Missing option '--from'"),
    ],
)
def test_rerun_that_cannot_be_meant_is_2_and_leaves_nothing(run: Run, arguments: list[str], said: str) -> None:
    done = run("hbuf-pipeline", "rerun", "shop.toml", *arguments)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("hbuf-pipeline: " + said)
    assert not Path(".shop-state").exists()


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("command", ["check", "run"])
def test_without_spark_it_says_what_to_install(command: str) -> None:
    script = f"import sys; sys.modules['pyspark'] = None; sys.argv = ['hbuf-pipeline', '{command}', 'shop.toml']"
    done = subprocess.run(
        [sys.executable, "-c", f"{script}\nfrom hbuf.cli.pipeline import main\nmain()"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr.startswith("hbuf-pipeline: needs Spark\nhint: ")


def test_progress_is_shown_on_a_terminal_and_nowhere_else(terminal: Terminal) -> None:
    script = (
        "from hbuf.cli.pipeline import _progress\n"
        "with _progress(False) as watch:\n"
        "    for state, rows in (('running', 0), ('running', 1234), ('done', 1234), ('running', 0), ('failed', 0)):\n"
        "        watch('clean', state, rows)\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal.theirs, check=True)
    assert done.stdout == b""
    assert "clean  failed  0 rows" in terminal.read_all()
    assert subprocess.run(command, capture_output=True, check=True).stderr == b""


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("command", ["plan", "status"])
def test_plan_and_status_load_no_spark(command: str) -> None:
    script = (
        f"import sys; sys.argv = ['hbuf-pipeline', '{command}', 'shop.toml']\n"
        "from hbuf.cli.pipeline import main\n"
        "try:\n    main()\n"
        "finally:\n"
        "    print([name for name in ('pyspark', 'numpy', 'pyarrow') if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")
