"""A Spark session for commands and tests that were given none: on this machine, unless the user configured another.

A session that exists is used as it is. What the user has configured (spark-submit, spark-defaults.conf, spark-env.sh,
PYSPARK_PYTHON, a log4j2.properties of theirs) counts more than what is set here. Spark is started through the
process's environment, which is read here, and is as before when the session is there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from hbuf.errors import Unavailable
from hbuf.spark.java import java_home

_QUIET_LOGGING = Path(__file__).with_name("log4j2.properties")

_UNLESS_CONFIGURED = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}
_UNLESS_CONFIGURED_ON_THIS_MACHINE = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


# By one of these a user says which Spark to use, and it may need this machine's own address.
_CONFIGURED_BY = ("MASTER", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME")


def local_session(name: str, settings: Mapping[str, str] | None = None, *, master: str | None = None) -> SparkSession:
    """The session that there is, or a new one in UTC that writes nothing to the terminal.

    Without `master`, it is the one that the user has configured, or `local[*]`.
    """
    if SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    wanted = {"spark.app.name": name, "spark.ui.showConsoleProgress": "false", **(settings or {})}
    if master is not None:
        wanted["spark.master"] = master
    _silence_py4j()
    with _environment(_for_spark(os.environ, master)), _interrupts_wait():
        _start_java(wanted)
        conf = SparkConf().setAll(list(wanted.items()))  # over what spark-submit and spark-defaults.conf say
        known = _UNLESS_CONFIGURED
        if conf.get("spark.master", "local").startswith("local"):
            known = known | _UNLESS_CONFIGURED_ON_THIS_MACHINE
        for setting, value in known.items():
            conf.setIfMissing(setting, value)
        return SparkSession.builder.config(conf=conf).getOrCreate()


def _start_java(settings: Mapping[str, str]) -> None:
    """Starts the Java process that pyspark talks to, unless spark-submit or an earlier session did."""
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    with java_home(os.environ) as home, _environment({"JAVA_HOME": str(home)}):
        try:
            SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))
        except PySparkRuntimeError as error:
            raise Unavailable("Spark could not be started; Java says why") from error


def _for_spark(environment: Mapping[str, str], master: str | None) -> dict[str, str]:
    """What Spark's scripts, its Java process and its Python workers find in their environment."""
    wanted = {"PYSPARK_PYTHON": sys.executable}
    conf = environment.get("SPARK_CONF_DIR") or os.path.join(environment.get("SPARK_HOME", ""), "conf")
    if not any(Path(conf).glob("log4j2*")):
        wanted["LOG4J_CONFIGURATION_FILE"] = str(_QUIET_LOGGING)
    if (master or "").startswith("local") or not any(name in environment for name in _CONFIGURED_BY):
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"  # the name of this machine may lead nowhere
    return {name: value for name, value in wanted.items() if not environment.get(name)}


@contextlib.contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """A ^C in the block counts at its end, with the handler that was there before.

    A Java process whose start is broken off would never end. And Spark leaves a handler that asks Java to cancel all
    jobs through the very connection that waits for one of them, which fails.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts:
        signal.raise_signal(signal.SIGINT)


def _silence_py4j() -> None:
    """What it cannot send it logs with its stack, and then raises: a ^C, too. Some of it goes to the root logger."""
    if logging.getLogger("py4j").level == logging.NOTSET:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"
