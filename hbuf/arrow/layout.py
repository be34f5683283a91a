"""Where the parts of each message of a block lie, from the index, compared with the records for all of them at once.

The index is no evidence. A block whose records are not as its entries say has no layout, and is read record by
record instead. What is compared: that the first and the last record are ones, with the numbers that they must have;
that every record between begins, and its head, its header section and its body end, where they must; its number,
its time, the length of its body, its key, where its tags are, and whether it is erased or encrypted. So a body that
looks like records is none, whatever the index says. What a key, a tag, a header or an id says is looked at where a
column of it is made.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from hbuf.arrow.block import Block, Bools, Entries, Ints, ends_of
from hbuf.arrow.spans import Differs, expect, gathered, has, joined, taken
from hbuf.format import index

_POWERS_OF_TEN = 10 ** np.arange(1, 19, dtype=np.int64)

_KEY, _TAG = b"x-hbuf-key: ", b"x-hbuf-tag: "
# Each stands in a line of its own: a field's value may say the same.
_SALT, _GONE = b"\r\nx-hbuf-salt: ", b"\r\nx-hbuf-gone: "
_SALT_LINE_BYTES = len(b"x-hbuf-salt: ") + 43 + 2
_ID_LINE = b"\r\nx-hbuf-id: "
_ID_NAME_BYTES = len(b"x-hbuf-id: ")
ID_BYTES = 64
_SIG_LINE_BYTES = len(b"x-hbuf-sig: ") + 86 + 2
_TIME = b"\r\nx-hbuf-time: "
_TIME_FORM = np.frombuffer(b"0000-00-00T00:00:00.000000", np.uint8)
_TIME_BYTES, _TIME_DIGITS = len(_TIME_FORM), np.equal(_TIME_FORM, ord("0"))
_LENGTH = b"\r\ncontent-length: "
_OWN = b"x-hbuf-"
_DATA_KEY = re.compile(rb"\nx-hbuf-data-key: ")


class Layout(NamedTuple):
    """Positions in a block's data, one of each record. An erased message has no key and no tags."""

    times_us: Ints
    deletes: Bools
    erased: Bools
    encrypted: Bools
    keys: Ints
    key_ends: Ints  # the same where there is no key: a key is never empty
    tags: Ints  # tag lines
    tags_ends: Ints
    headers_ends: Ints  # a client's own fields begin where the tags end
    ids: Ints
    bodies: Ints
    body_ends: Ints


def lay_out(block: Block) -> Layout | None:
    """None where a record is not as its entry says, or a part of one could not be read."""
    if block.holes:
        return None
    try:
        return _lay_out(block)
    except (Differs, ValueError, IndexError):  # numpy's own, for a time that is none, and a place behind the end
        return None


def _lay_out(block: Block) -> Layout:
    entries, starts, data = block.entries, block.starts, block.data
    ends = ends_of(entries, starts)
    heads, bodies = starts + entries["head_length"], starts + entries["section_length"]
    flags = entries["flags"]
    deletes = (flags & index.FLAG_DELETE) != 0
    expect(heads <= bodies)
    expect(has(data, heads - 2, b"\r\n") & has(data, bodies - 4, b"\r\n\r\n") & has(data, ends - 2, b"\r\n"))
    times_ends = _check_times(block, _check_starts(block, starts, deletes), entries["time_us"])
    encrypted = _encrypted(data, times_ends, _check_lengths(data, heads, entries["body_length"].astype(np.int64)))
    expect(encrypted == ((flags & index.FLAG_ENCRYPTED) != 0))
    ids = _ids(data, heads, bodies, (flags & index.FLAG_SIGNED) != 0)
    salts = ids - _ID_NAME_BYTES - _SALT_LINE_BYTES
    has_room = salts >= heads
    erased = has_room & has(data, np.where(has_room, salts - 2, 0), _GONE)
    expect(erased == ((flags & index.FLAG_ERASED) != 0))
    salted = erased | (has_room & has(data, np.where(has_room, salts - 2, 0), _SALT))
    fields_ends = np.where(salted, salts, ids - _ID_NAME_BYTES)
    keys, key_ends = _keys(data, entries, starts, heads, fields_ends)
    tags = np.where(key_ends > keys, key_ends + 2, heads)
    tags_ends = _tags_ends(data, entries, tags, fields_ends)
    return Layout(
        entries["time_us"], deletes, erased, encrypted, keys, key_ends, tags, tags_ends, fields_ends, ids, bodies,
        ends - 2,
    )  # fmt: skip


def _check_starts(block: Block, starts: Ints, deletes: Bools) -> Ints:
    """Checks how each record begins, with its number. Returns where the numbers end."""
    first, last = block.record(0), block.record(block.count - 1)
    if first is None or last is None:
        raise Differs
    opening = block.data[first.start : block.data.index(b"\r\nx-hbuf-seq: ", first.start) + len(b"\r\nx-hbuf-seq: ")]
    behind_method = opening[len(first.method) :]
    method_bytes = np.where(deletes, len(b"DELETE"), len(b"POST"))
    expect(has(block.data, starts[~deletes], b"POST" + behind_method))
    expect(has(block.data, starts[deletes], b"DELETE" + behind_method))
    seqs = np.arange(block.first, block.first + block.count)
    ends = starts + method_bytes + len(behind_method) + _digits(seqs)
    _check_numbers(block.data, ends, seqs)
    return ends


