"""hbuf-export: a consistent cut as files that other programs read."""

from __future__ import annotations

import json
import os
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import hbuf
from hbuf.format.settings import Settings
from hbuf.format.times import encode_time
from hbuf.ops.export_directory import DAY_US
from hbuf.store.create import create_buffer
from hbuf.store.directory import BufferDirectory
from hbuf.store.outgoing import Outgoing
from hbuf.store.writer import Writer

from .exported_files import bodies, files, lines, manifest, rows

if TYPE_CHECKING:
    from cli.conftest import MakeBuffer, PackagesWithout, Run

FORMS = pytest.mark.parametrize("form", ["jsonl", "parquet"])
COLUMNS = ["tenant", "buffer", "seq", "time", "id", "key", "tags", "headers", "body", "erased", "encrypted"]
ONE = hbuf.draft(b"one", key="user-17", tags=["host=web1", "urgent"], headers=[("content-type", "text/plain")])
FIRST_DAY = 20_000  # from 1970 on
BODIES = [b"one", b"", b"\x00\xff\r\n\r\n"]


def today() -> str:
    return datetime.now(UTC).date().isoformat()


@pytest.fixture
def orders(make_buffer: MakeBuffer) -> Path:
    return make_buffer("orders", [ONE, *BODIES[1:]], segment_messages="2")


class Noon:
    """A clock that stands at noon of some day."""

    def __init__(self, day: int) -> None:
        self._now_us = (FIRST_DAY + day) * DAY_US + DAY_US // 2

    def now_us(self) -> int:
        return self._now_us

    def steady_us(self) -> int:
        return 0


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """A buffer with two messages of each of three days."""
    directory = BufferDirectory(tmp_path / "days")
    settings = Settings(str(uuid.UUID(int=1)), "days", encode_time(Noon(0).now_us()))
    create_buffer(directory, settings, Noon(0))
    for day in range(3):
        with Writer(directory, clock=Noon(day)) as writer:
            writer.append(Outgoing([b"%d first" % day, b"%d second" % day]))
    return directory.path


def test_json_lines_are_those_of_hbuf_tail(run: Run, orders: Path) -> None:
    assert run("hbuf-export", "orders", "out", "--to", "jsonl") == (0, b"", "")
    name = f"day={today()}/part-00000-00000.jsonl"
    assert files("out") == ["_export.json", name]
    assert Path("out", name).read_bytes() == run("hbuf-tail", "--json", "-o", "first", "orders").out


def test_parquet_has_the_columns_of_the_spark_source(run: Run, orders: Path) -> None:
    assert run("hbuf-export", "orders", "out", "--to", "parquet") == (0, b"", "")
    [name] = [name for name in files("out") if name.endswith(".parquet")]
    with pq.ParquetFile(Path("out", name)) as file:
        assert file.schema_arrow.names == COLUMNS
        types = {field.name: str(field.type) for field in file.schema_arrow}
        assert types["time"] == "timestamp[us, tz=UTC]"
        assert (types["seq"], types["body"], types["erased"]) == ("int64", "binary", "bool")
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    first, second, third = rows("out")
    assert [first["body"], second["body"], third["body"]] == BODIES
    with hbuf.open("orders") as buffer:
        message = next(buffer.read())
    assert (first["seq"], first["time"], first["id"]) == (1, message.time, message.id)
    assert (first["tenant"], first["buffer"], first["key"]) == ("default", "orders", "user-17")
    assert first["tags"] == ["host=web1", "urgent"]
    assert first["headers"] == [{"name": "content-type", "value": "text/plain"}]
    assert (second["key"], second["tags"], second["headers"]) == (None, [], [])


