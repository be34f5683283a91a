"""A Spark session on this machine, for commands and tests that were given none."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession


def local_session(name: str, settings: Mapping[str, str] | None = None, *, master: str = "local[*]") -> SparkSession:
    """A session in UTC that writes nothing to the terminal but errors, and keeps no web page open."""
    builder = SparkSession.builder.master(master).appName(name)
    known = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for setting, value in {**known, **(settings or {})}.items():
        builder = builder.config(setting, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
