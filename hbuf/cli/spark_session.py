"""The one way by which commands come to Spark, and what they say where it is not installed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hbuf.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The user's Spark session, or one on this machine. Spark is imported only here: that takes a second."""
    if not spark_is_installed():
        raise Unavailable("needs Spark", hint=_way_to_spark())
    from hbuf.spark.session import local_session

    return local_session(name, settings)


def spark_is_installed() -> bool:
    return all(find_spec(package) for package in ("numpy", "pyarrow", "pyspark"))


def need_pyarrow() -> None:
    """For what works without Spark, but not without Arrow."""
    if not all(find_spec(package) for package in ("numpy", "pyarrow")):
        raise Unavailable("needs pyarrow", hint=_way_to_spark())


def set_up_of_checkout() -> Path | None:
    """The program that adds to the environment of this checkout, if it is one that runs."""
    set_up = Path(__file__).resolve().parents[2] / "bin/set_up.py"
    return set_up if set_up.is_file() and Path(sys.prefix, "hbuf-ready").is_file() else None


def _way_to_spark() -> str:
    return "'bin/hbuf demo' fetches it" if set_up_of_checkout() is not None else "pip install 'hbuf[spark]'"
