"""A pipeline's file and its buffers, each test in a directory of its own."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import hbuf
from hbuf.errors import NotFound
from hbuf.spark.pipelines.file import load_pipeline
from hbuf.spark.pipelines.model import Pipeline
from hbuf.spark.pipelines.problems import BadPipeline

Load = Callable[[str], Pipeline]
Problems = Callable[[str], list[str]]
Fill = Callable[..., Path]
Bodies = Callable[[str], list[str]]
Module = Callable[[str], str]

_NUMBERS = itertools.count()


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """load(TOML): the pipeline in a file shop.toml that has this text."""

    def load_text(text: str) -> Pipeline:
        file = tmp_path / "shop.toml"
        file.write_text(text)
        return load_pipeline(str(file))

    return load_text


@pytest.fixture
def problems(load: Load) -> Problems:
    """problems(TOML): what is said to be wrong with it, line by line."""

    def refused(text: str) -> list[str]:
        with pytest.raises(BadPipeline) as caught:
            load(text)
        assert caught.value.exit_code == 2
        return [str(problem) for problem in caught.value.problems]

    return refused


@pytest.fixture
def fill(tmp_path: Path) -> Fill:
    """fill("orders", ["one", "two"], key="k"): appends to a buffer, which is made if it is missing."""

    def append(name: str, bodies: Sequence[str], key: str | None = None) -> Path:
        path = tmp_path / name
        with hbuf.open(path, create=True) as buffer:
            if bodies:
                buffer.append_many([hbuf.draft(body.encode(), key=key) for body in bodies])
        return path

    return append


@pytest.fixture
def bodies(tmp_path: Path) -> Bodies:
    """bodies("orders"): what is stored, in order; of a buffer that is not made yet, nothing."""

    def read(name: str) -> list[str]:
        try:
            with hbuf.open(tmp_path / name) as buffer:
                return [message.body.decode() for message in buffer.read()]
        except NotFound:
            return []

    return read


@pytest.fixture
def module(tmp_path: Path) -> Module:
    """module(source): a module beside the pipeline's file, under a name that no other test has."""

    def write(source: str) -> str:
        name = f"pipeline_stages_{next(_NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(source)
        return name

    return write
