"""hbuf-import: messages come back from files, in order, and once."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import hbuf

from .exported_files import lines, rows

if TYPE_CHECKING:
    from cli.conftest import Bodies, MakeBuffer, Run

FORMS = pytest.mark.parametrize("form", ["jsonl", "parquet"])
BYS = pytest.mark.parametrize("by", ["day", "buffer"])
NEW = ("seq", "time", "id")  # given anew
DRAFTS = [
    hbuf.draft(b"one", key="user-17", tags=["host=web1", "urgent"], headers=[("content-type", "text/plain")]),
    hbuf.draft(b"", key="user-18"),
    hbuf.draft(b"\x00\xff\r\n\r\n"),
    hbuf.draft(b"last", tags=["host=web2"]),
]


@pytest.fixture
def orders(make_buffer: MakeBuffer) -> Path:
    return make_buffer("orders", DRAFTS, segment_messages="2")


def exported(folder: str) -> list[dict[str, Any]]:
    """The rows of an export but for what an import gives anew."""
    found = rows(folder) if any(Path(folder).rglob("*.parquet")) else lines(folder)
    return [{name: value for name, value in row.items() if name not in NEW} for row in found]


@FORMS
@BYS
def test_what_is_exported_imported_and_exported_again_is_the_same(
    run: Run, make_buffer: MakeBuffer, form: str, by: str
) -> None:
    make_buffer("all/orders", DRAFTS, segment_messages="2")
    make_buffer("all/tenants/acme/buffers/orders", [b"of acme"])
    make_buffer("all/empty")
    options = ["--to", form, "--by", by]
    assert run("hbuf-export", "all", "out", *options) == (0, b"", "")
    assert run("hbuf-import", "--into", "back", "out") == (0, b"", "")
    assert sorted(path.name for path in Path("back").iterdir()) == ["orders", "tenants"]
    assert run("hbuf-export", "back", "again", *options) == (0, b"", "")
    assert exported("again") == exported("out")
    assert len(exported("out")) == 5
    assert run("hbuf-verify", "--quiet", "back/orders").code == 0


@pytest.mark.parametrize("compress", ["gzip", "zstd"])
def test_compressed_lines_come_back(run: Run, orders: Path, bodies: Bodies, compress: str) -> None:
    assert run("hbuf-export", "orders", "out", "--to", "jsonl", "--compress", compress).code == 0
    assert run("hbuf-import", "copy", "out") == (0, b"", "")
    assert bodies("copy") == [draft.body for draft in DRAFTS]


@FORMS
def test_second_run_with_a_producer_stores_nothing(run: Run, orders: Path, bodies: Bodies, form: str) -> None:
    assert run("hbuf-export", "orders", "out", "--to", form).code == 0
    assert run("hbuf-import", "copy", "out", "--producer", "restore") == (0, b"", "")
    said = "hbuf-import: copy: 4 messages were there already\n"
    assert run("hbuf-import", "copy", "out", "--producer", "restore") == (0, b"", said)
    assert run("hbuf-import", "copy", "out", "--producer", "restore", "--quiet") == (0, b"", "")
    assert bodies("copy") == [draft.body for draft in DRAFTS]
    assert run("hbuf-import", "copy", "out") == (0, b"", "")
    assert len(bodies("copy")) == 8


@FORMS
def test_later_export_adds_what_is_new(run: Run, orders: Path, bodies: Bodies, form: str) -> None:
    assert run("hbuf-export", "orders", "monday", "--to", form).code == 0
    assert run("hbuf-import", "copy", "monday", "--producer", "nightly").code == 0
    assert run("hbuf-append", "orders", stdin=b"more\n").code == 0
    other = "parquet" if form == "jsonl" else "jsonl"
    assert run("hbuf-export", "orders", "tuesday", "--to", other, "--by", "buffer").code == 0
    assert run("hbuf-import", "copy", "tuesday", "--producer", "nightly").code == 0
    assert bodies("copy") == [*(draft.body for draft in DRAFTS), b"more"]


@FORMS
def test_several_buffers_are_not_mixed(run: Run, make_buffer: MakeBuffer, bodies: Bodies, form: str) -> None:
    make_buffer("all/orders", [b"order"])
    make_buffer("all/tenants/acme/buffers/orders", [b"of acme"])
    make_buffer("all/logs", [b"log"])
    assert run("hbuf-export", "all", "out", "--to", form).code == 0
    done = run("hbuf-import", "copy", "out")
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("hbuf-import: there are messages of 3 buffers\nhint: ")
    assert not Path("copy").exists()
    assert run("hbuf-import", "logs", "out", "--buffer", "logs") == (0, b"", "")
    assert bodies("logs") == [b"log"]
    assert run("hbuf-import", "acme", "out", "--buffer", "acme/orders") == (0, b"", "")
    assert bodies("acme") == [b"of acme"]
    # Without the manifest the rows tell.
    Path("out/_export.json").unlink()
    done = run("hbuf-import", "mixed", "out")
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith(
        "hbuf-import: there are messages of acme/orders and of default/logs; 1 message was stored"
    )
    assert bodies("mixed") == [b"of acme"]


@FORMS
def test_erased_messages_do_not_come_back_and_that_is_said(run: Run, orders: Path, bodies: Bodies, form: str) -> None:
    assert run("hbuf-erase", "orders", "1", "--reason", "asked").code == 0
    assert run("hbuf-export", "orders", "out", "--to", form).code == 0
    said = "hbuf-import: copy: 1 message is erased, and cannot come back\n"
    assert run("hbuf-import", "copy", "out") == (0, b"", said)
    assert bodies("copy") == [draft.body for draft in DRAFTS[1:]]


@FORMS
def test_encrypted_messages_are_refused_with_their_row(run: Run, form: str) -> None:
    assert run("hbuf-key", "new", "alice", "--kind", "encrypt").code == 0
    assert run("hbuf-append", "--encrypt-to", "alice", "orders", stdin=b"tea\n").code == 0
    assert run("hbuf-export", "orders", "out", "--to", form).code == 0
    done = run("hbuf-import", "copy", "out")
    assert (done.code, done.out) == (65, b"")
    row = "row" if form == "parquet" else "line"
    assert f"{row} 1: the message is encrypted; 0 messages were stored\nhint: " in done.err


def test_signed_and_encrypted_buffers_take_an_import(run: Run, orders: Path) -> None:
    assert run("hbuf-key", "new", "audit", "--kind", "sign").code == 0
    assert run("hbuf-key", "new", "alice", "--kind", "encrypt").code == 0
    assert run("hbuf-create", "copy", "--sign", "audit", "--encrypt-to", "alice").code == 0
    assert run("hbuf-export", "orders", "out", "--to", "parquet").code == 0
    assert run("hbuf-import", "copy", "out").code == 77
    assert run("hbuf-import", "copy", "out", "--sign", "audit") == (0, b"", "")
    assert run("hbuf-verify", "--quiet", "copy").code == 0
    done = run("hbuf-tail", "-o", "first", "copy", "--identity", "alice")
    assert done.out == b"".join(draft.body + b"\n" for draft in DRAFTS)


def test_half_an_export_is_refused(run: Run, orders: Path) -> None:
    assert run("hbuf-export", "orders", "out", "--to", "jsonl").code == 0
    Path("out/_export.json").rename("manifest")
    Path("out/_unfinished").touch()
    done = run("hbuf-import", "copy", "out")
    assert (done.code, done.out) == (65, b"")
    assert done.err.startswith("hbuf-import: out: holds an export that was not finished\nhint: ")
    Path("manifest").rename("out/_export.json")
    next(Path("out").rglob("*.jsonl")).unlink()
    done = run("hbuf-import", "copy", "out")
    assert (done.code, done.out) == (65, b"")
    assert done.err.endswith("part-00000-00000.jsonl is missing\n")
    assert not Path("copy").exists()


def test_rows_out_of_order_are_refused_with_a_producer_and_stored_without(run: Run, bodies: Bodies) -> None:
    row = {"tenant": "default", "buffer": "orders"}
    Path("rows.jsonl").write_text("".join(json.dumps({**row, "seq": n, "body": f"{n}"}) + "\n" for n in (2, 1)))
    done = run("hbuf-import", "copy", "rows.jsonl", "--producer", "p")
    assert (done.code, done.out) == (65, b"")
    assert done.err.startswith("hbuf-import: default/orders: number 1 comes after 2; 0 messages were stored\nhint: ")
    assert run("hbuf-import", "copy", "rows.jsonl") == (0, b"", "")
    assert bodies("copy") == [b"2", b"1"]


@pytest.fixture
def sales() -> pa.Table:
    table = pa.table({"customer": [7, None, 9], "text": ["a", "b", "c"], "price": [Decimal("1.5"), None, Decimal("2")]})
    pq.write_table(table, "sales.parquet")
    Path("sales.jsonl").write_text("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))
    return table


@FORMS
@pytest.mark.usefixtures("sales")
def test_files_of_others_have_a_body_and_a_key_in_columns_that_are_named(run: Run, form: str) -> None:
    done = run("hbuf-import", "copy", f"sales.{form}")
    assert (done.code, done.out) == (65, b"")
    assert "'body'" in done.err
    assert "hint: --body COLUMN names another" in done.err
    columns = ["--body", "text", "--key", "customer", "--producer", "p"]
    assert run("hbuf-import", "copy", f"sales.{form}", *columns) == (0, b"", "")
    with hbuf.open("copy") as buffer:
        assert [(message.body, message.key) for message in buffer.read()] == [(b"a", "7"), (b"b", None), (b"c", "9")]
    said = "hbuf-import: copy: 3 messages were there already\n"
    assert run("hbuf-import", "copy", f"sales.{form}", *columns) == (0, b"", said)


@FORMS
def test_whole_rows_become_json_bodies(run: Run, bodies: Bodies, sales: pa.Table, form: str) -> None:
    assert run("hbuf-import", "copy", f"sales.{form}", "--json", "--key", "customer") == (0, b"", "")
    wanted = [json.loads(json.dumps(row, default=str)) for row in sales.to_pylist()]
    assert [json.loads(body) for body in bodies("copy")] == wanted
    with hbuf.open("copy") as buffer:
        assert [message.key for message in buffer.read()] == ["7", None, "9"]


def test_places_go_on_over_files_and_reruns_of_the_same_files_store_nothing(run: Run, bodies: Bodies) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        Path(name).write_text(f'{{"body": "{name} 1"}}\n\n{{"body": {{"n": 2}}}}\n')
    assert run("hbuf-import", "copy", "a.jsonl", "b.jsonl", "--producer", "p") == (0, b"", "")
    assert bodies("copy") == [b"a.jsonl 1", b'{"n": 2}', b"b.jsonl 1", b'{"n": 2}']
    assert run("hbuf-import", "copy", "a.jsonl", "b.jsonl", "--producer", "p", "-q") == (0, b"", "")
    assert len(bodies("copy")) == 4


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"not json\n", "line 1: not JSON"),
        (b'{"body": "one"}\n[]\n', "line 2: not a JSON object"),
        (b'{"body": null}\n', "line 1: there is neither a 'body' nor a 'body_base64'"),
        (b'{"body": "a", "headers": [{"name": "cookie", "value": "x"}]}\n', "line 1: field 'cookie' cannot be kept"),
        (gzip.compress(b'{"body": "a"}\n' * 99)[:-12], "ends too early"),
        (zstandard.compress(b'{"body": "a"}\n' * 99)[:-2], "ends too early"),
        (b"\x1f\x8bnot gzip", "cannot be decompressed"),
        (b"PAR1 and no more", "cannot be read as Parquet"),
    ],
    ids=["no JSON", "no object", "no body", "bad header", "cut gzip", "cut zstd", "no gzip", "no Parquet"],
)
def test_file_that_cannot_be_read_is_65_and_named(run: Run, content: bytes, said: str) -> None:
    Path("file").write_bytes(content)
    done = run("hbuf-import", "copy", "file")
    assert (done.code, done.out) == (65, b"")
    assert done.err.startswith(f"hbuf-import: file: {said}")
    assert "stored" in done.err.splitlines()[0]


def test_row_without_a_body_is_named_in_parquet(run: Run) -> None:
    pq.write_table(pa.table({"body": [b"a", None]}), "file.parquet")
    done = run("hbuf-import", "copy", "file.parquet")
    assert done == (65, b"", "hbuf-import: file.parquet: row 2: the body is null; 0 messages were stored\n")
    pq.write_table(pa.table({"body": [1, 2]}), "file.parquet")
    done = run("hbuf-import", "copy", "file.parquet")
    assert (done.code, done.out) == (65, b"")
    assert done.err.startswith("hbuf-import: file.parquet: column body is int64, and must be binary or string")


def test_names_in_an_export_cannot_lead_out_of_the_directory(run: Run) -> None:
    Path("rows.jsonl").write_text(json.dumps({"tenant": "..", "buffer": "..", "seq": 1, "body": "x"}) + "\n")
    done = run("hbuf-import", "--into", "back/here", "rows.jsonl")
    assert (done.code, done.out) == (2, b"")
    assert "'..' cannot be a buffer's name" in done.err
    assert not Path("back").exists()


def test_buffer_that_no_row_is_of_is_66(run: Run, orders: Path, bodies: Bodies) -> None:
    run("hbuf-export", str(orders), "out", "--to", "jsonl")
    done = run("hbuf-import", "copy", "out", "--buffer", "ordres")
    assert (done.code, done.out) == (66, b"")
    assert done.err.startswith("hbuf-import: no row says that it is of buffer 'ordres'; 0 messages were stored\n")
    assert run("hbuf-import", "copy", "out", "--buffer", "orders") == (0, b"", "")
    assert len(bodies("copy")) == len(DRAFTS)


def test_buffer_is_no_file_to_import(run: Run, orders: Path) -> None:
    done = run("hbuf-import", "copy", str(orders))
    assert (done.code, done.out) == (65, b"")
    assert done.err.startswith(f"hbuf-import: {orders}: is a buffer\n")
    assert not Path("copy").exists()


def test_numbers_that_json_does_not_have_are_null(run: Run, bodies: Bodies) -> None:
    column = pa.array([[1.5, float("nan")], [float("-inf")]])
    pq.write_table(pa.table({"a": column, "b": [float("inf"), 2.5]}), "file.parquet")
    assert run("hbuf-import", "copy", "file.parquet", "--json") == (0, b"", "")
    assert bodies("copy") == [b'{"a":[1.5,null],"b":null}', b'{"a":[null],"b":2.5}']


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["copy"], 2, "there is no file to import"),
        (["copy", "missing"], 66, "missing: No such file or directory"),
        (["copy", "empty"], 66, "empty: there is no Parquet and no JSON lines in it"),
        (["--into", "back", "rows.jsonl"], 65, "the rows do not say of which buffer they are"),
        (["--into", "back", "rows.jsonl", "--sign", "key"], 2, "--sign does not go with --into"),
        (["copy", "rows.jsonl", "--json", "--body", "x"], 2, "--body, --buffer and --into do not go with --json"),
        (["copy", "rows.jsonl", "--producer", ""], 2, "a producer's name cannot be empty"),
        (["copy", "rows.jsonl", "--no-create"], 66, "copy: there is no such buffer"),
    ],
)
def test_wrong_arguments_store_nothing(run: Run, arguments: list[str], code: int, said: str) -> None:
    Path("rows.jsonl").write_text('{"body": "x"}\n')
    Path("empty").mkdir()
    done = run("hbuf-import", *arguments)
    assert (done.code, done.out) == (code, b"")
    assert done.err.startswith(f"hbuf-import: {said}")
    assert not Path("copy").exists()
    assert not Path("back").exists()
