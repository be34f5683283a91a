"""The demo's Spark job, and how Spark comes to where it is not installed: in a checkout, by the checkout's set-up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from hbuf.cli.spark_session import set_up_of_checkout, spark_is_installed
from hbuf.errors import Unavailable

NAMES = {"spark": "Spark", "java": "Java 17 or newer"}  # what each extra brings

JOB = """\
from pyspark.sql import functions as f

from hbuf.spark.session import local_session

spark = local_session("hbuf demo")
messages = spark.read.format("hbuf").load(["orders", "refunds"])

tagged = messages.select("buffer", f.explode("tags").alias("tag"), f.date_trunc("minute", "time").alias("minute"))
tagged.groupBy("buffer", "tag", "minute").count().orderBy("buffer", "minute").show(truncate=False)

messages.createTempView("messages")
spark.sql("SELECT buffer, seq, string(body) FROM messages WHERE string(body) LIKE '%tea' ORDER BY 1, 2").show()
"""


def missing_extras(environment: Mapping[str, str]) -> list[str]:
    """Which extras of hbuf a Spark job needs, and this Python and this machine do not have."""
    from hbuf.spark.java import find_java

    extras = [] if spark_is_installed() else ["spark"]
    try:
        find_java(environment)
    except Unavailable:
        extras.append("java")
    return extras


def install(extras: Sequence[str]) -> str | None:
    """Adds them to the environment of this checkout. Returns why it did not, if so."""
    set_up = set_up_of_checkout()
    if set_up is None:
        return f"It is left out. To have it: pip install 'hbuf[{','.join(extras)}]'"
    python = os.path.realpath(sys.executable)  # outside of the environment that it changes
    for extra in extras:
        command = [python, "-E", "-P", str(set_up), str(set_up.parents[1]), sys.prefix, extra]
        if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno()).returncode:
            return "It could not be fetched, and is left out."
    return None