@FORMS
def test_manifest_says_what_there_is(run: Run, orders: Path, form: str) -> None:
    before = time.time_ns() // 1000
    assert run("hbuf-export", "orders", "out", "--to", form).code == 0
    told = manifest("out")
    with hbuf.open("orders") as buffer:
        last = list(buffer.read())[-1]
    assert encode_time(before) <= told["at"] <= encode_time(time.time_ns() // 1000)
    assert (told["format"], told["by"], told["messages"]) == (form, "day", 3)
    [one] = told["buffers"]
    assert (one["tenant"], one["buffer"], one["first"], one["last"], one["last_id"]) == (
        "default",
        "orders",
        1,
        3,
        last.id,
    )
    assert (one["messages"], one["erased"], one["encrypted"], one["damaged"]) == (3, 0, 0, 0)
    assert [(file["path"], file["messages"]) for file in told["files"]] == [(name, 3) for name in files("out")[1:]]


@FORMS
def test_each_day_has_a_directory(run: Run, days: Path, form: str) -> None:
    assert run("hbuf-export", "days", "out", "--to", form) == (0, b"", "")
    first = datetime.fromtimestamp(FIRST_DAY * 86_400, UTC).date()
    assert files("out") == [
        "_export.json",
        *(f"day={first + timedelta(days=number)}/part-00000-0000{number}.{form}" for number in range(3)),
    ]
    assert bodies("out") == [b"%d %b" % (day, which) for day in range(3) for which in (b"first", b"second")]


@FORMS
def test_each_buffer_has_a_directory_with_its_tenant(run: Run, make_buffer: MakeBuffer, form: str) -> None:
    for path in ("orders", "tenants/acme/buffers/orders", "tenants/acme/buffers/logs"):
        make_buffer(path, [path.encode()])
    assert run("hbuf-export", ".", "out", "--to", form, "--by", "buffer") == (0, b"", "")
    assert files("out") == [
        "_export.json",
        f"tenant=acme/buffer=logs/part-00000-00000.{form}",
        f"tenant=acme/buffer=orders/part-00001-00000.{form}",
        f"tenant=default/buffer=orders/part-00002-00000.{form}",
    ]
    found = rows("out") if form == "parquet" else lines("out")
    assert [(row["tenant"], row["buffer"]) for row in found] == [
        ("acme", "logs"),
        ("acme", "orders"),
        ("default", "orders"),
    ]
    assert bodies("out")[0] == b"tenants/acme/buffers/logs"


def test_directories_links_and_globs_name_buffers_and_each_is_exported_once(run: Run, make_buffer: MakeBuffer) -> None:
    for name in ("a", "b", "c"):
        make_buffer(name, [name.encode()])
    Path("topic").mkdir()
    Path("topic/first").symlink_to("../a")
    Path("topic/second").symlink_to("../b")
    Path("photos").mkdir()
    assert run("hbuf-export", "topic", "a", "[bc]", "out", "--to", "jsonl") == (0, b"", "")
    assert [(line["buffer"], line["body"]) for line in lines("out")] == [("a", "a"), ("b", "b"), ("c", "c")]
    assert run("hbuf-export", "x*", "other", "--to", "jsonl").code == 66


def test_two_buffers_of_one_name_are_refused(run: Run, make_buffer: MakeBuffer) -> None:
    make_buffer("here/orders")
    make_buffer("there/orders")
    done = run("hbuf-export", "here", "there", "out", "--to", "jsonl")
    assert done == (2, b"", "hbuf-export: here/orders and there/orders: have the same tenant and name\n")
    assert not Path("out").exists()


@FORMS
def test_cut_at_a_time_has_what_is_not_later(run: Run, days: Path, form: str) -> None:
    noon = Noon(1).now_us()
    for at_us, last_day in ((noon, 2), (noon - 1, 1)):
        assert run("hbuf-export", "days", f"out{last_day}", "--to", form, "--at", encode_time(at_us)) == (0, b"", "")
        wanted = [b"%d %b" % (day, which) for day in range(last_day) for which in (b"first", b"second")]
        assert bodies(f"out{last_day}") == wanted
        assert manifest(f"out{last_day}")["at"] == encode_time(at_us)


@FORMS
def test_place_key_and_tag_choose_messages(run: Run, make_buffer: MakeBuffer, form: str) -> None:
    drafts = [hbuf.draft(b"%d" % i, key=f"k{i % 2}", tags=[f"t{i % 3}"]) for i in range(12)]
    make_buffer("orders", drafts, segment_messages="5")
    options = ["--from", "4", "--key", "k1", "--tag", "t0"]
    assert run("hbuf-export", "orders", "out", "--to", form, *options) == (0, b"", "")
    assert bodies("out") == [b"3", b"9"]
    [one] = manifest("out")["buffers"]
    assert (one["messages"], one["first"], one["last"]) == (2, 4, 10)
    assert run("hbuf-export", "orders", "last", "--to", form, "-o", "-2") == (0, b"", "")
    assert bodies("last") == [b"10", b"11"]


@FORMS
@pytest.mark.parametrize("compressed", [False, True])
def test_erased_messages_are_rows_without_a_body(run: Run, orders: Path, form: str, compressed: bool) -> None:
    assert run("hbuf-erase", "orders", "1", "--reason", "asked").code == 0
    assert not compressed or run("hbuf-compress", "orders").code == 0
    assert run("hbuf-export", "orders", "out", "--to", form) == (0, b"", "")
    found = rows("out") if form == "parquet" else lines("out")
    assert [row["seq"] for row in found] == [1, 2, 3]
    assert (found[0]["erased"], found[0]["body"], found[0]["key"]) == (True, None, None)
    assert not found[1]["erased"]
    assert manifest("out")["buffers"][0]["erased"] == 1


@FORMS
def test_retired_messages_are_told_where_they_were_asked_for(run: Run, make_buffer: MakeBuffer, form: str) -> None:
    make_buffer("orders", [b"%d" % i for i in range(7)], segment_messages="2", retention_messages="3")
    assert run("hbuf-retire", "orders").code == 0
    first = json.loads(run("hbuf-ls", "--json", "orders").out)["first"]
    assert first > 1
    assert run("hbuf-export", "orders", "out", "--to", form) == (0, b"", "")
    assert bodies("out")[0] == b"%d" % (first - 1)
    said = f"hbuf-export: orders: messages up to {first - 1} are retired; the first is {first}\n"
    assert run("hbuf-export", "orders", "more", "--to", form, "--from", "1") == (0, b"", said)


@FORMS
def test_encrypted_bodies_are_null_without_a_key_and_there_with_it(run: Run, form: str) -> None:
    for name in ("alice", "bob"):
        assert run("hbuf-key", "new", name, "--kind", "encrypt").code == 0
    assert run("hbuf-key", "new", "audit", "--kind", "sign").code == 0
    signed = ["--encrypt-to", "alice", "--sign", "audit"]
    assert run("hbuf-append", *signed, "-k", "user-17", "orders", stdin=b"tea\nmilk\n").code == 0
    assert run("hbuf-export", "orders", "closed", "--to", form) == (0, b"", "")
    found = rows("closed") if form == "parquet" else lines("closed")
    assert [(row["key"], row["body"], row["encrypted"]) for row in found] == [("user-17", None, True)] * 2
    assert manifest("closed")["buffers"][0]["encrypted"] == 2
    assert run("hbuf-export", "orders", "open", "--to", form, "--identity", "alice") == (0, b"", "")
    assert bodies("open") == [b"tea", b"milk"]
    assert manifest("open")["buffers"][0]["encrypted"] == 0
    done = run("hbuf-export", "orders", "other", "--to", form, "--identity", "bob")
    assert (done.code, done.out) == (77, b"")
    assert done.err == "hbuf-export: orders: message 1 is encrypted to others, and not to the key that was given\n"
    assert not Path("other").exists()


@FORMS
def test_damaged_message_ends_the_export_or_is_left_out_and_told(run: Run, orders: Path, form: str) -> None:
    segment = orders / "segments/00000000000000000001.http"
    content = segment.read_bytes()
    at = content.index(b"POST ")
    segment.write_bytes(content[:at] + b"GARB" + content[at + 4 :])
    place = f"hbuf-export: orders: {segment.name}: byte {at}: "
    done = run("hbuf-export", "orders", "out", "--to", form)
    assert (done.code, done.out) == (65, b"")
    line, hint = done.err.splitlines()
    assert line.startswith(place)
    assert hint == "hint: --skip-damaged leaves out what cannot be read"
    assert not Path("out").exists()
    done = run("hbuf-export", "orders", "out", "--to", form, "--skip-damaged")
    assert (done.code, done.out) == (0, b"")
    assert done.err.startswith(place)
    found = rows("out") if form == "parquet" else lines("out")
    assert [row["seq"] for row in found] == [2, 3]
    assert manifest("out")["buffers"][0]["damaged"] == 1


@FORMS
def test_empty_buffer_is_a_manifest_without_files(run: Run, make_buffer: MakeBuffer, form: str) -> None:
    make_buffer("orders")
    assert run("hbuf-export", "orders", "out", "--to", form) == (0, b"", "")
    assert files("out") == ["_export.json"]
    [one] = manifest("out")["buffers"]
    assert (one["messages"], one["first"], one["last"], one["last_id"]) == (0, None, None, None)


@pytest.mark.parametrize(("compress", "suffix"), [("gzip", ".gz"), ("zstd", ".zst")])
def test_json_lines_can_be_compressed(run: Run, orders: Path, compress: str, suffix: str) -> None:
    assert run("hbuf-export", "orders", "out", "--to", "jsonl", "--compress", compress) == (0, b"", "")
    assert files("out")[1].endswith(f".jsonl{suffix}")
    assert [line["seq"] for line in lines("out")] == [1, 2, 3]


def test_directory_that_is_not_empty_is_refused_and_stays_as_it_is(run: Run, orders: Path) -> None:
    Path("out").mkdir()
    assert run("hbuf-export", "orders", "out", "--to", "jsonl").code == 0
    before = files("out")
    for target, said in (("out", "is not empty"), ("orders", "is not empty"), ("orders/new", "is inside the buffer")):
        done = run("hbuf-export", "orders", target, "--to", "jsonl")
        assert (done.code, done.out) == (73, b"")
        assert f"hbuf-export: {target}: {said}" in done.err
    Path("file").write_bytes(b"content")
    assert run("hbuf-export", "orders", "file", "--to", "jsonl").code == 73
    assert files("out") == before
    assert not (orders / "new").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "Missing option '--to'"),
        (["--to", "csv"], "--to: 'csv' is not parquet or jsonl"),
        (["--to", "jsonl", "--by", "hour"], "--by: 'hour' is not day or buffer"),
        (["--to", "jsonl", "--at", "soon"], "'soon' is not a time"),
        (["--to", "jsonl", "--at", "2999-01-01"], "--at: 2999-01-01 is yet to come"),
        (["--to", "jsonl", "--from", "here"], "'here' is not a place"),
        (["--to", "jsonl", "--compress", "xz"], "--compress is gzip or zstd, and for jsonl"),
        (["--to", "parquet", "--compress", "gzip"], "--compress is gzip or zstd, and for jsonl"),
        (["--to", "jsonl", "--spark"], "--spark is for parquet"),
        (["--to", "parquet", "--spark", "--skip-damaged"], "--spark is for parquet"),
    ],
)
def test_wrong_options_are_2(run: Run, orders: Path, options: list[str], said: str) -> None:
    done = run("hbuf-export", "orders", "out", *options)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith(f"hbuf-export: {said}")
    assert not Path("out").exists()


def test_without_pyarrow_parquet_is_one_line_and_json_lines_work(
    run: Run, orders: Path, bare_python: Path, packages_without: PackagesWithout
) -> None:
    path = f"{Path(hbuf.__file__).parents[1]}{os.pathsep}{packages_without('pyarrow', 'numpy', 'pyspark')}"
    code = "from hbuf.cli.export import main; main()"
    done = run.real(bare_python, "-c", code, "orders", "out", "--to", "parquet", env={"PYTHONPATH": path})
    assert done == (69, b"", "hbuf-export: needs pyarrow\nhint: pip install 'hbuf[spark]'\n")
    done = run.real(bare_python, "-c", code, "orders", "out", "--to", "jsonl", env={"PYTHONPATH": path})
    assert done == (0, b"", "")
    assert len(lines("out")) == 3
    code = "from hbuf.cli.import_messages import main; main()"
    done = run.real(bare_python, "-c", code, "copy", "out", env={"PYTHONPATH": path})
    assert done == (0, b"", "")
