"""Reads a pipeline's TOML file. It knows what may stand in it, and nothing of what is on disk but the file itself."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hbuf.errors import UsageError
from hbuf.format.names import is_buffer_name
from hbuf.format.places import parse_place
from hbuf.format.times import parse_duration_seconds
from hbuf.spark.pipelines.graph import graph_problems
from hbuf.spark.pipelines.model import Pipeline, Stage, StageInput
from hbuf.spark.pipelines.problems import BadPipeline, Problem
from hbuf.store.fsops import os_errors

LOG = "_pipelines"
# A stage's name is also a name in Python and in SQL.
_STAGE_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_INPUT_OPTIONS = frozenset(("from", "key", "tag", "columns", "identity", "mode", "maxRowsPerTrigger", "failOnDataLoss"))
_OUTPUT_OPTIONS = frozenset(("sign", "timeout", "staging"))
# Their values are files: beside the pipeline's own, unless they say where.
_FILE_OPTIONS = frozenset(("identity", "sign", "staging"))
# Read by nobody before a stage runs, unless here.
_PARSED_OPTIONS: Mapping[str, Callable[[str], object]] = {
    "from": lambda text: parse_place(text, 0),
    "timeout": parse_duration_seconds,
}
_OUTPUT_MODES = ("append", "update")


def load_pipeline(path: str) -> Pipeline:
    """The pipeline in the file at `path`. Raises BadPipeline with everything that is wrong with it."""
    with os_errors(path):
        content = Path(path).read_bytes()
    try:
        values = tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise BadPipeline(path, [Problem(None, "is not UTF-8")]) from None
    except tomllib.TOMLDecodeError as error:
        raise BadPipeline(path, [Problem(None, f"is not TOML: {error}")]) from None
    parsing = _Parsing(Path(os.path.abspath(path)), path)
    pipeline = parsing.pipeline(values)
    problems = parsing.problems or graph_problems(pipeline)
    if problems:
        raise BadPipeline(path, problems)
    return pipeline


class _Parsing:
    """Goes on after a fault, so that all of them are told."""

    def __init__(self, file: Path, shown: str) -> None:
        self._file = file
        self._shown = shown
        self._stage: str | None = None  # the one that is being read
        self.problems: list[Problem] = []

    def pipeline(self, values: Mapping[str, Any]) -> Pipeline:
        self._refuse_unknown(values, ("pipeline", "buffers", "stages", "spark"), "")
        about = self._table(values, "pipeline")
        self._refuse_unknown(about, ("name", "state", "log", "retries", "parallel"), "pipeline.")
        name = self._text(about, "name", default=self._file.stem)
        if not is_buffer_name(name):
            self._fault(f"pipeline.name: '{name}' cannot be a pipeline's name")
        retries, parallel = self._number(about, "retries", 3, 0), self._number(about, "parallel", 2, 1)
        state = Path(self._path(self._text(about, "state", default=f".{name}-state")))
        buffers = self._buffers(self._table(values, "buffers"))
        tables = self._table(values, "stages")
        if not tables:
            self._fault("there are no stages")
        outputs = {stage: self._output(tables, stage) for stage in tables}
        stages = {stage: self._read_stage(stage, tables[stage], outputs, buffers) for stage in tables}
        self._stage = None
        return Pipeline(
            self._file,
            self._shown,
            name,
            state,
            Path(self._path(self._text(about, "log", default=str(state / LOG)))),
            retries,
            parallel,
            {stage: read for stage, read in stages.items() if read is not None},
            {buffer: self._path(text) for buffer, text in buffers.items()},
            buffers,
            self._settings(self._table(values, "spark"), "spark"),
        )

    def _read_stage(
        self, name: str, values: object, outputs: Mapping[str, str], buffers: Mapping[str, str]
    ) -> Stage | None:
        self._stage = name
        if not _STAGE_NAME.fullmatch(name) or name == "input" or name in buffers:
            taken = "is also the name of a buffer" if name in buffers else "cannot be a stage's name"
            self._fault(f"'{name}' {taken}")
        if not isinstance(values, dict):
            self._fault("is not a table")
            return None
        known = ("input", "function", "sql", "output", "after", "dependencies", "output_mode")
        self._refuse_unknown(values, (*known, "input_options", "output_options"), "")
        function, sql = (self._text(values, each) if each in values else None for each in ("function", "sql"))
        if (function is None) == (sql is None):
            self._fault("needs a function or sql, and not both" if function else "needs a function or sql")
        if function and not _FUNCTION.fullmatch(function):
            self._fault(f"function: '{function}' is not module:function")
        mode = self._text(values, "output_mode", default="append")
        if mode not in _OUTPUT_MODES:
            self._fault(f"output_mode: '{mode}' is not {' or '.join(_OUTPUT_MODES)}")
        output = outputs[name]
        if not output:
            self._fault("output is missing")
        elif not is_buffer_name(Path(output).name) or Path(output).name.startswith("_"):
            self._fault(f"output: '{Path(output).name}' cannot be a buffer's name")
        return Stage(
            name,
            self._inputs(values, outputs),
            Path(self._path(output)),
            output,
            function,
            sql,
            self._names(values, "after", set(outputs), "stage"),
            self._names(values, "dependencies", {*outputs, *buffers}, "stage or buffer"),
            mode,
            self._options(values, "input_options", _INPUT_OPTIONS),
            self._options(values, "output_options", _OUTPUT_OPTIONS),
        )

    def _output(self, tables: Mapping[str, Any], stage: str) -> str:
        self._stage = stage
        values = tables[stage]
        return self._text(values, "output") if isinstance(values, dict) and "output" in values else ""

    def _inputs(self, values: Mapping[str, Any], outputs: Mapping[str, str]) -> tuple[StageInput, ...]:
        given = values.get("input", [])
        texts = self._texts({"input": [given] if isinstance(given, str) else given}, "input")
        if not texts:
            self._fault("input is missing")
        found = []
        for text in texts:
            stage = text.removeprefix("stage:") if text.startswith("stage:") else None
            if stage is None:
                found.append(StageInput(text, self._path(text)))
            elif stage in outputs:
                found.append(StageInput(stage, self._path(outputs[stage]), stage))
            else:
                self._fault(f"input: there is no stage '{stage}'")
        return tuple(found)

    def _names(self, values: Mapping[str, Any], key: str, known: set[str], what: str) -> tuple[str, ...]:
        names = self._texts(values, key)
        for name in names:
            if name not in known:
                self._fault(f"{key}: there is no {what} '{name}'")
        return tuple(dict.fromkeys(names))

    def _buffers(self, values: Mapping[str, Any]) -> dict[str, str]:
        texts = {name: self._text(values, name) for name in values}
        for name in texts:
            if not _STAGE_NAME.fullmatch(name) or name == "input":
                self._fault(f"buffers: '{name}' cannot be a name here")
        return texts

    def _options(self, values: Mapping[str, Any], key: str, known: frozenset[str]) -> dict[str, str]:
        given = self._table(values, key)
        self._refuse_unknown(given, sorted(known), f"{key}.")
        options = self._settings(given, key)
        options = {name.removeprefix(f"{key}."): value for name, value in options.items()}
        for name, parse in _PARSED_OPTIONS.items():
            if name in options:
                try:
                    parse(options[name])
                except UsageError as error:
                    self._fault(f"{key}.{name}: {error.message}")
        return {name: self._path(value) if name in _FILE_OPTIONS else value for name, value in options.items()}

    def _settings(self, values: Mapping[str, Any], above: str) -> dict[str, str]:
        """Tables in tables as dotted names, with values as Spark takes them."""
        settings = {}
        for name, value in values.items():
            if isinstance(value, dict):
                settings.update(self._settings(value, f"{above}.{name}"))
            elif isinstance(value, bool):
                settings[f"{above}.{name}"] = str(value).lower()
            elif isinstance(value, str | int | float):
                settings[f"{above}.{name}"] = str(value)
            else:
                self._fault(f"{above}.{name} is neither text nor a number")
        return settings

    # Values of one type. A wrong one is a fault, and something harmless stands in for it.

    def _table(self, values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        table: Mapping[str, Any] = self._typed(values, key, dict, "a table", dict)
        return table

    def _text(self, values: Mapping[str, Any], key: str, default: str = "") -> str:
        text: str = self._typed(values, key, str, "text", lambda: default)
        if values.get(key) == "":
            self._fault(f"{key} is empty")
            return default
        return text

    def _texts(self, values: Mapping[str, Any], key: str) -> list[str]:
        texts: list[object] = self._typed(values, key, list, "a list of texts", list)
        if not all(isinstance(text, str) and text for text in texts):
            self._fault(f"{key} is not a list of texts")
        return [text for text in texts if isinstance(text, str) and text]

    def _number(self, values: Mapping[str, Any], key: str, default: int, least: int) -> int:
        number: int = self._typed(values, key, int, "a number", lambda: default)
        if isinstance(number, bool) or number < least:
            self._fault(f"{key} is not a number from {least} on")
            return default
        return number

    def _typed(self, values: Mapping[str, Any], key: str, kind: type, what: str, default: Callable[[], Any]) -> Any:
        value = values.get(key)
        if value is None:
            return default()
        if not isinstance(value, kind):
            self._fault(f"{key} is not {what}")
            return default()
        return value

    def _refuse_unknown(self, values: Mapping[str, Any], known: tuple[str, ...] | list[str], above: str) -> None:
        for name in values:
            if name not in known:
                self._fault(f"there is no '{above}{name}' here: {', '.join(known)}")

    def _path(self, text: str) -> str:
        """Relative to the file, and without `..`."""
        if "://" in text:
            self._fault(f"'{text}' is a URL, and this version works on directories")
        return os.path.normpath(self._file.parent / text)

    def _fault(self, text: str) -> None:
        problem = Problem(self._stage, text)
        if problem not in self.problems:
            self.problems.append(problem)


def check_stage_name(pipeline: Pipeline, name: str) -> Stage:
    stage = pipeline.stages.get(name)
    if stage is None:
        raise UsageError(f"{pipeline.shown}: there is no stage '{name}'", hint=f"stages: {', '.join(pipeline.stages)}")
    return stage
