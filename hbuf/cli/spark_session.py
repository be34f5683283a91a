"""The one way by which commands come to Spark, and what they say where it is not installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from hbuf.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The user's Spark session, or one on this machine. Spark is imported only here: that takes a second."""
    if not spark_is_installed():
        raise Unavailable("needs Spark", hint="pip install 'hbuf[spark]'")
    from hbuf.spark.session import local_session

    return local_session(name, settings)


def spark_is_installed() -> bool:
    return all(find_spec(package) for package in ("numpy", "pyarrow", "pyspark"))


def need_pyarrow() -> None:
    """For what works without Spark, but not without Arrow."""
    if not all(find_spec(package) for package in ("numpy", "pyarrow")):
        raise Unavailable("needs pyarrow", hint="pip install 'hbuf[spark]'")
