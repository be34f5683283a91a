"""`format("hbuf")` with a URL: what is stored, what is refused, and that no task gets a credential."""

from __future__ import annotations

import itertools
import os
import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from hbuf.errors import HbufError
from hbuf.spark.target import Target, target_of

from .numbered_lines import bodies, lines_of, put_files, stream, writing

if TYPE_CHECKING:
    from running_daemon import RunningDaemon

ROWS = StructType().add("body", "string")
_names = itertools.count(1)


class Sink:
    """A buffer of a daemon that is not there yet, and what is needed to write to it."""

    def __init__(self, daemon: RunningDaemon, tmp_path: Path) -> None:
        name = f"from-spark-{next(_names)}"
        self.daemon = daemon
        self.url = f"https://127.0.0.1:{daemon.port}/b/{name}"
        self.directory = daemon.root / "tenants/default/buffers" / name
        self.staging = tmp_path / "staging"
        self.access = {"cacert": str(daemon.cacert), "token_file": str(daemon.root / "admin.token")}
        self.options = {**self.access, "staging": str(self.staging)}

    def target(self, **options: str) -> Target:
        return target_of({"path": self.url, **self.options, **options}, ROWS, overwrite=False)


@pytest.fixture
def sink(daemon: RunningDaemon, tmp_path: Path) -> Sink:
    return Sink(daemon, tmp_path)


def test_a_batch_is_stored_by_partition_and_row_and_that_of_a_producer_once(spark: SparkSession, sink: Sink) -> None:
    frame = spark.range(0, 100, 1, 3).selectExpr("cast(id as string) as body", "'k' as key")
    writer = frame.write.format("hbuf").mode("append").options(**sink.options)
    writer.save(sink.url)
    content = (sink.directory / "segments/00000000000000000001.http").read_bytes()
    assert bodies(sink.directory) == [str(i) for i in range(100)]
    assert b"x-hbuf-batch: 100/100\r\n" in content
    assert b"x-hbuf-producer" not in content
    for _ in range(2):
        writer.option("producer", "nightly").option("batch", 7).save(sink.url)
    assert len(bodies(sink.directory)) == 200
    assert os.listdir(sink.staging) == []


def test_a_stream_is_stored_once_by_batch_and_row(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    for end in (1, 2):
        put_files(tmp_path / "in", 0, end)
        query = writing(stream(spark, tmp_path), tmp_path).options(**sink.options).start(sink.url)
        assert query.awaitTermination(60)
    content = b"".join(path.read_bytes() for path in sorted((sink.directory / "segments").glob("*.http")))
    assert bodies(sink.directory) == lines_of(0, 2)
    assert set(re.findall(rb"x-hbuf-producer: (.*)\r", content)) == {f"spark-{query.id}".encode()}
    assert os.listdir(sink.staging) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"staging": None}, "option staging is missing: rows cannot be staged in a buffer that is on a server"),
        ({"create": "false"}, "there is no such buffer"),
        ({"sign": "/keys/a.key"}, "option sign is for a directory"),
        ({"token": "hbuf_secret"}, "there is no option 'token'"),
        ({"token_file": "/missing"}, "/missing: No such file or directory"),
        ({"staging": "https://host/b/a"}, "https://host/b/a: is a URL, and only what the workers can open"),
        ({"timeout": "soon"}, "'soon' is not a length of time"),
        ({"path": "http://host/b/orders"}, "only HTTPS is spoken over a network"),
        ({"path": "s3://orders"}, "is neither a directory nor an https:// URL"),
        ({"path": "/tmp/orders"}, "option cacert is for a URL, and this is a directory"),
    ],
)
def test_wrong_options_are_refused_in_one_line(sink: Sink, options: dict[str, str | None], said: str) -> None:
    given = {"path": sink.url, **sink.options, **options}
    with pytest.raises(HbufError) as caught:
        target_of({name: value for name, value in given.items() if value is not None}, ROWS, overwrite=False)
    assert said in caught.value.message
    assert caught.value.message.startswith(f"hbuf: {given['path']}: ")
    assert "\n" not in caught.value.message
    assert "secret" not in caught.value.message
    assert not sink.directory.exists()


def test_a_password_in_a_url_is_refused_and_not_repeated(sink: Sink) -> None:
    with pytest.raises(HbufError) as caught:
        sink.target(path=sink.url.replace("//", "//admin:secret@"))
    assert caught.value.message.startswith("hbuf: a URL cannot hold a password")


def test_what_tasks_get_holds_no_secret_and_a_new_token_is_used(sink: Sink, tmp_path: Path) -> None:
    token = tmp_path / "writer.token"
    token.touch(0o600)
    token.write_text(sink.daemon.token)
    target = sink.target(token_file=str(token))
    sent = pickle.dumps(target)
    assert sink.daemon.token.encode() not in sent
    token.write_text("hbuf_default.aaaaaaaa_revoked")
    arrived: Target = pickle.loads(sent)
    with pytest.raises(HbufError) as caught, arrived.telling(), arrived.delivery("query", b"query") as delivery:
        delivery.deliver(0, [])
    assert caught.value.http_status == 401
    token.write_text(sink.daemon.token)
    with arrived.delivery("query", b"query") as delivery:
        delivery.deliver(0, [])


def test_access_is_found_where_the_commands_find_it(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HBUF_CACERT", sink.access["cacert"])
    monkeypatch.setenv("HBUF_TOKEN_FILE", sink.access["token_file"])
    target_of({"path": sink.url, "staging": str(sink.staging)}, ROWS, overwrite=False)
    assert sink.directory.exists()