def _digits(numbers: Ints) -> Ints:
    """How many digits each has."""
    return np.searchsorted(_POWERS_OF_TEN, numbers, "right") + 1


def _check_numbers(data: bytes, ends: Ints, numbers: Ints) -> None:
    """Checks that each number stands before its end, in plain decimal."""
    digits = _digits(numbers)
    for width in range(int(digits.min()), int(digits.max()) + 1):
        among = np.flatnonzero(digits == width)
        texts = gathered(data, ends[among] - width, width).view(np.uint8).reshape(-1, width) - ord("0")
        expect(texts <= 9)
        expect(texts.astype(np.int64) @ 10 ** np.arange(width - 1, -1, -1) == numbers[among])


def _check_times(block: Block, numbers_ends: Ints, times_us: Ints) -> Ints:
    """Checks the times, and returns where their lines end.

    Messages of one batch have one time: its text is compared with that of the one before, and parsed only once.
    """
    at = numbers_ends + len(_TIME)
    expect(has(block.data, numbers_ends, _TIME) & has(block.data, at + _TIME_BYTES, b"Z\r\n"))
    texts = gathered(block.data, at, _TIME_BYTES)
    new = np.ones(len(texts), np.bool_)
    new[1:] = times_us[1:] != times_us[:-1]
    expect((texts[1:] == texts[:-1]) | new[1:])
    chars = texts[new].view(np.uint8).reshape(-1, _TIME_BYTES)
    expect(np.where(_TIME_DIGITS, chars - ord("0") <= 9, chars == _TIME_FORM))  # numpy takes others, too
    expect(texts[new].view(f"S{_TIME_BYTES}").astype("M8[us]").astype(np.int64) == times_us[new])
    return at + _TIME_BYTES + len(b"Z\r\n")


def _check_lengths(data: bytes, heads: Ints, lengths: Ints) -> Ints:
    """Checks the lines that say how long the bodies are, with which the heads end. Returns where they begin."""
    _check_numbers(data, heads - 2, lengths)
    lines = heads - 2 - _digits(lengths) - len(_LENGTH)
    expect(has(data, lines, _LENGTH))
    return lines + 2


def _encrypted(data: bytes, starts: Ints, ends: Ints) -> Bools:
    """Those that have a line that names a data key among a head's own, which lie between `starts` and `ends`."""
    encrypted = np.zeros(len(starts), np.bool_)
    expect(starts <= ends)
    [with_own] = np.nonzero(starts < ends)
    if not len(with_own):
        return encrypted
    expect(has(data, starts[with_own], _OWN))
    places, lines = joined(taken(data, starts[with_own], ends[with_own]))
    if b"\r\n\r\n" in lines:
        raise Differs  # a header section has ended: these are lines of a body
    found = np.fromiter((match.start() for match in _DATA_KEY.finditer(b"\n" + lines)), np.int64)
    encrypted[with_own[np.searchsorted(places, found, "right") - 1]] = True
    return encrypted


def _ids(data: bytes, heads: Ints, bodies: Ints, signed: Bools) -> Ints:
    ids = bodies - 4 - ID_BYTES - np.where(signed, _SIG_LINE_BYTES, 0)
    expect(ids - _ID_NAME_BYTES >= heads)
    expect(has(data, ids - len(_ID_LINE), _ID_LINE))
    expect(has(data, ids + ID_BYTES, b"\r\n"))
    return ids


def _keys(data: bytes, entries: Entries, starts: Ints, heads: Ints, fields_ends: Ints) -> tuple[Ints, Ints]:
    """Where each key begins and ends. The key's line is the first of the fields."""
    has_key = entries["key_offset"] != 0
    expect(has_key == (has(data, heads, _KEY) & (heads < fields_ends)))
    keys = np.where(has_key, heads + len(_KEY), heads)
    key_ends = keys + entries["key_length"]
    expect((starts + entries["key_offset"] == keys) | ~has_key)
    expect((entries["key_length"] != 0) == has_key)
    expect(has(data, key_ends[has_key], b"\r\n") & (key_ends[has_key] + 2 <= fields_ends[has_key]))
    return keys, key_ends


def _tags_ends(data: bytes, entries: Entries, tags: Ints, fields_ends: Ints) -> Ints:
    """Where the tag lines end: there comes another line, or the trailer."""
    tags_ends: Ints = tags + entries["tags_length"]
    has_tags = entries["tags_length"] != 0
    expect(tags_ends <= fields_ends)
    expect(has(data, tags[has_tags], _TAG) & has(data, tags_ends[has_tags] - 2, b"\r\n"))
    expect(~(has(data, tags_ends, _TAG) & (tags_ends < fields_ends)))
    return tags_ends
