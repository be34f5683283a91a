"""Options are checked before anything is read, and each error is one line."""

import time
from pathlib import Path

import pytest

import hbuf
from hbuf.errors import HbufError, UsageError
from hbuf.format.times import datetime_of
from hbuf.ops.retire import retire
from hbuf.spark.batch import BatchReader

from .reading import NewKey, error_of, options_of, read, seqs


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    with hbuf.create(tmp_path / "orders", segment_messages="8") as buffer:
        for start in (1, 11):
            buffer.append_many(
                hbuf.draft(b"%d" % n, key=f"k{n % 2}", tags=[f"t{n % 5}"]) for n in range(start, start + 10)
            )
            time.sleep(0.002)  # two times
    return tmp_path / "orders"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(1, 21)),
        ({"from_": "first"}, range(1, 21)),
        ({"from_": "5"}, range(5, 21)),
        ({"from_": "-3"}, range(18, 21)),
        ({"from_": "last"}, [20]),
        ({"from_": "end"}, []),
        ({"from_": "100"}, []),
        ({"from_": "-100"}, range(1, 21)),
        ({"to": "5"}, range(1, 5)),
        ({"to": "end"}, range(1, 21)),
        ({"to": "last"}, range(1, 20)),
        ({"to": "-5"}, range(1, 16)),
        ({"to": "first"}, []),
        ({"to": "100"}, range(1, 21)),
        ({"from_": "7", "to": "10"}, range(7, 10)),
        ({"from_": "10", "to": "7"}, []),
        ({"from_": "@1h"}, range(1, 21)),
        ({"to": "@1h"}, []),
        ({"key": "k1"}, range(1, 21, 2)),
        ({"tag": "t0"}, range(5, 21, 5)),
        ({"key": "k1", "tag": "t0"}, [5, 15]),
        ({"key": "k1", "tag": "t0", "from_": "6"}, [15]),
        ({"key": "no such key"}, []),
    ],
    ids=str,
)
def test_what_is_read(orders: Path, options: dict[str, str], expected: list[int]) -> None:
    assert seqs(orders, **options) == list(expected)


def test_from_and_to_a_time(orders: Path) -> None:
    at = [message.time_us for message in hbuf.open(orders).read()]
    assert at[9] < at[10]
    moment = f"@{datetime_of(at[10]).isoformat().replace('+00:00', 'Z')}"
    assert seqs(orders, from_=moment) == list(range(11, 21))
    assert seqs(orders, to=moment) == list(range(1, 11))


def test_columns_are_chosen_in_their_order(orders: Path) -> None:
    assert read(orders, columns="body, seq", to="2") == [{"body": b"1", "seq": 1}]
    assert options_of(orders).columns == (
        *("tenant", "buffer", "seq", "time", "id", "key", "tags", "body", "erased", "encrypted"),
    )
    assert options_of(orders, mode="permissive").columns[-1] == "_corrupt_record"
    assert "_corrupt_record" not in options_of(orders, mode="dropmalformed").columns


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"tags": "a"}, "there is no option 'tags'"),
        ({"columns": "seq,nothing"}, "there is no column 'nothing'"),
        ({"columns": ""}, "there is no column ''"),
        ({"columns": "seq,seq"}, "a column is asked for twice"),
        ({"mode": "strict"}, "mode cannot be 'strict'"),
        ({"splitBytes": "0"}, "splitBytes must be more than 0"),
        ({"splitBytes": "many"}, "splitBytes"),
        ({"pushdown": "yes"}, "pushdown is true or false, not 'yes'"),
        ({"failOnDataLoss": "1"}, "failOnDataLoss is true or false, not '1'"),
        ({"maxRowsPerTrigger": "-1"}, "maxRowsPerTrigger is a number, not '-1'"),
        ({"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger must be more than 0"),
        ({"paths": "not a list"}, "paths is a list of paths, not 'not a list'"),
        ({"paths": '"text"'}, "paths is a list of paths"),
        ({"paths": "[]"}, "paths is a list of paths"),
        ({"paths": "[1]"}, "paths is a list of paths"),
    ],
    ids=str,
)
def test_what_an_option_cannot_be(orders: Path, options: dict[str, str], line: str) -> None:
    with pytest.raises(UsageError, match=line.replace("[", r"\[")):
        options_of(orders, **options)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"from_": "nowhere"}, "'nowhere' is not a place"),
        ({"to": "0"}, "'0' is not a place"),
        ({"from_": "@yesterday"}, "yesterday"),
        ({"from_": "consumer:me"}, "there is no consumer 'me'"),
    ],
    ids=str,
)
def test_what_a_place_cannot_be(orders: Path, options: dict[str, str], line: str) -> None:
    told = error_of(orders, **options)
    assert told.startswith("hbuf: ")
    assert line in told


def test_identities(tmp_path: Path, new_key: NewKey) -> None:
    (alice, public), (bob, _) = new_key("alice"), new_key("bob")
    path = tmp_path / "orders"
    hbuf.create(path, encrypt_to=[public]).append_many([b"one", b"two"])
    assert [row["body"] for row in read(path)] == [None, None]
    assert [row["body"] for row in read(path, identity=str(alice))] == [b"one", b"two"]
    assert error_of(path, identity=str(bob)).endswith(
        "message 1 is encrypted to others, and not to the key that was given"
    )
    assert read(path, identity=str(bob), mode="DROPMALFORMED") == []
    rows = read(path, identity=str(bob), mode="PERMISSIVE")
    assert [(row["seq"], row["body"]) for row in rows] == [(1, None), (2, None)]
    assert all("is encrypted to others" in str(row["_corrupt_record"]) for row in rows)
    assert "is a key of kind sign" in error_of(path, identity=str(new_key("audit", "sign")[0]))
    (tmp_path / "no.key").write_text("nothing\n")
    (tmp_path / "no.key").chmod(0o600)
    assert error_of(path, identity=str(tmp_path / "no.key")).startswith("hbuf: ")
    (tmp_path / "open.key").write_bytes(alice.read_bytes())
    (tmp_path / "open.key").chmod(0o644)
    assert error_of(path, identity=str(tmp_path / "open.key")).startswith("hbuf: ")


@pytest.mark.parametrize("lossy", [False, True])
def test_retired_between_plan_and_read(tmp_path: Path, lossy: bool) -> None:
    path = tmp_path / "orders"
    hbuf.create(path, segment_messages="5", retention_messages="5").append_many([b"x"] * 20)
    reader = BatchReader(["seq"], options_of(path, failOnDataLoss=str(not lossy)))
    planned = reader.partitions()
    retire(str(path), timeout_seconds=20)
    first = hbuf.open(path).read("first", count=1)
    kept = next(iter(first)).seq
    assert kept > 1
    found = (row["seq"] for part in planned for batch in reader.read(part) for row in batch.to_pylist())
    if lossy:
        assert list(found) == list(range(kept, 21))
    else:
        with pytest.raises(HbufError, match=r"hbuf: .*messages 1 to \d+ were retired before they were read"):
            list(found)
