"""Arrow columns to messages that can be appended: `body`, and where there are such columns `key`, `tags`, `headers`.

Whole columns at a time: the fields are encoded, and checked, once for each combination that is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hbuf.errors import BadInput, HbufError, UsageError
from hbuf.format.fields import NO_FIELDS, Fields, encode_fields
from hbuf.store.outgoing import Outgoing

_NEEDED = {
    "body": "binary or string",
    "key": "string",
    "tags": "array<string>",
    "headers": "array<struct<name:string,value:string>> or map<string,string>",
}
_LISTS = ("tags", "names", "values")
_TAGS = pa.list_(pa.string())
_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))
# No field value has it: joined with it, different rows stay different.
_SEPARATOR = "\n"


def check_columns(schema: pa.Schema) -> None:
    """Refuses what is not a message's: before anything runs, from the names and types alone."""
    unknown = [name for name in schema.names if name not in _NEEDED]
    if unknown:
        raise UsageError(
            f"there is no place for {'column' if len(unknown) == 1 else 'columns'} {', '.join(unknown)}",
            hint="a message has body, key, tags and headers; select() those",
        )
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise UsageError(f"there are two columns {name}")
    if "body" not in schema.names:
        raise UsageError("there is no column body", hint="it is what a message consists of, binary or string")
    for field in schema:
        if not _is_right(field.name, _plain(field.type)):
            raise UsageError(f"column {field.name} is {field.type}, and must be {_NEEDED[field.name]}")


def outgoing_of(batch: pa.RecordBatch, *, first_row: int = 1) -> Outgoing:
    """The rows as messages, in their order. An error names the row, counted from `first_row` on."""
    return Outgoing(bodies_of(batch, first_row), fields_of(batch, first_row))


def bodies_of(batch: pa.RecordBatch, first_row: int = 1) -> list[bytes]:
    bodies: list[bytes] = body_column(batch, first_row).to_pylist()
    return bodies


def body_column(batch: pa.RecordBatch, first_row: int = 1) -> pa.Array:
    """The bodies as they will be stored: binary, with none missing."""
    column = _decoded(batch.column("body"))
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise BadInput(f"row {first_row + row}: the body is null")
    return column.cast(pa.large_binary())


def fields_of(batch: pa.RecordBatch, first_row: int = 1) -> Fields | list[Fields]:
    """One for all rows where they have none, else one for each; equal ones are the same object."""
    count = batch.num_rows
    columns = _FieldColumns(batch, first_row)
    if not columns.parts:
        return NO_FIELDS
    kinds, first_rows = columns.kinds()
    encoded = [
        _encode(first_row + row, *values)
        for row, *values in zip(first_rows, *columns.values_at(pa.array(first_rows, pa.int64())), strict=True)
    ]
    if len(encoded) == 1 and count:
        return encoded[0]
    return [encoded[kind] for kind in kinds.tolist()]


class _FieldColumns:
    """Key, tags and headers of a batch. `parts` together tell rows with different fields apart."""

    def __init__(self, batch: pa.RecordBatch, first_row: int) -> None:
        self._count = batch.num_rows
        self.parts: list[pa.Array] = []
        self._texts: list[pa.Array] = []  # all values: none may have the separator in it
        self._key: pa.Array | None = None
        self._lists: dict[str, pa.Array] = {}
        for name in ("key", "tags", "headers"):
            column = _decoded(batch.column(name)) if name in batch.schema.names else None
            if column is None or column.null_count == self._count:
                continue
            if name == "key":
                self._key = column.cast(pa.string())
                self.parts.append(self._key)
                self._texts.append(self._key)
            elif name == "tags":
                tags = column.cast(_TAGS)
                self._add_list("tags", tags, tags.flatten(), first_row)
            else:
                headers = column.cast(_HEADERS)
                names, values = headers.flatten().flatten()
                self._add_list("names", headers, names, first_row)
                self._add_list("values", headers, values, first_row)

    def _add_list(self, name: str, column: pa.Array, items: pa.Array, first_row: int) -> None:
        if items.null_count:
            place = pc.index(items.is_null(), True).as_py()
            row = pc.list_parent_indices(column)[place].as_py()
            raise BadInput(f"row {first_row + row}: {'a tag' if name == 'tags' else 'a header'} is null")
        lengths = column.value_lengths().fill_null(0)
        offsets = np.concatenate([[0], np.cumsum(lengths.to_numpy(zero_copy_only=False))])
        found = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)
        self._lists[name] = found
        self._texts.append(items)
        # The number of items tells no items from one that is empty.
        self.parts += [lengths.cast(pa.string()), pc.binary_join(found, _SEPARATOR)]

    def kinds(self) -> tuple[np.ndarray, list[int]]:
        """Which combination each row has, and in which row each combination is first."""
        if any(pc.any(pc.match_substring(texts, _SEPARATOR)).as_py() for texts in self._texts):
            return np.arange(self._count), list(range(self._count))  # encoding them says which row it is
        joined = self.parts[0]
        if len(self.parts) > 1:
            joined = pc.binary_join_element_wise(
                *self.parts, _SEPARATOR, null_handling="replace", null_replacement=_SEPARATOR
            )
        kinds = joined.dictionary_encode(null_encoding="encode").indices.to_numpy()
        return kinds, np.unique(kinds, return_index=True)[1].tolist()

    def values_at(self, rows: pa.Array) -> tuple[Sequence[Any], ...]:
        """Keys, tags, names and values of headers of some rows."""
        none: list[list[str]] = [[]] * len(rows)
        keys = self._key.take(rows).to_pylist() if self._key is not None else [None] * len(rows)
        lists = [self._lists[name].take(rows).to_pylist() if name in self._lists else none for name in _LISTS]
        return (keys, *lists)


def _encode(row: int, key: str | None, tags: list[str], names: list[str], values: list[str]) -> Fields:
    try:
        return encode_fields(key, tags, zip(names, values, strict=True))
    except HbufError as error:
        raise BadInput(f"row {row}: {error.message}", hint=error.hint) from None


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_right(name: str, kind: pa.DataType) -> bool:
    if name == "body":
        return _is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if pa.types.is_null(kind):
        return True
    if name == "key":
        return _is_text(kind)
    if name == "headers" and pa.types.is_map(kind):
        return _is_text(kind.key_type) and _is_text(kind.item_type)
    if not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        return False
    item = kind.value_type
    if name == "tags":
        return _is_text(item) or pa.types.is_null(item)
    return (
        pa.types.is_struct(item)
        and sorted(field.name for field in item) == ["name", "value"]
        and all(_is_text(field.type) for field in item)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
