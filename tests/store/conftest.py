"""Fixtures of the fault tests."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")


@pytest.fixture
def ram_path(tmp_path: Path) -> Iterator[Path]:
    """An empty directory in memory, where there is one: for tests that sync thousands of times and cut no power."""
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="hbuf-test-", dir=_MEMORY) as path:
        yield Path(path)
