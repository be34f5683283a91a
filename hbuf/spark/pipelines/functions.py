"""The Python functions of stages: found beside the pipeline's file or on the path, and asked what they take."""

from __future__ import annotations

import importlib
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hbuf
from hbuf.spark.pipelines.model import Pipeline, Stage
from hbuf.spark.pipelines.problems import Problem
from hbuf.spark.pipelines.reasons import reason_of

Function = Callable[..., Any]

_PACKAGES = frozenset(("site-packages", "dist-packages"))
_EVERYWHERE = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), Path(hbuf.__file__).parent)


def load_functions(pipeline: Pipeline) -> tuple[dict[str, Function], list[Problem]]:
    """The functions by stage, and what is wrong with those that are not there."""
    folder = str(pipeline.folder)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    found: dict[str, Function] = {}
    problems = []
    for stage in pipeline.stages.values():
        if stage.function is not None:
            try:
                found[stage.name] = _load(stage, stage.function)
            except _Unusable as error:
                problems.append(Problem(stage.name, f"function: {error}"))
    return found, problems


def modules_beside(pipeline: Pipeline) -> Iterator[ModuleType]:
    """The modules that were loaded from the folder of the pipeline's file: no other machine has them.

    A Python that lies in that folder, as one of a project's own does, has brought modules that every machine has.
    """
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(pipeline.folder) and not _is_installed(Path(file)):
            yield module


def _is_installed(file: Path) -> bool:
    return not _PACKAGES.isdisjoint(file.parts) or any(file.is_relative_to(above) for above in _EVERYWHERE)


class _Unusable(Exception):
    pass


def _load(stage: Stage, named: str) -> Function:
    module_name, _, name = named.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a module does when it is loaded
        raise _Unusable(f"cannot import '{module_name}': {reason_of(error)[0]}") from None
    function: Function | None = getattr(module, name, None)
    if function is None or not callable(function):
        raise _Unusable(f"there is no function '{name}' in '{module_name}'")
    try:
        inspect.signature(function).bind(object(), **dict.fromkeys(stage.dependencies))
    except TypeError as error:
        expected = ", ".join(["input", *stage.dependencies])
        raise _Unusable(f"'{named}' cannot be called with ({expected}): {error}") from None
    except ValueError:
        pass  # something that does not tell what it takes
    return function
