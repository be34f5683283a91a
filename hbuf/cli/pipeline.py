"""hbuf-pipeline: stages from buffers to buffers on Spark, each message once."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from hbuf.cli.program import INTERRUPTED, Version, noticer, program, program_of, run
from hbuf.cli.spark_session import session as spark_session
from hbuf.cli.streams import complain, printable
from hbuf.errors import Locked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import TaskID

    from hbuf.spark.pipelines.model import Pipeline
    from hbuf.spark.pipelines.run import Runner, Watcher
    from hbuf.spark.pipelines.run_lock import RunLock
    from hbuf.spark.pipelines.status import StageStatus

NAME = "hbuf-pipeline"
_COLUMNS = ("STAGE", "STATE", "INPUT", "NEXT", "LAG", "ROWS", "TIME", "REASON")

File = Annotated[str, typer.Argument(metavar="FILE", help="The pipeline, a TOML file.", show_default=False)]
StageName = Annotated[str, typer.Argument(metavar="STAGE", help="One of its stages.", show_default=False)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def pipeline_command(version: Version = False) -> None:
    """Run stages from buffers to buffers on Spark: every message once."""


def check_command(file: File) -> int:
    """Find what is wrong before anything starts."""
    from hbuf.spark.pipelines.check import check

    with _problems_told() as told:
        pipeline = _load(file)
        with _session(pipeline) as session:
            check(pipeline, session)
    return told.code


def plan_command(file: File) -> int:
    """Draw the stages, and what goes from where to where."""
    from hbuf.spark.pipelines.plan import draw

    with _problems_told() as told:
        sys.stdout.write("".join(f"{printable(line)}\n" for line in draw(_load(file)).splitlines()))
    return told.code


def run_command(
    file: File,
    once: Annotated[bool, typer.Option("--once", help="Process what is there now, and end.")] = False,
    quiet: Quiet = False,
) -> int:
    """Process what is there, and go on as messages come."""
    with _problems_told() as told:
        pipeline = _load(file)
        with _lock(pipeline) as lock:
            lock.acquire()
            if once and not _has_work(pipeline):
                return 0  # as mostly in a cron job: Spark takes seconds to start
            with _runner(pipeline, lock, quiet) as runner:
                return _run_until_done(runner, _once(runner) if once else _following(pipeline, runner))
    return told.code


def rerun_command(
    file: File,
    stage: StageName,
    place: Annotated[
        str,
        typer.Option(
            "--from", metavar="PLACE", help="From PLACE on: first, last, end, N, -N, @TIME, @10m.", show_default=False
        ),
    ],
    quiet: Quiet = False,
) -> int:
    """Process a stage's input again, and what depends on it."""
    from hbuf.spark.pipelines.file import check_stage_name
    from hbuf.spark.pipelines.graph import descendants
    from hbuf.spark.pipelines.inputs import settled
    from hbuf.spark.pipelines.state import RerunRequest, stage_state

    with _problems_told() as told:
        pipeline = _load(file)
        inputs = check_stage_name(pipeline, stage).inputs
        request = RerunRequest(str(uuid.uuid4()), place, settled(inputs, place))

        def ask() -> None:
            stage_state(pipeline, stage).ask_for_rerun(request)

        with _lock(pipeline) as lock:
            try:
                lock.acquire()
            except Locked:
                ask()
                complain(NAME, f"{file}: the run that is under way, or the next one, reruns stage {stage}")
                return 0
            with _runner(pipeline, lock, quiet) as runner:
                ask()
                return _run_until_done(runner, _once(runner, descendants(pipeline, stage)))
    return told.code


def status_command(
    file: File,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a stage.")] = False,
) -> int:
    """Show how far each stage is."""
    from hbuf.spark.pipelines.status import pipeline_status

    with _problems_told() as told:
        found = pipeline_status(_load(file))
        if as_json:
            sys.stdout.write("".join(json.dumps(asdict(status)) + "\n" for status in found))
        else:
            _print_table([row for status in found for row in _rows(status)])
    return told.code


def _has_work(pipeline: Pipeline) -> bool:
    """Whether there is something to do. What is missing on disk is told all the same."""
    from hbuf.spark.pipelines.check import missing_files
    from hbuf.spark.pipelines.problems import BadPipeline
    from hbuf.spark.pipelines.status import pipeline_has_work

    problems = missing_files(pipeline)
    if problems:
        raise BadPipeline(pipeline.shown, problems)
    return pipeline_has_work(pipeline)


def _load(file: str) -> Pipeline:
    from hbuf.spark.pipelines.file import load_pipeline

    return load_pipeline(file)


class _Told:
    code = 0


