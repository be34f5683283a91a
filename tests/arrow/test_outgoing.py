import pyarrow as pa
import pytest

from hbuf.arrow.outgoing import check_columns, outgoing_of
from hbuf.errors import BadInput, UsageError
from hbuf.format.fields import NO_FIELDS, Fields, encode_fields

HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))


def fields_each(batch: pa.RecordBatch) -> list[Fields]:
    fields = outgoing_of(batch).fields
    return [fields] * batch.num_rows if isinstance(fields, Fields) else list(fields)


def test_bodies_alone_share_no_fields() -> None:
    outgoing = outgoing_of(pa.record_batch({"body": ["a", "", "ü"]}))
    assert outgoing.bodies == [b"a", b"", "ü".encode()]
    assert outgoing.fields is NO_FIELDS


def test_key_tags_and_headers_are_encoded_row_by_row() -> None:
    batch = pa.record_batch(
        {
            "headers": pa.array([[{"name": "X-A", "value": "1"}], None, [], []], HEADERS),
            "tags": [["t", "u"], [], None, [""]],
            "body": [b"a", b"b", b"c", b"d"],
            "key": ["k", None, "k", None],
        }
    )
    check_columns(batch.schema)
    assert fields_each(batch) == [
        encode_fields("k", ["t", "u"], [("x-a", "1")]),
        NO_FIELDS,
        encode_fields("k", [], []),
        encode_fields(None, [""], []),
    ]


def test_a_slice_of_a_batch_has_the_fields_of_its_own_rows() -> None:
    batch = pa.record_batch({"body": ["a", "b", "c"], "key": ["1", "2", "3"], "tags": [["x"], None, ["y", "z"]]})
    assert fields_each(batch.slice(1)) == [encode_fields("2", [], []), encode_fields("3", ["y", "z"], [])]


def test_equal_fields_are_encoded_once() -> None:
    first, other, again = fields_each(pa.record_batch({"body": ["a", "b", "c"], "key": ["k", "l", "k"]}))
    assert first is again
    assert first != other


@pytest.mark.parametrize(
    ("one", "other"),
    [([["a", "b"]], [["a"], ["b"]]), ([[""]], [[]]), ([["a", ""]], [["a"]]), ([["", "a"]], [["a", ""]])],
)
def test_tags_that_look_alike_when_joined_stay_apart(one: list[list[str]], other: list[list[str]]) -> None:
    tags = one + other
    found = fields_each(pa.record_batch({"body": [b""] * len(tags), "tags": pa.array(tags, pa.list_(pa.string()))}))
    assert found == [encode_fields(None, each, []) for each in tags]


def test_headers_are_taken_from_a_map_too() -> None:
    headers = pa.array([[("x-a", "1"), ("x-b", "2")], None], pa.map_(pa.string(), pa.string()))
    batch = pa.record_batch({"body": [b"a", b"b"], "headers": headers})
    check_columns(batch.schema)
    assert fields_each(batch) == [encode_fields(None, [], [("x-a", "1"), ("x-b", "2")]), NO_FIELDS]


def test_the_fields_of_a_header_may_come_in_any_order() -> None:
    headers = pa.array([[{"value": "1", "name": "x-a"}]])
    batch = pa.record_batch({"body": [b"a"], "headers": headers})
    check_columns(batch.schema)
    assert fields_each(batch) == [encode_fields(None, [], [("x-a", "1")])]


def test_dictionary_and_large_columns_are_taken() -> None:
    batch = pa.record_batch(
        {
            "body": pa.array([b"a", b"a"], pa.large_binary()),
            "key": pa.array(["k", None]).dictionary_encode(),
            "tags": pa.array([["t"], None], pa.large_list(pa.large_string())),
        }
    )
    check_columns(batch.schema)
    assert fields_each(batch) == [encode_fields("k", ["t"], []), NO_FIELDS]


def test_no_rows_are_no_messages() -> None:
    batch = pa.record_batch({"body": pa.array([], pa.string()), "key": pa.array([], pa.string())})
    assert list(outgoing_of(batch).bodies) == []


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"body": ["a", None]}, "row 12: the body is null"),
        ({"body": ["a", "b"], "key": ["k", ""]}, "row 12: a key cannot be empty"),
        ({"body": ["a", "b"], "key": ["k", "a\nb"]}, "row 12: the value of 'key' has a control character in it"),
        ({"body": ["a", "b"], "tags": [[], ["a\nb"]]}, "row 12: the value of 'tag' has a control character in it"),
        ({"body": ["a", "b"], "tags": [["t"], ["u", None]]}, "row 12: a tag is null"),
        ({"body": ["a", "b"], "headers": pa.array([None, [{"name": "x-a"}]], HEADERS)}, "row 12: a header is null"),
        (
            {"body": ["a", "b"], "headers": pa.array([None, [{"name": "cookie", "value": "1"}]], HEADERS)},
            "row 12: field 'cookie' cannot be kept with a message",
        ),
    ],
)
def test_what_cannot_be_stored_is_named_by_its_row(columns: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        outgoing_of(pa.record_batch(columns), first_row=11)
    assert caught.value.message == said


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"body": pa.binary(), "seq": pa.int64(), "time": pa.int64()}, "there is no place for columns seq, time"),
        ({"body": pa.binary(), "Key": pa.string()}, "there is no place for column Key"),
        ({"key": pa.string()}, "there is no column body"),
        ({"body": pa.int64()}, "column body is int64, and must be binary or string"),
        ({"body": pa.binary(), "key": pa.int64()}, "column key is int64, and must be string"),
        ({"body": pa.binary(), "tags": pa.string()}, "column tags is string, and must be array<string>"),
        (
            {"body": pa.binary(), "headers": pa.list_(pa.string())},
            "column headers is list<item: string>, and must be array<struct<name:string,value:string>>"
            " or map<string,string>",
        ),
    ],
)
def test_columns_that_no_message_has_are_refused(schema: dict[str, pa.DataType], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_columns(pa.schema(list(schema.items())))
    assert caught.value.message == said


def test_a_column_that_comes_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="there are two columns body"):
        check_columns(pa.schema([("body", pa.binary()), ("body", pa.binary())]))
