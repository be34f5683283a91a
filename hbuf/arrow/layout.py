"""Where the parts of each message of a block lie, from the index, compared with the records for all of them at once.

The index is no evidence. A block whose records are not as its entries say has no layout, and is read record by
record instead. What is compared: that the first and the last record are ones, with the numbers that they must have;
that every record between begins, and its head, its header section and its body end, where they must; and its time,
id, key, tags, and whether it is erased or encrypted.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hbuf.arrow.block import Block, Bools, Entries, Ints, ends_of
from hbuf.format import index

_POWERS_OF_TEN = 10 ** np.arange(1, 19, dtype=np.int64)

_KEY, _TAG = b"x-hbuf-key: ", b"x-hbuf-tag: "
_SALT, _GONE = b"x-hbuf-salt: ", b"x-hbuf-gone: "
_SALT_LINE_BYTES = len(_SALT) + 43 + 2
_ID = b"x-hbuf-id: "
ID_BYTES = 64
_SIG_LINE_BYTES = len(b"x-hbuf-sig: ") + 86 + 2
_TIME = b"\r\nx-hbuf-time: "
_TIME_BYTES = len("2026-11-18T04:51:00.123456")
_LENGTH = b"content-length: "
_DATA_KEY = re.compile(rb"\r\nx-hbuf-data-key: ")


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
    """None where a record is not as its entry says."""
    try:
        return _lay_out(block)
    except (_Differs, ValueError, IndexError):  # numpy's own, for a time that is none, and a place behind the end
        return None


class _Differs(Exception):
    """A record is not as its entry says."""


def _expect(as_expected: Bools) -> None:
    if not as_expected.all():
        raise _Differs


def _lay_out(block: Block) -> Layout:
    entries, starts, data = block.entries, block.starts, block.data
    ends = ends_of(entries, starts)
    heads, bodies = starts + entries["head_length"], starts + entries["section_length"]
    flags = entries["flags"]
    deletes = (flags & index.FLAG_DELETE) != 0
    _expect(heads <= bodies)
    _expect(_has(data, heads - 2, b"\r\n") & _has(data, bodies - 4, b"\r\n\r\n") & _has(data, ends - 2, b"\r\n"))
    times_ends = _check_times(block, _check_starts(block, starts, deletes), entries["time_us"])
    bare_heads = times_ends + len(_LENGTH) + _digits(entries["body_length"]) + 2
    ids = _ids(data, heads, bodies, (flags & index.FLAG_SIGNED) != 0)
    encrypted = _encrypted(data, starts, heads) if np.any(heads != bare_heads) else np.zeros(len(heads), np.bool_)
    _expect(encrypted == ((flags & index.FLAG_ENCRYPTED) != 0))
    salts = ids - len(_ID) - _SALT_LINE_BYTES
    has_room = salts >= heads
    erased = has_room & _has(data, np.where(has_room, salts, 0), _GONE)
    _expect(erased == ((flags & index.FLAG_ERASED) != 0))
    salted = erased | (has_room & _has(data, np.where(has_room, salts, 0), _SALT))
    fields_ends = np.where(salted, salts, ids - len(_ID))
    keys, key_ends = _keys(data, entries, starts, heads, fields_ends)
    tags = np.where(key_ends > keys, key_ends + 2, heads)
    tags_ends = _tags_ends(data, entries, tags, fields_ends)
    return Layout(
        entries["time_us"], deletes, erased, encrypted, keys, key_ends, tags, tags_ends, fields_ends, ids, bodies,
        ends - 2,
    )  # fmt: skip


def _check_starts(block: Block, starts: Ints, deletes: Bools) -> Ints:
    """Checks how each record begins, up to its number. Returns where the numbers end."""
    first, last = block.record(0), block.record(block.count - 1)
    if first is None or last is None:
        raise _Differs
    opening = block.data[first.start : block.data.index(b"\r\nx-hbuf-seq: ", first.start) + len(b"\r\nx-hbuf-seq: ")]
    behind_method = opening[len(first.method) :]
    method_bytes = np.where(deletes, len(b"DELETE"), len(b"POST"))
    _expect(_has(block.data, starts[~deletes], b"POST" + behind_method))
    _expect(_has(block.data, starts[deletes], b"DELETE" + behind_method))
    seqs = np.arange(block.first, block.first + block.count)
    return starts + method_bytes + len(behind_method) + _digits(seqs)


def _digits(numbers: Ints) -> Ints:
    """How many digits each has."""
    return np.searchsorted(_POWERS_OF_TEN, numbers, "right") + 1


def _check_times(block: Block, numbers_ends: Ints, times_us: Ints) -> Ints:
    """Checks the times, and returns where their lines end.

    Messages of one batch have one time: its text is compared with that of the one before, and parsed only once.
    """
    at = numbers_ends + len(_TIME)
    _expect(_has(block.data, numbers_ends, _TIME) & _has(block.data, at + _TIME_BYTES, b"Z\r\n"))
    texts = _gathered(block.data, at, _TIME_BYTES)
    new = np.ones(len(texts), np.bool_)
    new[1:] = times_us[1:] != times_us[:-1]
    _expect((texts[1:] == texts[:-1]) | new[1:])
    _expect(texts[new].view(f"S{_TIME_BYTES}").astype("M8[us]").astype(np.int64) == times_us[new])
    return at + _TIME_BYTES + len(b"Z\r\n")


def _ids(data: bytes, heads: Ints, bodies: Ints, signed: Bools) -> Ints:
    ids = bodies - 4 - ID_BYTES - np.where(signed, _SIG_LINE_BYTES, 0)
    _expect(ids - len(_ID) >= heads)
    _expect(_has(data, ids - len(_ID), _ID))
    _expect(_has(data, ids + ID_BYTES, b"\r\n"))
    return ids


def _encrypted(data: bytes, starts: Ints, heads: Ints) -> Bools:
    """Those whose head has a line that names a data key. What a body has of such lines does not count."""
    encrypted = np.zeros(len(starts), np.bool_)
    found = np.fromiter((match.start() for match in _DATA_KEY.finditer(data)), np.int64)
    records = np.searchsorted(starts, found, "right") - 1
    inside = (records >= 0) & (found < heads[records])
    encrypted[records[inside]] = True
    return encrypted


def _keys(data: bytes, entries: Entries, starts: Ints, heads: Ints, fields_ends: Ints) -> tuple[Ints, Ints]:
    """Where each key begins and ends. The key's line is the first of the fields."""
    has_key = entries["key_offset"] != 0
    _expect(has_key == (_has(data, heads, _KEY) & (heads < fields_ends)))
    keys = np.where(has_key, heads + len(_KEY), heads)
    key_ends = keys + entries["key_length"]
    _expect((starts + entries["key_offset"] == keys) | ~has_key)
    _expect((entries["key_length"] != 0) == has_key)
    _expect(_has(data, key_ends[has_key], b"\r\n") & (key_ends[has_key] + 2 <= fields_ends[has_key]))
    return keys, key_ends


def _tags_ends(data: bytes, entries: Entries, tags: Ints, fields_ends: Ints) -> Ints:
    """Where the tag lines end: there comes another line, or the trailer."""
    tags_ends: Ints = tags + entries["tags_length"]
    has_tags = entries["tags_length"] != 0
    _expect(tags_ends <= fields_ends)
    _expect(_has(data, tags[has_tags], _TAG) & _has(data, tags_ends[has_tags] - 2, b"\r\n"))
    _expect(~(_has(data, tags_ends, _TAG) & (tags_ends < fields_ends)))
    return tags_ends


def _gathered(data: bytes, places: Ints, width: int) -> npt.NDArray[np.void]:
    """`width` bytes from each place on."""
    if len(data) < width or (len(places) and int(places.min()) < 0):
        raise IndexError
    return np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))[places]


def _has(data: bytes, places: Ints, wanted: bytes) -> Bools:
    """Whether `wanted` stands at each place."""
    found: Bools = _gathered(data, places, len(wanted)) == np.void(wanted)
    return found
