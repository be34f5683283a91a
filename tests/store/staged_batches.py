"""Two batches of rows that are staged and delivered, computed anew with each try: every try has other rows."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyarrow as pa

from hbuf import library
from hbuf.spark.delivery import Delivery, chunk_limits
from hbuf.spark.destinations import IntoDirectory
from hbuf.spark.staging import StagedFile, Staging, make_staging, sender_of
from hbuf.store.directory import BufferDirectory
from hbuf.store.tail import newest_opening
from hbuf.store.writer import Writer

BATCHES = (0, 1)
# Chunks have at most 3 messages here, and files pieces of as many: 2, and then 1, the last of both partitions.
ROWS = (4, 2)
QUERY = "spark-query"


def prepare(where: Path) -> None:
    where.mkdir()
    library.create(where / "orders", segment_messages="3").close()
    make_staging(where / "orders/staging")


def staging_in(where: Path) -> Staging:
    settings = newest_opening(BufferDirectory(where / "orders")).settings
    return Staging(where / "orders/staging", sender_of(settings.uuid, QUERY))


def stage(where: Path, version: str, batch: int) -> list[StagedFile]:
    """As the tasks do: a file a partition."""
    limits = chunk_limits(newest_opening(BufferDirectory(where / "orders")).settings)
    files = []
    for partition, count in enumerate(ROWS):
        rows = pa.record_batch({"body": [f"{version} {batch} {partition} {row}" for row in range(count)]})
        files.append(staging_in(where).stage(batch, partition, [rows], limits))
    return [file for file in files if file is not None]


def deliver(where: Path, batch: int, files: list[StagedFile]) -> None:
    """As the driver does."""
    with Writer(BufferDirectory(where / "orders")) as writer:
        Delivery(IntoDirectory(writer), staging_in(where), QUERY.encode(), 0).deliver(batch, files)


def try_all(where: Path, version: str) -> None:
    for batch in BATCHES:
        deliver(where, batch, stage(where, version, batch))


def bodies_in(where: Path) -> list[str]:
    return [message.body.decode() for message in library.open(where / "orders").read()]


def expected(batch: int, version: str) -> list[str]:
    return [f"{version} {batch} {part} {row}" for part, count in enumerate(ROWS) for row in range(count)]


def check_delivered(where: Path) -> list[str]:
    """Every row of every batch is there once and in order, all of a batch of one version. Returns the versions."""
    bodies = bodies_in(where)
    versions = [
        found[0] for batch in BATCHES if (found := re.findall(rf"^(\w+) {batch} ", "\n".join(bodies), re.MULTILINE))
    ]
    assert bodies == [body for batch, version in enumerate(versions) for body in expected(batch, version)]
    assert len(versions) == len(BATCHES)
    assert library.open(where / "orders").verify().ok
    assert os.listdir(where / "orders/staging") == []
    return versions
