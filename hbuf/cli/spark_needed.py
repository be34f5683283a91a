"""For commands that need Spark, which hbuf can do without: it may not be installed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hbuf.errors import Unavailable

_OF_THE_EXTRA = ("pyspark", "pyarrow", "numpy", "py4j")


@contextlib.contextmanager
def spark_needed() -> Iterator[None]:
    """Around the import of what is in hbuf.spark."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _OF_THE_EXTRA:
            raise
        raise Unavailable("needs Spark", hint="pip install 'hbuf[spark]'") from None
