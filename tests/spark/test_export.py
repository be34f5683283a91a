"""Exports through Spark, and exports that Spark reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import hbuf
from hbuf.arrow.export import export_parquet
from hbuf.cli.export import app
from hbuf.errors import Damaged
from hbuf.format.places import Place
from hbuf.ops.export import Selection, Tally, Watch, cut_all, find_sources, manifest_of
from hbuf.ops.export_directory import By, ExportDirectory
from hbuf.ops.export_json import export_json
from hbuf.spark.export import export_with_spark

COUNT = 3000


@pytest.fixture(scope="module")
def buffers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tenants' buffers, of several segments, with an erased message and all that a message can have."""
    folder = tmp_path_factory.mktemp("buffers")
    drafts = [
        hbuf.draft(b"\xff%d" % i, key=f"k{i % 7}", tags=[f"t{i % 3}"], headers=[("x-n", str(i))]) for i in range(COUNT)
    ]
    with hbuf.create(folder / "orders", segment_messages="700") as buffer:
        buffer.append_many(drafts)
        buffer.erase([5], reason="asked")
    with hbuf.create(folder / "tenants/acme/buffers/logs") as buffer:
        buffer.append_many([b"", b"log"])
    hbuf.create(folder / "empty").close()
    return folder


def export(spark: SparkSession | None, buffers: Path, out: Path, by: By, **selected: Any) -> list[Tally]:
    selection = Selection(**selected)
    cuts = cut_all(find_sources([str(buffers)]), selection, lambda: 0)
    with ExportDirectory(str(out)) as target:
        if spark is not None:
            tallies = export_with_spark(spark, cuts, selection, target, by, Watch(cuts))
        else:
            tallies = export_parquet(cuts, selection, target, by, Watch(cuts))
        target.finish(manifest_of("parquet", by, 0, selection, tallies))
    return tallies


@pytest.mark.parametrize("by", ["day", "buffer"])
def test_spark_writes_what_pyarrow_writes(spark: SparkSession, buffers: Path, tmp_path: Path, by: By) -> None:
    told = export(spark, buffers, tmp_path / "spark", by)
    assert told == export(None, buffers, tmp_path / "arrow", by)
    assert [tally.messages for tally in told] == [2, 0, COUNT]
    written, wanted = (pq.read_table(tmp_path / name) for name in ("spark", "arrow"))
    assert written.to_pylist() == wanted.to_pylist()  # in the same order
    assert written.schema.field("time").type == wanted.schema.field("time").type
    manifest = json.loads((tmp_path / "spark/_export.json").read_bytes())
    files = sorted(str(path.relative_to(tmp_path / "spark")) for path in (tmp_path / "spark").rglob("*.parquet"))
    assert sorted(file["path"] for file in manifest["files"]) == files
    assert sum(file["messages"] for file in manifest["files"]) == COUNT + 2
    left = {path.name for path in (tmp_path / "spark").rglob("[_.]*")}
    assert left == {"_export.json"}


def test_place_key_and_tag_choose_messages_with_spark(spark: SparkSession, buffers: Path, tmp_path: Path) -> None:
    selected = {"place": Place("number", 1000), "key": "k1", "tag": "t0"}
    told = export(spark, buffers / "orders", tmp_path / "spark", "day", **selected)
    assert told == export(None, buffers / "orders", tmp_path / "arrow", "day", **selected)
    assert told[0].messages == len([i for i in range(999, COUNT) if i % 7 == 1 and i % 3 == 0])


@pytest.mark.usefixtures("spark")
def test_command_uses_spark_where_it_is_asked_to_and_where_there_is_much(
    buffers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []
    size = sum(file.stat().st_size for file in (buffers / "orders/segments").glob("*.http"))

    def noting(*arguments: Any) -> list[Tally]:
        used.append(arguments)
        return export_with_spark(*arguments)

    monkeypatch.setattr("hbuf.spark.export.export_with_spark", noting)
    for options, much, count in (
        ([], 2 * size, 0),
        (["--no-spark"], size // 2, 0),
        (["--spark"], 2 * size, 1),
        ([], size // 2, 2),
        (["--skip-damaged"], size // 2, 2),
    ):
        monkeypatch.setattr("hbuf.cli.export._SPARK_BYTES", much)
        out = tmp_path / f"{options} {much}"
        app([str(buffers / "orders"), str(out), "--to", "parquet", *options], standalone_mode=False)
        assert len(used) == count, options
        assert pq.read_table(out).num_rows == COUNT


def test_damage_ends_an_export_with_spark_and_takes_it_away(spark: SparkSession, tmp_path: Path) -> None:
    with hbuf.create(tmp_path / "orders") as buffer:
        buffer.append_many([b"one", b"two", b"three"])
    [segment] = (tmp_path / "orders/segments").glob("*.http")
    content = segment.read_bytes()
    at = content.index(b"POST ", content.index(b"POST ") + 1)
    segment.write_bytes(content[:at] + b"GARB" + content[at + 4 :])
    with pytest.raises(Damaged, match=f"byte {at}: "):
        export(spark, tmp_path / "orders", tmp_path / "out", "day")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("by", ["day", "buffer"])
def test_spark_reads_an_export_of_either_format(spark: SparkSession, buffers: Path, tmp_path: Path, by: By) -> None:
    export(None, buffers, tmp_path / "parquet", by)
    selection = Selection()
    cuts = cut_all(find_sources([str(buffers)]), selection, lambda: 0)
    with ExportDirectory(str(tmp_path / "jsonl")) as target:
        export_json(cuts, selection, target, by, Watch(cuts), "gzip")
        target.finish({})
    source = spark.read.format("hbuf").option("columns", "tenant,buffer,seq,time,id,key,body,erased").load(str(buffers))
    wanted = sorted(map(tuple, source.collect()))
    assert len(wanted) == COUNT + 2
    rows = spark.read.parquet(str(tmp_path / "parquet")).select(source.columns)
    assert dict(rows.dtypes)["time"] == "timestamp"
    assert sorted(map(tuple, rows.collect())) == wanted
    lines = spark.read.json(str(tmp_path / "jsonl")).select("tenant", "buffer", "seq", "id", "erased")
    assert sorted(map(tuple, lines.collect())) == sorted((*row[:3], row[4], row[7]) for row in wanted)
