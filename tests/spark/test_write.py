"""`df.write.format("hbuf")`: what is stored, what is refused, and what writing again does."""

import os
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession

from hbuf import library
from hbuf.ops import key


def bodies(buffer: Path) -> list[bytes]:
    return [message.body for message in library.open(buffer).read()]


def rows(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("cast(id as string) as body")


def write(frame: DataFrame, buffer: Path | str, **options: object) -> None:
    frame.write.format("hbuf").mode("append").options(**options).save(str(buffer))  # type: ignore[arg-type]


def one_line(error: Exception) -> str:
    """What hbuf said, in all that Spark says."""
    [line] = {line.partition("hbuf: ")[2] for line in str(error).splitlines() if "hbuf: " in line}
    return line


def test_rows_are_stored_by_partition_and_row_with_all_their_fields(spark: SparkSession, tmp_path: Path) -> None:
    schema = "key string, body binary, tags array<string>, headers array<struct<name:string,value:string>>"
    frame = spark.createDataFrame(
        [
            ("k", b"a\0\r\n", ["t", "u"], [("x-a", "1")]),
            (None, b"", None, None),
            ("l", b"POST /b/orders HTTP/1.1\r\n", [], []),
        ],
        schema,
    ).coalesce(1)
    write(frame, tmp_path / "orders")
    found = [(m.key, m.body, m.tags, m.headers) for m in library.open(tmp_path / "orders").read()]
    assert found == [
        ("k", b"a\0\r\n", ("t", "u"), (("x-a", "1"),)),
        (None, b"", (), ()),
        ("l", b"POST /b/orders HTTP/1.1\r\n", (), ()),
    ]
    write(rows(spark, 100, 7), f"file://{tmp_path}/orders")
    assert bodies(tmp_path / "orders")[3:] == [b"%d" % i for i in range(100)]
    assert library.open(tmp_path / "orders").verify().ok


def test_a_small_write_is_one_unit_and_leaves_nothing_staged(spark: SparkSession, tmp_path: Path) -> None:
    write(rows(spark, 20, 4), tmp_path / "orders")
    content = (tmp_path / "orders/segments/00000000000000000001.http").read_bytes()
    assert content.count(b"x-hbuf-batch: ") == 20
    assert b"x-hbuf-batch: 20/20\r\n" in content
    assert b"x-hbuf-producer" not in content
    staging = tmp_path / "orders/staging"
    assert os.listdir(staging) == []
    assert staging.stat().st_mode & 0o777 == 0o700


def test_a_batch_of_a_producer_is_stored_once(spark: SparkSession, tmp_path: Path) -> None:
    for _ in range(2):
        write(rows(spark, 5), tmp_path / "orders", producer="nightly", batch=7)
    assert len(bodies(tmp_path / "orders")) == 5
    write(rows(spark, 5), tmp_path / "orders", producer="nightly", batch=8)
    assert len(bodies(tmp_path / "orders")) == 10


def test_no_rows_make_an_empty_buffer(spark: SparkSession, tmp_path: Path) -> None:
    write(rows(spark, 0), tmp_path / "orders")
    assert bodies(tmp_path / "orders") == []


def test_what_cannot_be_written_is_refused_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    refused = {
        "there is no place for columns id, n": spark.range(3).selectExpr("id", "id as n", "'a' as body"),
        "there is no place for column time": spark.range(3).selectExpr("current_timestamp() as time", "'a' as body"),
        "there is no column body": spark.range(3).selectExpr("'a' as key"),
        "column key is int64, and must be string": spark.range(3).selectExpr("id as key", "'a' as body"),
    }
    for said, frame in refused.items():
        with pytest.raises(AnalysisException) as caught:
            write(frame, orders)
        assert one_line(caught.value).startswith(f"{orders}: {said}")
    assert not orders.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"create": "false"}, "orders: there is no such buffer"),
        ({"create": "maybe"}, "orders: option create: 'maybe' is not true or false"),
        ({"timeout": "soon"}, "orders: 'soon' is not a length of time (write it like 100ms, 30s, 10m, 2h or 3d)"),
        (
            {"produser": "p"},
            "orders: there is no option 'produser' (there are batch, cacert, cert, create, path, producer, sign,"
            " staging, timeout, token_file)",
        ),
        ({"producer": "p"}, "orders: the options producer and batch come together"),
        ({"producer": "p", "batch": "-1"}, "orders: option batch: '-1' is not a number from 0 to 953674316405"),
    ],
)
def test_wrong_options_are_refused_in_one_line(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], said: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        write(rows(spark, 1), tmp_path / "orders", **options)
    assert one_line(caught.value) == f"{tmp_path}/{said}"


def test_overwriting_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(rows(spark, 3), tmp_path / "orders")
    with pytest.raises(AnalysisException) as caught:
        rows(spark, 1).write.format("hbuf").mode("overwrite").save(str(tmp_path / "orders"))
    assert one_line(caught.value).startswith(f"{tmp_path}/orders: is only appended to")
    assert len(bodies(tmp_path / "orders")) == 3


def test_a_row_that_cannot_be_a_message_is_named_and_nothing_is_stored(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 10, 1, 2).selectExpr("if(id = 7, null, 'a') as body")
    with pytest.raises(PythonException) as caught:
        write(frame, tmp_path / "orders")
    assert one_line(caught.value) == f"{tmp_path}/orders: partition 1: row 3: the body is null"
    assert bodies(tmp_path / "orders") == []
    # The other task may still be at work when Spark gives up: then its file stays. This one's does not.
    assert not [name for name in os.listdir(tmp_path / "orders/staging") if "-0-1-" in name]


def test_a_signed_buffer_is_signed_with_the_key_of_the_option(spark: SparkSession, tmp_path: Path) -> None:
    key.new("signer", "sign", tmp_path / "keys")
    secret = tmp_path / "keys/signer.key"
    write(rows(spark, 5), tmp_path / "orders", sign=secret)
    write(rows(spark, 5), tmp_path / "orders", sign=secret)
    with pytest.raises(AnalysisException) as caught:
        write(rows(spark, 5), tmp_path / "orders")
    assert one_line(caught.value).startswith(f"{tmp_path}/orders: is signed, and takes nothing without its key")
    assert os.listdir(tmp_path / "orders/staging") == []
    report = library.open(tmp_path / "orders").verify()
    assert report.ok
    assert report.signatures > 1
    assert len(bodies(tmp_path / "orders")) == 10


def test_an_encrypted_buffer_wants_a_staging_directory_that_is_not_in_it(spark: SparkSession, tmp_path: Path) -> None:
    key.new("reader", "encrypt", tmp_path / "keys")
    public = key.export("reader", tmp_path / "keys").strip()
    library.create(tmp_path / "orders", encrypt_to=[public]).close()
    with pytest.raises(AnalysisException) as caught:
        write(rows(spark, 5), tmp_path / "orders")
    assert one_line(caught.value).startswith(f"{tmp_path}/orders: is encrypted, and rows are staged as they are")
    write(rows(spark, 5), tmp_path / "orders", staging=tmp_path / "staging")
    assert not (tmp_path / "orders/staging").exists()
    assert os.listdir(tmp_path / "staging") == []
    found = library.open(tmp_path / "orders", identities=[tmp_path / "keys/reader.key"]).read()
    assert [message.body for message in found] == [b"%d" % i for i in range(5)]
    assert bodies(tmp_path / "orders") != [b"%d" % i for i in range(5)]