@contextlib.contextmanager
def _problems_told() -> Iterator[_Told]:
    """A line for each thing that is wrong with a pipeline."""
    from hbuf.spark.pipelines.problems import BadPipeline

    told = _Told()
    try:
        yield told
    except BadPipeline as error:
        for problem in error.problems:
            complain(NAME, f"{error.shown}: {problem}")
        told.code = error.exit_code


def _lock(pipeline: Pipeline) -> RunLock:
    from hbuf.spark.pipelines.run_lock import RunLock

    return RunLock(pipeline.state, pipeline.shown)


@contextlib.contextmanager
def _session(pipeline: Pipeline) -> Iterator[SparkSession]:
    session = spark_session(f"{NAME} {pipeline.name}", pipeline.spark)
    from hbuf.spark.pipelines.check import leave_telling_to_us

    leave_telling_to_us()
    try:
        yield session
    finally:
        with contextlib.suppress(Exception):  # the signal that ends a service comes to Java too, which may be gone
            session.stop()


@contextlib.contextmanager
def _runner(pipeline: Pipeline, lock: RunLock, quiet: bool) -> Iterator[Runner]:
    with _session(pipeline) as session:
        from hbuf.spark.pipelines.prepare import prepared

        java = getattr(session.sparkContext._gateway, "proc", None)
        if java is not None:
            lock.name_java(java.pid)
        with (
            _progress(quiet) as watcher,
            prepared(pipeline, session, watcher=watcher, notice=noticer(f"{NAME}: {pipeline.shown}")) as runner,
        ):
            yield runner


def _once(runner: Runner, among: set[str] | None = None) -> tuple[Callable[[], None], Callable[[], None]]:
    return lambda: runner.round(among), runner.stop.set


def _following(pipeline: Pipeline, runner: Runner) -> tuple[Callable[[], None], Callable[[], None]]:
    from hbuf.spark.pipelines.follow import Follower

    follower = Follower(pipeline, runner)
    return follower.run, follower.stop


def _run_until_done(runner: Runner, ways: tuple[Callable[[], None], Callable[[], None]]) -> int:
    """Works in a thread of its own: a signal comes to this one, which then holds no lock that stopping needs."""
    work, stop = ways
    caught: list[int] = []
    errors: list[BaseException] = []

    def ask(number: int, frame: object) -> None:
        caught.append(number)
        stop()

    def try_to_work() -> None:
        try:
            work()
        except BaseException as error:  # raised again below
            errors.append(error)

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        worker = threading.Thread(target=try_to_work, name="pipeline")
        worker.start()
        worker.join()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if errors:
        raise errors[0]
    if signal.SIGINT in caught:
        return INTERRUPTED
    return next((failure.exit_code for failure in runner.failures.values()), 0)


@contextlib.contextmanager
def _progress(quiet: bool) -> Iterator[Watcher]:
    """A line a stage with its state and rows, on a terminal only."""
    if quiet or not sys.stderr.isatty():
        yield lambda stage, state, rows: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(finished_text=" "), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def watch(stage: str, state: str, rows: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=1)
            elif state == "running" and rows == 0:
                bar.reset(tasks[stage])
            text = f"{escape(stage)}  {state}  {rows:,} rows"
            bar.update(tasks[stage], description=text, completed=0 if state == "running" else 1)

        yield watch


def _rows(status: StageStatus) -> Iterator[tuple[str, ...]]:
    """A row for each buffer that a stage reads; of one that has none, one row."""
    told = (str(status.rows), status.time[:19] + "Z" if status.time else "-", printable(status.reason) or "-")
    for one in status.inputs:
        yield (status.stage, status.state, printable(one.buffer), str(one.next), str(one.lag), *told)
    if not status.inputs:
        yield (status.stage, status.state, "-", "-", "0", *told)


def _print_table(rows: list[tuple[str, ...]]) -> None:
    if sys.stdout.isatty():
        rows = [_COLUMNS, *rows]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
        rows = [tuple(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    for row in rows:
        sys.stdout.write(("  " if sys.stdout.isatty() else "\t").join(row).rstrip() + "\n")


app = program_of(
    [
        program("check", check_command, "Example: hbuf-pipeline check shop.toml"),
        program("plan", plan_command, "Example: hbuf-pipeline plan shop.toml"),
        program("run", run_command, "Example: hbuf-pipeline run --once shop.toml"),
        program("rerun", rerun_command, "Example: hbuf-pipeline rerun shop.toml totals --from @2h"),
        program("status", status_command, "Example: hbuf-pipeline status shop.toml"),
    ],
    pipeline_command,
    "Example: hbuf-pipeline run --once shop.toml",
)


def main() -> None:
    run(app, NAME)
